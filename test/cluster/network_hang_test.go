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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tools"
)

// needsInterface is what a container does that must not run without its interface.
const needsInterface = `ip address show net1 | grep -q inet || exit 42; exec sleep 1000000`

// TestNetworkHangs checks that no pod runs without the interface that its claim promised,
// and that none waits for the CNI plugins of another: while CHECK, DEL and ADD of one
// network do not answer, while the driver is not connected to containerd, while it is
// stopped and while it is restarted. containerd has its own time limit for plugins.
func TestNetworkHangs(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	e.deployNetworkDriver("--check-interval=1s")
	manifest, err := shared.NetworkExample(e.Version)
	if err != nil {
		t.Fatal(err)
	}
	manifest = e.replace(manifest, "replicas: 2", "replicas: 0")
	e.kubectlApply(manifest, "--namespace="+e.namespace)
	t.Cleanup(func() { e.kubectlDelete(manifest, "--namespace="+e.namespace) })
	e.kubectlApply(e.replace(manifest,
		"name: storage-network", "name: slow-network",
		"deviceClassName: storage-network", "deviceClassName: slow-network",
		"name: storage\n", "name: slow\n",
		"- subnet: 10.220.0.0/24\n", "- subnet: 10.222.0.0/24\n",
	), "--namespace="+e.namespace)
	t.Cleanup(func() { e.kubectlDeleteNames("deviceclass/slow-network") })
	e.networkPod("victim", "slow-network")
	e.statusIsTrue(e.userRuns("victim"))

	goOn := e.lockNetwork("slow")
	e.pluginHangs("CHECK")
	e.networkPod("during-check", "storage-network")
	first := e.userRuns("during-check")
	e.statusIsTrue(first)

	e.deletePod("victim")
	e.pluginHangs("DEL")
	e.networkPod("during-del", "storage-network")
	e.statusIsTrue(e.userRuns("during-del"))

	e.networkPod("during-add", "slow-network")
	e.says("during-add", cluster.NetworkDriverName, "interface net1: CNI ADD was not done within the time that the container runtime waits")
	// The sandbox stays, and the container waits for its interface.
	e.says("during-add", "kubelet", "unresolvable CDI devices")
	// While the lock is held, a process that was not ended stays.
	e.eventually("the CHECK that did not answer was ended", func() error {
		runs, err := e.pluginRuns("CNI_COMMAND=CHECK", "K8S_POD_NAME=victim;")
		if err == nil && runs {
			err = errors.New("it still runs")
		}
		return err
	})
	goOn()
	e.statusIsTrue(e.userRuns("during-add"))
	e.gonePod("victim")

	// A sandbox is replaced while nobody answers. The kubelet does not prepare the claim
	// again, so only the runtime can keep the container from running.
	before := e.interfaceOf(first)
	e.signalNetworkDriver("STOP")
	e.killSandbox("during-check")
	e.says("during-check", "kubelet", e.netNSOf("during-check"))
	e.signalNetworkDriver("CONT")
	e.eventually("pod has a new sandbox, and its container runs", func() error {
		pod, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, "during-check", metav1.GetOptions{})
		if err == nil && (pod.Status.ContainerStatuses[0].RestartCount == 0 || pod.Status.ContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses)
		}
		first = pod
		return err
	})
	e.networkDriverIsReady()
	e.statusIsTrue(first)
	if now := e.interfaceOf(first); !now.equal(before) {
		t.Errorf("the new sandbox has %+v, the former one had %+v", now, before)
	}

	// The kubelet knows the driver, which is restarted, and containerd does not.
	const socket = "/run/containerd/nri/nri.sock"
	if _, err := shared.RunInNode(e.ctx, "mv", socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	e.signalNetworkDriver("KILL")
	e.networkPod("disconnected", "storage-network")
	e.says("disconnected", "kubelet", "the driver does not hear from the container runtime")
	if _, err := shared.RunInNode(e.ctx, "mv", socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	disconnected := e.userRuns("disconnected")
	e.networkDriverIsReady()
	e.statusIsTrue(disconnected)

	e.noneWithoutInterface()
	e.kubectlDeleteNames("pods", "--all", "--namespace="+e.namespace)
	e.nothingIsLeft("storage")
	e.nothingIsLeft("slow")
	if files, err := shared.RunInNode(e.ctx, "ls", "/run/cdi"); err != nil || strings.Contains(files, cluster.NetworkDriverName) {
		t.Errorf("left in /run/cdi: %s, %v", files, err)
	}
}

// networkPod creates a claim, and a pod which uses it and ends with 42 if it is started
// without an interface.
func (e *env) networkPod(name, class string) {
	e.Helper()
	e.claim(name, class, nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cluster.PodSpec(name, needsInterface)}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// noneWithoutInterface checks that no container of the test was ever started without.
func (e *env) noneWithoutInterface() {
	e.Helper()
	pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
				if ended != nil && ended.ExitCode == 42 {
					e.Errorf("pod %s ran without its interface: %+v", pod.Name, status)
				}
			}
		}
	}
}

// says waits for a warning of a component about a pod.
func (e *env) says(pod, component, text string) {
	e.Helper()
	message := e.event("Pod", pod, func(event *corev1.Event) bool {
		return event.Type == corev1.EventTypeWarning && event.Source.Component == component && strings.Contains(event.Message, text)
	})
	e.Logf("%s says about pod %s: %s", component, pod, message)
}

// gonePod waits until a pod does not exist any more.
func (e *env) gonePod(name string) {
	e.Helper()
	e.eventually("pod "+name+" is gone", func() error {
		_, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is not")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// lockNetwork has the plugin host-local wait for its lock, as it does when another one of
// the same network does not end, until the function is called or the test ends.
func (e *env) lockNetwork(network string) (unlock func()) {
	e.Helper()
	name := filepath.Join(shared.Options.Dir, "node", "root", "var", "lib", "cni", "networks", network, "lock")
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		e.Fatalf("lock of network %s: %v", network, err)
	}
	unlock = func() { _ = file.Close() }
	e.Cleanup(unlock)
	return unlock
}

// pluginHangs waits until a plugin runs with a command.
func (e *env) pluginHangs(command string) {
	e.Helper()
	e.eventually("CNI "+command+" hangs", func() error {
		runs, err := e.pluginRuns("CNI_COMMAND=" + command)
		if err == nil && !runs {
			err = errors.New("it does not")
		}
		return err
	})
}

// pluginRuns says whether a process of host-local runs with all of this in its environment.
func (e *env) pluginRuns(parts ...string) (bool, error) {
	// The driver has processes of its own, which the node sees.
	out, err := shared.RunInNode(e.ctx, "sh", "-c", `for p in $(busybox pidof host-local); do tr '\0' ' ' < /proc/$p/environ; echo; done 2>/dev/null`)
	return slices.ContainsFunc(strings.Split(out, "\n"), func(environment string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(environment, part) })
	}), err
}

// signalNetworkDriver sends a signal to the process.
func (e *env) signalNetworkDriver(signal string) {
	e.Helper()
	if _, err := shared.RunInNode(e.ctx, "busybox", "killall", "-"+signal, cluster.NetworkDaemonSet); err != nil {
		e.Fatal(err)
	}
}

// ctr runs the client of containerd.
func (e *env) ctr(args ...string) string {
	e.Helper()
	out, err := shared.RunInNode(e.ctx, append([]string{filepath.Join(tools.Dir(repo), "ctr"), "--namespace=k8s.io"}, args...)...)
	if err != nil {
		e.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// killSandbox kills the process that holds the namespaces of a pod.
func (e *env) killSandbox(pod string) {
	e.Helper()
	sandbox := e.ctr("containers", "list", "--quiet", fmt.Sprintf(`labels."io.kubernetes.pod.name"==%s,labels."io.cri-containerd.kind"==sandbox`, pod))
	if sandbox == "" || strings.Contains(sandbox, "\n") {
		e.Fatalf("want one sandbox of pod %s, got %q", pod, sandbox)
	}
	e.ctr("tasks", "kill", "--signal=SIGKILL", sandbox)
}

// netNSOf is the path that the containers of a pod need, which is that of its claim's
// network namespace.
func (e *env) netNSOf(claim string) string {
	e.Helper()
	object, err := e.Claims(e.namespace).Get(e.ctx, claim, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	out, err := shared.RunInNode(e.ctx, "cat", "/run/cdi/"+cluster.NetworkDriverName+"-interface-"+string(object.GetUID())+".json")
	if err != nil {
		e.Fatal(err)
	}
	var spec struct {
		Devices []struct {
			ContainerEdits struct{ Mounts []struct{ HostPath string } }
		}
	}
	parseJSON(e.T, out, &spec)
	return filepath.Base(spec.Devices[0].ContainerEdits.Mounts[0].HostPath)
}

// TestNetworkDriverRights checks that whoever has the token of the driver on one node can
// neither offer devices of others, nor speak for other components.
func TestNetworkDriverRights(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	e.deployNetworkDriver()
	as := func(account string, node ...string) *kubernetes.Clientset {
		config, err := shared.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + cluster.NetworkNamespace + ":" + account,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + cluster.NetworkNamespace, "system:authenticated"},
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": node},
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	onNode, withoutNode := as(cluster.NetworkDaemonSet, cluster.RealNode), as(cluster.NetworkDaemonSet)
	rights := func(client *kubernetes.Clientset) []string {
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(e.ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: e.namespace},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var rights []string
		for _, rule := range review.Status.ResourceRules {
			rights = append(rights, fmt.Sprint(rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs))
		}
		slices.Sort(rights)
		return rights
	}
	// Every service account may do a few things, which differ between releases.
	everybody := rights(as("nobody"))
	own := slices.DeleteFunc(rights(onNode), func(right string) bool { return slices.Contains(everybody, right) })
	if want := []string{
		"[] [events] [] [create patch]",
		"[] [nodes] [] [get]",
		"[] [pods] [] [list watch]",
		"[resource.k8s.io] [resourceclaims/driver] [" + cluster.NetworkDriverName + "] [associated-node:update associated-node:patch]",
		"[resource.k8s.io] [resourceclaims/status] [] [update patch]",
		"[resource.k8s.io] [resourceclaims] [] [get]",
		"[resource.k8s.io] [resourceslices] [] [associated-node]",
		"[resource.k8s.io] [resourceslices] [] [get list watch create update delete]",
	}; !slices.Equal(own, want) {
		t.Errorf("the driver may\n%s\nwant\n%s", strings.Join(own, "\n"), strings.Join(want, "\n"))
	}
	expect := func(what string, err error, refusal string) {
		t.Helper()
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: want %q, got %v", what, refusal, err)
		}
	}
	const onlyOwn = "may only write its own"
	path := "/apis/resource.k8s.io/" + e.Version + "/resourceslices"
	slice := func(client *kubernetes.Clientset, node, pool, driver string) error {
		object := e.ResourceSlice("rights", driver, []string{"device"}, "", "")
		spec := object.Object["spec"].(map[string]any)
		delete(spec, "allNodes")
		delete(spec, "nodeSelector")
		spec["nodeName"] = node
		spec["pool"].(map[string]any)["name"] = pool
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return client.RESTClient().Post().AbsPath(path).Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body(data).Do(e.ctx).Error()
	}
	const onlyNode = "may only write ResourceSlices with this spec.nodeName"
	// The API server needs a moment for a policy that is new.
	e.eventually("the policies are in force", func() error {
		if err := slice(onNode, "other", "other", cluster.NetworkDriverName); err == nil {
			return errors.New("the driver may write ResourceSlices of another node")
		}
		return nil
	})
	expect("own slice", slice(onNode, cluster.RealNode, cluster.RealNode, cluster.NetworkDriverName), "")
	expect("slice of another node", slice(onNode, "other", "other", cluster.NetworkDriverName), onlyNode)
	expect("slice of the pool of another node", slice(onNode, cluster.RealNode, "other", cluster.NetworkDriverName), "may only write ResourceSlices of the pool "+cluster.RealNode)
	expect("slice of another driver", slice(onNode, cluster.RealNode, cluster.RealNode, cluster.DriverName), "may not write ResourceSlices of the driver "+cluster.DriverName)
	expect("slice without a node", slice(withoutNode, cluster.RealNode, cluster.RealNode, cluster.NetworkDriverName), "not bound to a node")
	// Those that exist already: of the driver, for whoever is on another node.
	existing, err := shared.NewClient(e.ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := existing.Dynamic.Resource(existing.Resource("resourceslices")).List(e.ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + cluster.NetworkDriverName})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("the driver has no ResourceSlice: %v", err)
	}
	remove := func(client *kubernetes.Clientset) error {
		return client.RESTClient().Delete().AbsPath(path, list.Items[0].GetName()).Param("dryRun", "All").Do(e.ctx).Error()
	}
	expect("deletion of the own slice", remove(onNode), "")
	expect("deletion on another node", remove(as(cluster.NetworkDaemonSet, "other")), onlyNode)

	event := func(client *kubernetes.Clientset, change func(*corev1.Event)) error {
		object := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "rights-", Namespace: e.namespace},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.namespace, Name: "pod"},
			Source:         corev1.EventSource{Component: cluster.NetworkDriverName, Host: cluster.RealNode},
			Type:           corev1.EventTypeWarning, Reason: "Test", Message: "test",
		}
		change(object)
		_, err := client.CoreV1().Events(e.namespace).Create(e.ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	expect("own event", event(onNode, func(*corev1.Event) {}), "")
	expect("event about a claim", event(onNode, func(o *corev1.Event) {
		o.InvolvedObject.Kind, o.InvolvedObject.APIVersion = "ResourceClaim", "resource.k8s.io/v1"
	}), "")
	expect("event of the kubelet", event(onNode, func(o *corev1.Event) { o.Source.Component = "kubelet" }), onlyOwn)
	expect("event of another node", event(onNode, func(o *corev1.Event) { o.Source.Host = "other" }), onlyOwn)
	expect("event about a Secret", event(onNode, func(o *corev1.Event) { o.InvolvedObject.Kind = "Secret" }), onlyOwn)
	expect("event without a node", event(withoutNode, func(*corev1.Event) {}), onlyOwn)
}
