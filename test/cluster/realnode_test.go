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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-dra/hack/pkg/cluster"
)

// untilTold makes a container print its devices, and end when it is told to.
const untilTold = `echo "claim=$DRA_CLAIM device=$DRA_DEVICE_DEVICE"; until [ -e /tmp/end ]; do sleep 0.1; done`

// pods returns those of a Job by name.
func (e *env) pods(job string) map[string]*corev1.Pod {
	e.Helper()
	return e.podsWith(cluster.JobLabel + "=" + job)
}

// podsWith returns the pods with a label.
func (e *env) podsWith(selector string) map[string]*corev1.Pod {
	e.Helper()
	list, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		e.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

// tell tells the container of a pod to end. It may do so before the command that
// tells it, which gets killed then.
func (e *env) tell(pod string) {
	e.Helper()
	cmd := shared.KubectlCommand(e.ctx, "--namespace="+e.namespace, "exec", pod, "--", "touch", "/tmp/end")
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "exit code 137") {
		e.Fatalf("end pod %s: %v: %s", pod, err, out)
	}
}

// end lets the pods of a Job end, and waits until it is done.
func (e *env) end(job string) {
	e.Helper()
	for name := range e.pods(job) {
		e.tell(name)
	}
	e.eventually("Job "+job+" is done", func() error {
		job, err := e.BatchV1().Jobs(e.namespace).Get(e.ctx, job, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range job.Status.Conditions {
			if condition.Type == "Complete" && condition.Status == corev1.ConditionTrue {
				return nil
			}
			if condition.Type == "Failed" && condition.Status == corev1.ConditionTrue {
				return fatal{errors.New(condition.Message)}
			}
		}
		return fmt.Errorf("%+v", job.Status)
	})
}

// checkDevices checks what the containers of a Job got.
func (e *env) checkDevices(job, claim string) {
	e.Helper()
	want := fmt.Sprintf("claim=%s/%s device=%s.example.com/device-0\n", e.namespace, claim, e.namespace)
	for name := range e.pods(job) {
		e.eventually("log of "+name, func() error {
			stream, err := e.CoreV1().Pods(e.namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(e.ctx)
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			got, err := io.ReadAll(stream)
			if err == nil && string(got) != want {
				err = fmt.Errorf("want %q, got %q", want, got)
			}
			return err
		})
	}
}

// TestRealNode is the life of a claim on a node with a kubelet: one Job after
// the other uses it, and in between the node is without the feature. It restarts
// the kubelet, so no other test may start pods there: a container that was being
// started fails.
func TestRealNode(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	class := e.devices(1, "real")
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "first"})

	first := e.job("first", 3, cluster.PodSpec("shared", untilTold), nil)
	e.running("first", 3)
	e.reservedFor("shared", first)
	e.checkDevices("first", "shared")

	// Without the feature, what runs is left alone.
	before := e.pods("first")
	if err := shared.Restart(e.ctx, cluster.Kubelet, map[string]bool{gate: false}); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func(ctx context.Context) {
		if !restored {
			restored = true
			if err := shared.Restart(ctx, cluster.Kubelet, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { restore(context.Background()) })

	// The scheduler knows that any pod may use the claim, the kubelet does
	// not.
	another := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: cluster.PodSpec("shared", untilTold)}
	if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, another, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	message := e.event("Pod", "another", func(event *corev1.Event) bool {
		return event.Type == corev1.EventTypeWarning && event.Source.Component == "kubelet" && strings.Contains(event.Message, gate)
	})
	t.Logf("the kubelet says: %s", message)
	for _, want := range []string{"shared", "jobs.batch", "first", "disabled"} {
		if !strings.Contains(message, want) {
			t.Errorf("the kubelet's reason does not mention %q: %s", want, message)
		}
	}
	// The kubelet has worked on its pods by now.
	after := e.pods("first")
	for name, pod := range before {
		now := after[name]
		if now == nil || now.UID != pod.UID || now.Status.Phase != corev1.PodRunning || len(now.Status.ContainerStatuses) != 1 ||
			now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("pod %s was to keep running after the kubelet was restarted without the feature, got %+v", name, now)
		}
		kubectl(t, "--namespace="+e.namespace, "exec", name, "--", "true")
	}
	e.reservedFor("shared", first)

	restore(e.ctx)
	e.eventually("pod runs with the feature", func() error {
		pod, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, "another", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	e.reservedFor("shared", first)

	// The Job is done, but one pod still uses its devices.
	e.end("first")
	e.event("ResourceClaim", "shared", func(event *corev1.Event) bool {
		return event.Reason == "WaitingForPods" && strings.Contains(event.Message, "another")
	})
	e.reservedFor("shared", first)
	e.tell("another")
	e.free("shared")

	// The name is all that a claim without UID is about.
	if err := e.BatchV1().Jobs(e.namespace).Delete(e.ctx, "first", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	e.eventually("Job is gone", func() error {
		if n := len(e.pods("first")); n > 0 {
			return fmt.Errorf("%d pods are left", n)
		}
		return nil
	})
	second := e.job("first", 2, cluster.PodSpec("shared", untilTold), nil)
	if first.UID == second.UID {
		t.Fatal("this is the same Job")
	}
	e.running("first", 2)
	e.reservedFor("shared", second)
	e.checkDevices("first", "shared")
	e.end("first")
	e.free("shared")

	e.prepared()
}

// prepared checks that the driver has devices for these claims, and for no others. A kubelet that
// loses one of its checkpoint never takes it back from the driver.
func (e *env) prepared(claims ...string) {
	e.Helper()
	var want []string
	for _, name := range claims {
		status, err := e.GetClaim(e.ctx, e.namespace, name)
		if err != nil {
			e.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%s-%s.json", cluster.DriverName, status.UID))
	}
	slices.Sort(want)
	e.eventually("claims are prepared on the node", func() error {
		files, err := shared.RunInNode(e.ctx, "ls", "/run/cdi")
		if got := strings.Fields(files); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("want files %v in /run/cdi, got %v", want, got)
		}
		return err
	})
}

// TestNodeAuthorizer checks that a node sees the claims of its pods, whoever
// they are reserved for, and can do no more to them than before.
func TestNodeAuthorizer(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	class := e.devices(2, "real")
	e.claim("mine", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	e.claim("other", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "nobody"})
	job := e.job("job", 2, cluster.PodSpec("mine", untilTold), nil)
	e.running("job", 2)
	e.reservedFor("mine", job)

	config, err := clientcmd.BuildConfigFromFlags("", shared.ComponentKubeconfig(cluster.Kubelet))
	if err != nil {
		t.Fatal(err)
	}
	node, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []struct {
		verb, claim, subresource string
		want                     bool
	}{
		{"get", "mine", "", true},
		{"get", "other", "", false},
		{"list", "", "", false},
		{"update", "mine", "", false},
		{"patch", "mine", "", false},
		{"delete", "mine", "", false},
		{"update", "mine", "status", false},
		{"patch", "mine", "status", false},
		{"update", "mine", "binding", false},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "resource.k8s.io", Version: e.Version, Resource: "resourceclaims", Subresource: check.subresource,
				Namespace: e.namespace, Name: check.claim, Verb: check.verb,
			},
		}}
		review, err := node.AuthorizationV1().SelfSubjectAccessReviews().Create(e.ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != check.want {
			t.Errorf("%s claim %q %s: want allowed %t, got %t (%s)", check.verb, check.claim, check.subresource, check.want, review.Status.Allowed, review.Status.Reason)
		}
	}
	e.end("job")
	e.free("mine")
}

// TestUpDown starts a cluster beside the shared one and takes it down again,
// while pods run in it. Nothing of it must be left.
func TestUpDown(t *testing.T) {
	onRealNode(t)
	opts, err := options()
	if err != nil {
		t.Fatal(err)
	}
	opts.Dir += "-2"
	opts.SimulatedNodes = 2
	before := machine(t)
	c, err := cluster.New(opts, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(opts.Dir); err != nil {
			t.Error(err)
		}
	})
	if started, err := c.Up(t.Context()); err != nil || !started {
		t.Fatalf("want a new cluster, got %t, %v", started, err)
	}
	// A second time there is nothing to do.
	again, err := cluster.Open(opts.Dir, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if started, err := again.Up(t.Context()); err != nil || started {
		t.Fatalf("want a cluster that runs already, got %t, %v", started, err)
	}

	client, err := c.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, Client: client, ctx: t.Context(), namespace: "default"}
	class := "updown.example.com"
	if err := client.Replace(e.ctx, "deviceclasses", client.DeviceClass(class, cluster.DriverName)); err != nil {
		t.Fatal(err)
	}
	if err := client.Replace(e.ctx, "resourceslices", client.ResourceSlice("updown", cluster.DriverName, []string{"device"}, cluster.TypeLabel, "real")); err != nil {
		t.Fatal(err)
	}
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	job := e.job("job", 2, cluster.PodSpec("shared", ""), nil)
	e.running("job", 2)
	e.reservedFor("shared", job)
	if during := machine(t); during == before {
		t.Fatal("a cluster with pods leaves no traces: this test sees nothing")
	}

	if err := c.Down(e.ctx); err != nil {
		t.Fatal(err)
	}
	if after := machine(t); after != before {
		t.Errorf("the cluster left something behind:\n%s", difference(before, after))
	}
	entries, err := os.ReadDir(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "logs" {
			t.Errorf("%s was left", filepath.Join(opts.Dir, entry.Name()))
		}
	}
	if started, _ := c.Running(); started {
		t.Error("something of it runs")
	}
}
