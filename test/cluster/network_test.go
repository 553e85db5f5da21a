/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestNetworkDriver follows pods with a second interface, from the manifests that
// users find. The driver, the kubelet and containerd are killed on the way.
func TestNetworkDriver(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	e.deployNetworkDriver()

	manifest, err := shared.NetworkExample(e.Version)
	if err != nil {
		t.Fatal(err)
	}
	e.kubectlApply(manifest, "--namespace="+e.namespace)
	t.Cleanup(func() { e.kubectlDelete(manifest, "--namespace="+e.namespace) })
	pods := e.networkPods(2)
	for _, pod := range pods {
		e.statusIsTrue(pod)
	}
	e.reach(pods[0], pods[1])
	e.reach(pods[1], pods[0])

	// Killed between CNI ADD and the write of the status, which is refused until
	// the driver has been killed.
	before := e.leases("storage")
	restore := e.withoutPermission("resourceclaims/status")
	e.scaleNetworkPods(3)
	pods = e.networkPods(3)
	fresh := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return len(e.deviceStatus(claimOf(e, pod))) == 0 })
	if fresh < 0 {
		t.Fatal("all devices have a status, although the driver may not write one")
	}
	connected := e.interfaceOf(pods[fresh])
	e.killNetworkDriver()
	restore()
	e.statusIsTrue(pods[fresh])
	if now := e.interfaceOf(pods[fresh]); !now.equal(connected) {
		t.Errorf("the interface was %+v before the driver was killed, now it is %+v", connected, now)
	}
	if got := e.leases("storage"); len(got) != len(before)+1 {
		t.Errorf("want one more address to be taken than %q, got %q", before, got)
	}

	unchanged := func(what string) {
		t.Helper()
		e.networkDriverIsReady()
		for _, pod := range pods {
			e.sameContainer(pod)
			e.statusIsTrue(pod)
		}
		e.reach(pods[0], pods[2])
		if got := e.leases("storage"); len(got) != len(pods) {
			t.Errorf("%s: want %d addresses to be taken, got %q", what, len(pods), got)
		}
	}
	if err := shared.Restart(e.ctx, cluster.Kubelet, nil); err != nil {
		t.Fatal(err)
	}
	unchanged("kubelet restarted")
	if err := shared.KillContainerd(e.ctx); err != nil {
		t.Fatal(err)
	}
	unchanged("containerd killed")
	// And all of them still do their work.
	e.scaleNetworkPods(4)
	pods = e.networkPods(4)
	unchanged("one more pod")

	// Roles which the driver lacks, and then has. It is not restarted for that.
	for _, resource := range []string{"resourceclaims/status", "resourceclaims/driver"} {
		name := "without-" + strings.TrimPrefix(resource, "resourceclaims/")
		restore := e.withoutPermission(resource)
		e.standaloneNetworkPod(name, "storage-network")
		pod := e.userRuns(name)
		message := e.event("ResourceClaim", name, func(event *corev1.Event) bool {
			return event.Type == corev1.EventTypeWarning && event.Source.Component == cluster.NetworkDriverName
		})
		t.Logf("the driver says: %s", message)
		if devices := e.deviceStatus(name); len(devices) > 0 {
			t.Errorf("the status was written without %s: %+v", resource, devices)
		}
		restore()
		e.statusIsTrue(pod)
		e.deletePod(name)
		e.free(name)
	}

	// A claim that stays when its pod goes.
	e.standaloneNetworkPod("alone", "storage-network")
	alone := e.userRuns("alone")
	e.statusIsTrue(alone)
	e.deletePod("alone")
	e.free("alone")
	e.eventually("status of the device is gone", func() error {
		if devices := e.deviceStatus("alone"); len(devices) > 0 {
			return fmt.Errorf("%+v", devices)
		}
		return nil
	})

	e.survivesReboot(pods)

	e.scaleNetworkPods(0)
	e.networkPods(0)
	e.nothingIsLeft("storage")

	// What CNI cannot do is told to whoever looks at the pod or at the claim.
	e.kubectlApply(e.replace(manifest,
		"name: storage-network", "name: broken-network",
		"deviceClassName: storage-network", "deviceClassName: broken-network",
		"name: storage\n", "name: broken\n",
		"- subnet: 10.220.0.0/24\n", "- subnet: 10.221.0.0/24\n          - type: macvlan\n            master: missing0\n",
		"replicas: 2", "replicas: 0",
	), "--namespace="+e.namespace)
	t.Cleanup(func() { e.kubectlDeleteNames("deviceclass/broken-network") })
	e.standaloneNetworkPod("broken", "broken-network")
	message := e.event("Pod", "broken", func(event *corev1.Event) bool {
		return event.Type == corev1.EventTypeWarning && event.Source.Component == cluster.NetworkDriverName
	})
	t.Logf("the driver says: %s", message)
	for _, want := range []string{"claim " + e.namespace + "/broken", "network broken", "macvlan", "Link not found"} {
		if !strings.Contains(message, want) {
			t.Errorf("the driver's event does not mention %q: %s", want, message)
		}
	}
	e.eventually("condition of the device says why", func() error {
		devices := e.deviceStatus("broken")
		if len(devices) != 1 || len(devices[0].Conditions) != 1 {
			return fmt.Errorf("%+v", devices)
		}
		if c := devices[0].Conditions[0]; c.Type != "Ready" || c.Status != metav1.ConditionFalse || c.Reason != "CNIAddFailed" || !strings.Contains(c.Message, "Link not found") || devices[0].NetworkData != nil {
			return fatal{fmt.Errorf("%+v", devices)}
		}
		return nil
	})
	// It is tried again, but each time all of it is undone.
	e.nothingIsLeft("broken")
	e.deletePod("broken")
	e.free("broken")
	e.nothingIsLeft("broken")
	e.uninstallNetworkDriver()
}

// survivesReboot reboots the node. The same pods come back with the same interfaces and addresses, and nobody
// keeps another address for them.
func (e *env) survivesReboot(pods []*corev1.Pod) {
	e.Helper()
	before, leases := map[types.UID]networkInterface{}, e.leases("storage")
	for _, pod := range pods {
		before[pod.UID] = e.interfaceOf(pod)
	}
	start := time.Now()
	if err := shared.Reboot(e.ctx); err != nil {
		e.Fatal(err)
	}
	e.Logf("containerd and kubelet are up %s after the reboot", time.Since(start).Round(time.Second))
	e.eventually("all containers run again", func() error {
		for _, pod := range pods {
			now, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now.UID != pod.UID {
				return fatal{fmt.Errorf("pod %s was replaced", pod.Name)}
			}
			status, old := now.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[0]
			if status.State.Running == nil || status.ContainerID == old.ContainerID {
				return fmt.Errorf("pod %s: %+v", pod.Name, status)
			}
		}
		return nil
	})
	e.Logf("all pods run %s after the reboot", time.Since(start).Round(time.Second))
	e.networkDriverIsReady()
	for _, pod := range pods {
		e.statusIsTrue(pod)
		if now := e.interfaceOf(pod); !now.equal(before[pod.UID]) {
			e.Errorf("pod %s had %+v before the reboot, now it has %+v", pod.Name, before[pod.UID], now)
		}
	}
	e.reach(pods[0], pods[1])
	if now := e.leases("storage"); !slices.Equal(now, leases) {
		e.Errorf("the addresses %q were taken before the reboot, now %q", leases, now)
	}
}

// deployNetworkDriver runs the driver as a DaemonSet, until the end of the test.
func (e *env) deployNetworkDriver(args ...string) {
	e.Helper()
	manifest, err := shared.NetworkDriver()
	if err != nil {
		e.Fatal(err)
	}
	level := "- --v=4"
	for _, arg := range args {
		level += "\n        - " + arg
	}
	manifest = e.replace(manifest, "- --v=2", level)
	start := time.Now()
	e.kubectlApply(manifest)
	e.Cleanup(func() {
		if e.Failed() {
			e.explainNetworkDriver()
		}
		// Without the driver, pods with its devices never end.
		e.kubectlDeleteNames("deployments,pods", "--all", "--namespace="+e.namespace)
		e.kubectlDelete(manifest)
	})
	e.networkDriverIsReady()
	e.Logf("the network driver is ready %s after kubectl apply", time.Since(start).Round(100*time.Millisecond))
}

// uninstallNetworkDriver checks that nothing is left when the manifest is deleted: no slice, which the kubelet
// removes after half a minute, no policy, and no file or socket on the node.
func (e *env) uninstallNetworkDriver() {
	e.Helper()
	manifest, err := shared.NetworkDriver()
	if err != nil {
		e.Fatal(err)
	}
	policies := e.objectNames("validatingadmissionpolicies,validatingadmissionpolicybindings")
	e.kubectlDelete(manifest)
	e.eventually("nothing is left of the driver", func() error {
		list, err := e.Dynamic.Resource(e.Resource("resourceslices")).List(e.ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + cluster.NetworkDriverName})
		if err != nil {
			return err
		}
		if n := len(list.Items); n > 0 {
			return fmt.Errorf("%d ResourceSlices", n)
		}
		files, err := shared.RunInNode(e.ctx, "find", "/run/cdi", "/var/lib/kubelet", "/var/lib/cni", "-path", "*"+cluster.NetworkDriverName+"*", "!", "-type", "d")
		if err != nil {
			return err
		}
		if files != "" {
			return fmt.Errorf("files %s", files)
		}
		return nil
	})
	if left := e.objectNames("validatingadmissionpolicies,validatingadmissionpolicybindings"); slices.Equal(left, policies) || slices.ContainsFunc(left, func(name string) bool { return strings.Contains(name, "dra-") }) {
		e.Errorf("the policies %q are left of %q", left, policies)
	}
}

// objectNames are those of all objects of some kinds that are not of a namespace.
func (e *env) objectNames(kinds string) []string {
	e.Helper()
	out, err := shared.KubectlCommand(e.ctx, "get", kinds, "-o", "name").Output()
	if err != nil {
		e.Fatal(err)
	}
	return strings.Fields(string(out))
}

func (e *env) explainNetworkDriver() {
	e.explainWith(cluster.NetworkNamespace, []string{"get", "pods", "-o", "wide"}, []string{"get", "events"}, []string{"logs", "daemonset/" + cluster.NetworkDaemonSet, "--tail=1000"})
}

// networkDriverIsReady waits until the kubelet and containerd know the driver.
func (e *env) networkDriverIsReady() {
	e.Helper()
	e.eventually("network driver is ready", func() error {
		// Readiness takes its time, and may still be that of before.
		if _, err := shared.RunInNode(e.ctx, "busybox", "wget", "-q", "-O", "-", shared.NetworkDriverURL("/readyz")); err != nil {
			return err
		}
		set, err := e.AppsV1().DaemonSets(cluster.NetworkNamespace).Get(e.ctx, cluster.NetworkDaemonSet, metav1.GetOptions{})
		if err == nil && (set.Status.DesiredNumberScheduled != 1 || set.Status.NumberReady != 1) {
			err = fmt.Errorf("%+v", set.Status)
		}
		return err
	})
}

// killNetworkDriver kills the process. The kubelet starts another one.
func (e *env) killNetworkDriver() {
	e.Helper()
	restarts := func() (int32, error) {
		pods, err := e.CoreV1().Pods(cluster.NetworkNamespace).List(e.ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
			return 0, fmt.Errorf("%+v", pods.Items)
		}
		return pods.Items[0].Status.ContainerStatuses[0].RestartCount, nil
	}
	before, err := restarts()
	if err != nil {
		e.Fatal(err)
	}
	if _, err := shared.RunInNode(e.ctx, "busybox", "killall", "-KILL", cluster.NetworkDaemonSet); err != nil {
		e.Fatal(err)
	}
	e.eventually("network driver is started again", func() error {
		now, err := restarts()
		if err == nil && now == before {
			err = errors.New("it was not")
		}
		return err
	})
	e.networkDriverIsReady()
}

// withoutPermission takes a resource from the driver's role which it needs for writing the
// status, until restore is called.
func (e *env) withoutPermission(resource string) (restore func()) {
	e.Helper()
	subresource := strings.TrimPrefix(resource, "resourceclaims/")
	attributes := &authorizationv1.ResourceAttributes{Group: "resource.k8s.io", Resource: "resourceclaims", Subresource: subresource, Verb: "patch", Namespace: e.namespace, Name: "any"}
	if subresource == "driver" {
		attributes.Verb, attributes.Name = "associated-node:patch", cluster.NetworkDriverName
	}
	set := func(allowed bool, from, to string) {
		e.Helper()
		role, err := e.RbacV1().ClusterRoles().Get(e.ctx, cluster.NetworkDaemonSet, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		i := slices.IndexFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Equal(rule.Resources, []string{from}) })
		if i < 0 {
			e.Fatalf("the role of the driver has no rule for %s: %+v", from, role.Rules)
		}
		role.Rules[i].Resources = []string{to}
		if _, err := e.RbacV1().ClusterRoles().Update(e.ctx, role, metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
		e.waitForRight("system:serviceaccount:"+cluster.NetworkNamespace+":"+cluster.NetworkDaemonSet, attributes, allowed)
	}
	nothing := "nothing/" + subresource
	set(false, resource, nothing)
	return func() { e.Helper(); set(true, nothing, resource) }
}

func (e *env) scaleNetworkPods(replicas int32) {
	e.Helper()
	kubectl(e.T, "--namespace="+e.namespace, "scale", "deployment/storage-network", fmt.Sprintf("--replicas=%d", replicas))
}

// networkPods waits until exactly so many pods of the example run.
func (e *env) networkPods(n int) []*corev1.Pod {
	e.Helper()
	var pods []*corev1.Pod
	e.eventually(fmt.Sprintf("%d pods run", n), func() error {
		list, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: "app=storage-network"})
		if err != nil {
			return err
		}
		pods = nil
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s: %+v", pod.Name, pod.Status)
			}
			pods = append(pods, pod)
		}
		if len(pods) != n {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	return pods
}

// standaloneNetworkPod creates a claim, and a pod which uses it.
func (e *env) standaloneNetworkPod(name, class string) {
	e.Helper()
	e.claim(name, class, nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cluster.PodSpec(name, untilTold)}
	if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// claimOf is the name of the only claim of a pod.
func claimOf(e *env, pod *corev1.Pod) string {
	e.Helper()
	if statuses := pod.Status.ResourceClaimStatuses; len(statuses) == 1 && statuses[0].ResourceClaimName != nil {
		return *statuses[0].ResourceClaimName
	}
	if claims := pod.Spec.ResourceClaims; len(claims) == 1 && claims[0].ResourceClaimName != nil {
		return *claims[0].ResourceClaimName
	}
	e.Fatalf("pod %s does not have one claim: %+v", pod.Name, pod.Status.ResourceClaimStatuses)
	return ""
}

// deviceStatus is what drivers say about the devices of a claim.
func (e *env) deviceStatus(claim string) []resourceapi.AllocatedDeviceStatus {
	e.Helper()
	object, err := e.Claims(e.namespace).Get(e.ctx, claim, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	data, err := object.MarshalJSON()
	if err != nil {
		e.Fatal(err)
	}
	// This part is the same in all versions of the API.
	var c struct {
		Status struct {
			Devices []resourceapi.AllocatedDeviceStatus `json:"devices"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		e.Fatal(err)
	}
	return c.Status.Devices
}

// networkInterface is one in a pod.
type networkInterface struct {
	name, mac string
	ips       []string
}

func (i networkInterface) equal(other networkInterface) bool {
	return i.name == other.name && i.mac == other.mac && slices.Equal(i.ips, other.ips)
}

var (
	interfaceLine = regexp.MustCompile(`^\d+: ([^:@]+)`)
	linkLine      = regexp.MustCompile(`^\s+link/ether (\S+)`)
	addressLine   = regexp.MustCompile(`^\s+inet6? (\S+) .*scope global`)
)

// interfaceOf is what ip shows in a pod besides the interfaces that every pod has.
// There must be one.
func (e *env) interfaceOf(pod *corev1.Pod) networkInterface {
	e.Helper()
	out := e.exec(pod.Name, "ip", "address", "show")
	var all []networkInterface
	for line := range strings.Lines(out) {
		if m := interfaceLine.FindStringSubmatch(line); m != nil {
			all = append(all, networkInterface{name: m[1]})
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		if m := linkLine.FindStringSubmatch(line); m != nil {
			last.mac = m[1]
		}
		if m := addressLine.FindStringSubmatch(line); m != nil {
			last.ips = append(last.ips, m[1])
		}
	}
	all = slices.DeleteFunc(all, func(i networkInterface) bool { return i.name == "lo" || i.name == "eth0" })
	if len(all) != 1 || len(all[0].ips) == 0 {
		e.Fatalf("want one more interface with an address, got:\n%s", out)
	}
	return all[0]
}

// statusIsTrue waits until the status of a pod's device says what ip shows in the pod.
func (e *env) statusIsTrue(pod *corev1.Pod) {
	e.Helper()
	claim := claimOf(e, pod)
	want := e.interfaceOf(pod)
	e.eventually("status of claim "+claim+" is true", func() error {
		devices := e.deviceStatus(claim)
		if len(devices) != 1 || devices[0].Driver != cluster.NetworkDriverName || devices[0].Pool != cluster.RealNode || devices[0].NetworkData == nil {
			return fmt.Errorf("%+v", devices)
		}
		data := devices[0].NetworkData
		if got := (networkInterface{data.InterfaceName, data.HardwareAddress, data.IPs}); !got.equal(want) {
			return fmt.Errorf("pod %s has %+v, the status says %+v", pod.Name, want, got)
		}
		if c := devices[0].Conditions; len(c) != 1 || c[0].Type != "Ready" || c[0].Status != metav1.ConditionTrue {
			return fmt.Errorf("conditions are %+v", c)
		}
		return nil
	})
}

// reach sends something from one pod to another, over the additional interface.
func (e *env) reach(from, to *corev1.Pod) {
	e.Helper()
	address, _, _ := strings.Cut(e.interfaceOf(to).ips[0], "/")
	e.exec(from.Name, "ping", "-c", "1", "-W", "10", "-I", e.interfaceOf(from).name, address)
}

// exec runs a command in a pod, and returns what it prints. A kubelet or containerd
// that has just been started does not know the pod for a moment.
func (e *env) exec(pod string, command ...string) string {
	e.Helper()
	var out []byte
	e.eventually("run "+strings.Join(command, " ")+" in "+pod, func() error {
		args := append([]string{"--namespace=" + e.namespace, "exec", pod, "--"}, command...)
		var err error
		if out, err = shared.KubectlCommand(e.ctx, args...).CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	return string(out)
}

// leases are the addresses of a network that are taken.
func (e *env) leases(network string) []string {
	e.Helper()
	out, err := shared.RunInNode(e.ctx, "ls", "/var/lib/cni/networks/"+network)
	if err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return nil
		}
		e.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return name == "lock" || strings.HasPrefix(name, "last_reserved") })
}

// nothingIsLeft waits until there is neither an address that is taken, nor an
// interface at the bridge.
func (e *env) nothingIsLeft(network string) {
	e.Helper()
	e.eventually("nothing is left of network "+network, func() error {
		if leases := e.leases(network); len(leases) > 0 {
			return fmt.Errorf("addresses %q", leases)
		}
		out, err := exec.CommandContext(e.ctx, "ip", "-o", "link", "show", "master", shared.NetworkBridge()).CombinedOutput()
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("interfaces: %s", out)
		}
		return err
	})
}

// kubectlApply applies a manifest. It fails the test if that fails.
func (e *env) kubectlApply(manifest string, args ...string) {
	e.Helper()
	e.kubectlWith(e.ctx, manifest, append([]string{"apply"}, args...))
}

// kubectlDelete deletes what is in a manifest.
func (e *env) kubectlDelete(manifest string, args ...string) {
	e.Helper()
	if os.Getenv("KEEP") != "true" {
		e.kubectlWith(context.Background(), manifest, append([]string{"delete", "--ignore-not-found"}, args...))
	}
}

func (e *env) kubectlWith(ctx context.Context, manifest string, args []string) {
	e.Helper()
	cmd := shared.KubectlCommand(ctx, append(args, "--filename=-")...)
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		e.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (e *env) kubectlDeleteNames(names ...string) {
	e.Helper()
	if os.Getenv("KEEP") == "true" {
		return
	}
	args := append([]string{"delete", "--ignore-not-found"}, names...)
	if out, err := shared.KubectlCommand(context.Background(), args...).CombinedOutput(); err != nil {
		e.Errorf("kubectl delete %q: %v: %s", names, err, out)
	}
}
