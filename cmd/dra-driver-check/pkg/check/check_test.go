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

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"kubernetes-dra/cmd/internal/access"
)

func readyNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func sliceOf(node string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "driver", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "device"}},
		},
	}
}

// newEnv has a cluster of those objects, with a driver and a class.
func newEnv(kube []runtime.Object, resources ...runtime.Object) Env {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{resourceapi.SchemeGroupVersion})
	mapper.Add(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), meta.RESTScopeNamespace)
	client := fake.NewClientset(kube...)
	// Nobody else makes it.
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.ServiceAccount{}, nil
	})
	resources = append(resources, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}})
	dynamicClient := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, resources...)
	deleteCollections(&client.Fake, client.Tracker(), corev1.SchemeGroupVersion.WithKind("Pod"))
	deleteCollections(&dynamicClient.Fake, dynamicClient.Tracker(), resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"))
	return Env{
		Options: Options{Driver: "driver", DeviceClass: "class", Patience: time.Second, Template: template()},
		Kube:    client, Mapper: mapper, Dynamic: dynamicClient,
	}
}

// deleteCollections does what a fake client does not: it deletes all objects of a kind in a namespace.
func deleteCollections(client *clienttesting.Fake, tracker clienttesting.ObjectTracker, kind schema.GroupVersionKind) {
	client.PrependReactor("delete-collection", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !strings.EqualFold(action.GetResource().Resource, kind.Kind+"s") {
			return true, nil, nil
		}
		list, err := tracker.List(action.GetResource(), kind, action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, nil, meta.EachListItem(list, func(object runtime.Object) error {
			accessor, err := meta.Accessor(object)
			if err != nil {
				return err
			}
			return tracker.Delete(action.GetResource(), action.GetNamespace(), accessor.GetName())
		})
	})
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}
}

func open(t *testing.T, e Env) *Env {
	t.Helper()
	opened, err := Open(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func TestOpen(t *testing.T) {
	nowhere := sliceOf("a")
	nowhere.Spec.NodeName = nil
	cordoned := readyNode("a")
	cordoned.Spec.Unschedulable = true
	for name, test := range map[string]struct {
		env    Env
		change func(*Env)
		want   string
	}{
		"fine":          {env: newEnv([]runtime.Object{readyNode("a")}, sliceOf("a"))},
		"no class":      {env: newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")), change: func(e *Env) { e.DeviceClass = "other" }, want: "--device-class"},
		"no slices":     {env: newEnv(nil), want: "is it installed"},
		"network":       {env: newEnv([]runtime.Object{readyNode("a")}, nowhere), want: "--node"},
		"network, node": {env: newEnv([]runtime.Object{readyNode("a")}, nowhere), change: func(e *Env) { e.OnlyNodes = []string{"a"} }},
		"not ready":     {env: newEnv([]runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, sliceOf("a")), want: "no node with devices of driver driver is ready"},
		"cordoned":      {env: newEnv([]runtime.Object{cordoned}, sliceOf("a")), want: "no node with devices of driver driver is ready"},
		"gone, other":   {env: newEnv([]runtime.Object{readyNode("b")}, sliceOf("a"), sliceOf("b"))},
		"no such node":  {env: newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")), change: func(e *Env) { e.OnlyNodes = []string{"b"} }, want: "not found"},
		"no namespace":  {env: newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")), change: func(e *Env) { e.Namespace = "mine" }, want: "--namespace"},
		"no API":        {env: newEnv(nil), change: func(e *Env) { e.Mapper = meta.NewDefaultRESTMapper(nil) }, want: "dynamic resource allocation has to be enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.env)
			}
			e, err := Open(t.Context(), test.env)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("want an error with %q, got %v", test.want, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if list, err := e.Kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
				t.Errorf("the namespace was left: %v, %v", list.Items, err)
			}
		})
	}
}

// TestGuardedLabel has a policy that lets nobody label a namespace for admin access.
func TestGuardedLabel(t *testing.T) {
	e := newEnv([]runtime.Object{readyNode("a")}, sliceOf("a"))
	e.Kube.(*fake.Clientset).PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		namespace := action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
		if namespace.Labels[access.AdminLabels[0]] != "" {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, namespace.Name, errors.New("guarded"))
		}
		return false, nil, nil
	})
	if err := open(t, e).Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestVerdicts(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod", errors.New("no"))
	var order []string
	for name, test := range map[string]struct {
		run  func(c *Case)
		want Verdict
		text string
		do   string
	}{
		"pass":      {run: func(*Case) {}, want: Pass},
		"fail":      {run: func(c *Case) { c.Failf("broken %d", 1) }, want: Fail, text: "broken 1", do: "mend it"},
		"other do":  {run: func(c *Case) { c.Must(&Failure{What: "broken", Do: "look"}) }, want: Fail, text: "broken", do: "look"},
		"wrapped":   {run: func(c *Case) { c.Must(fmt.Errorf("pod: %w", Failf("broken"))) }, want: Fail, text: "broken", do: "mend it"},
		"skip":      {run: func(c *Case) { c.Skipf("no %s", "gate") }, want: Skipped, text: "no gate"},
		"forbidden": {run: func(c *Case) { c.Must(forbidden) }, want: Skipped, text: "you may not do this"},
		"error":     {run: func(c *Case) { c.Must(errors.New("no network")) }, want: Fail, text: "could not go on: no network", do: "--only check"},
		"too late":  {run: func(c *Case) { c.Until("it is done", func() error { return errors.New("not yet") }) }, want: Fail, text: "waited 1s for this: it is done. But: not yet", do: "mend it"},
		"at once": {run: func(c *Case) {
			c.Within(time.Hour, "it is done", func() error { return Failf("never") })
		}, want: Fail, text: "never", do: "mend it"},
		"clean up": {run: func(c *Case) {
			c.Cleanup(func(context.Context) error { order = append(order, "first"); return nil })
			c.Cleanup(func(context.Context) error { order = append(order, "second"); return errors.New("stuck") })
		}, want: Fail, text: "stuck", do: "--only check"},
		"clean up is forbidden": {run: func(c *Case) {
			c.Cleanup(func(context.Context) error { return forbidden })
		}, want: Fail, text: `it could not clean up: pods "pod" is forbidden`, do: "have the label dra-driver-check/run="},
		"skip, and clean up is forbidden": {run: func(c *Case) {
			c.Cleanup(func(context.Context) error { return forbidden })
			c.Skipf("no gate")
		}, want: Fail, text: "it could not clean up: ", do: "have the label dra-driver-check/run="},
		"clean up fails, of the driver": {run: func(c *Case) {
			c.Cleanup(func(context.Context) error { return &Failure{What: "pods stay", Do: "look"} })
		}, want: Fail, text: "pods stay", do: "look"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")))
			got, err := Run(t.Context(), e, []Check{{ID: "check", Do: "mend it", Run: test.run}}, func(Result) {})
			if err != nil || len(got) != 1 || got[0].Verdict != test.want || !strings.Contains(got[0].Reason, test.text) || !strings.Contains(got[0].Do, test.do) {
				t.Errorf("want %s with %q and %q, got %+v, %v", test.want, test.text, test.do, got, err)
			}
		})
	}
	if !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("cleaned up in the order %v", order)
	}
}

func TestNeeds(t *testing.T) {
	e := open(t, newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")))
	ran := false
	need := func(reason string) Need { return func(*Case) string { return reason } }
	got, err := Run(t.Context(), e, []Check{{ID: "check", Needs: []Need{need(""), need("no gate")}, Run: func(*Case) { ran = true }}}, func(Result) {})
	if err != nil || ran || len(got) != 1 || got[0].Verdict != Skipped || got[0].Reason != "no gate" {
		t.Errorf("want it to be skipped, got %t, %+v, %v", ran, got, err)
	}
}

// TestInterrupted has the user stop in the middle of a check. What it could not clean up is told.
func TestInterrupted(t *testing.T) {
	e := open(t, newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")))
	ctx, cancel := context.WithCancel(t.Context())
	cleaned := false
	got, err := Run(ctx, e, []Check{
		{ID: "first", Run: func(*Case) {}},
		{ID: "second", Run: func(c *Case) {
			c.Start("pod", Pod{}, c.NewClaim("claim"))
			c.Cleanup(func(ctx context.Context) error { cleaned = true; return ctx.Err() })
			c.Cleanup(func(context.Context) error { return errors.New("stuck") })
			cancel()
			c.Until("it never is", func() error { return errors.New("not yet") })
		}},
		{ID: "third", Run: func(*Case) { t.Error("it goes on") }},
	}, func(Result) {})
	if len(got) != 1 || got[0].ID != "first" {
		t.Errorf("want the result of the first one, got %+v", got)
	}
	if err == nil || !strings.Contains(err.Error(), "clean up after check second: stuck. Look for Jobs, pods and claims in namespace "+e.Namespace) {
		t.Errorf("want an error that says what is stuck, got %v", err)
	}
	if !cleaned {
		t.Error("the check did not clean up")
	}
	pods, err := e.Kube.CoreV1().Pods(e.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods are left: %v, %v", pods.Items, err)
	}
	claims, err := e.Resource("resourceclaims", e.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) > 0 {
		t.Errorf("claims are left: %v, %v", claims.Items, err)
	}
}

// TestExplain wants to see in a failure what a person would look for.
func TestExplain(t *testing.T) {
	e := open(t, newEnv([]runtime.Object{readyNode("a")}, sliceOf("a")))
	got, err := Run(t.Context(), e, []Check{{ID: "check", Run: func(c *Case) {
		pod := c.Start("pod", Pod{}, c.NewClaim("claim"))
		object, err := c.Kube.CoreV1().Pods(c.Namespace).Get(c.Context(), pod, metav1.GetOptions{})
		c.Must(err)
		object.Status.Phase = corev1.PodPending
		object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "cannot allocate"}}
		_, err = c.Kube.CoreV1().Pods(c.Namespace).UpdateStatus(c.Context(), object, metav1.UpdateOptions{})
		c.Must(err)
		_, err = c.Kube.CoreV1().Events(c.Namespace).Create(c.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "event"}, Type: corev1.EventTypeWarning, Reason: "FailedPrepareDynamicResources", Message: "the driver says no",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod}, Source: corev1.EventSource{Component: "kubelet"},
		}, metav1.CreateOptions{})
		c.Must(err)
		c.Failf("broken")
	}}}, func(Result) {})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got[0].Seen, "\n")
	for _, want := range []string{"pod check-pod: Pending; PodScheduled=False Unschedulable: cannot allocate", "claim check-claim: ", "event of kubelet about pod check-pod: FailedPrepareDynamicResources: the driver says no"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

func TestPodTemplate(t *testing.T) {
	c := &Case{Env: &Env{Options: Options{Template: template(), Probe: "test -e /dev/x"}, nodes: []string{"a"}, run: "run"}}
	terms := []corev1.NodeSelectorTerm{{}, {}}
	c.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	spec := c.podTemplate(Pod{Containers: 2, Template: "generated"}, []string{"one", "two"}).Spec
	if len(spec.InitContainers) != 1 || len(spec.Containers) != 2 || len(spec.ResourceClaims) != 3 {
		t.Fatalf("got %+v", spec)
	}
	for _, container := range append(spec.InitContainers, spec.Containers...) {
		if len(container.Resources.Claims) != 3 || !strings.Contains(container.Command[2], "test -e /dev/x") {
			t.Errorf("container %+v", container)
		}
		if (len(container.Ports) > 0) != (container.Name == "main") {
			t.Errorf("ports of container %s: %v", container.Name, container.Ports)
		}
	}
	if strings.Contains(spec.InitContainers[0].Command[2], stay) || !strings.Contains(spec.Containers[1].Command[2], stay) {
		t.Error("the init container has to end, and the others have to stay")
	}
	// Terms are alternatives: each has to name the node.
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 1 || term.MatchFields[0].Values[0] != "a" {
			t.Errorf("term %+v", term)
		}
	}
	if len(c.Template.Spec.Containers) != 1 || len(terms[0].MatchFields) > 0 {
		t.Error("the template was changed")
	}
}

func TestReport(t *testing.T) {
	results := []Result{
		{ID: "good", Asks: "Is it?", Verdict: Pass, Took: 1500 * time.Millisecond, Notes: []string{"note"}},
		{ID: "bad", Asks: "Is it?", Verdict: Fail, Reason: "broken", Seen: []string{"an event\x1b[2J"}, Do: "mend it"},
		{ID: "none", Asks: "Is it?", Verdict: Skipped, Reason: "no gate"},
	}
	var out strings.Builder
	if err := Print(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"good    pass      1.5s", "good: note", "bad FAILED: broken\n  seen: an event\ufffd[2J\n  what to do: mend it", "none is skipped: no gate", "1 passed, 1 failed, 1 skipped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	object := Object("driver", results).DeepCopyObject()
	if list := object.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()["results"].([]any); len(list) != 3 {
		t.Errorf("got %v", list)
	}
}
