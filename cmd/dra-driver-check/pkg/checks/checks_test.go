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

package checks

import (
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
	"kubernetes-dra/cmd/internal/access"
)

// TestList keeps the list readable.
func TestList(t *testing.T) {
	ids := sets.New[string]()
	for _, c := range All() {
		if ids.Has(c.ID) {
			t.Errorf("%s is there twice", c.ID)
		}
		ids.Insert(c.ID)
		// It is in names of Jobs, and those in a label of their pods.
		if problems := validation.IsDNS1123Label(c.ID + "-claim"); len(problems) > 0 || len(c.ID) > 20 {
			t.Errorf("ID %s: %v", c.ID, problems)
		}
		if !strings.Contains(c.Asks, "?") || strings.Contains(c.Asks, "\n") || len(c.Asks) > 120 {
			t.Errorf("%s asks %q: that is no question in one line", c.ID, c.Asks)
		}
		if c.Do == "" || c.Run == nil {
			t.Errorf("%s does not say what to do", c.ID)
		}
	}
}

func slice(name, pool string, generation, count int64, devices ...string) resourceapi.ResourceSlice {
	node := "node"
	s := resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: count},
	}}
	for _, device := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: device})
	}
	return s
}

func TestPoolProblems(t *testing.T) {
	for name, test := range map[string]struct {
		slices []resourceapi.ResourceSlice
		want   []string
	}{
		"one":        {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 1, "x", "y")}},
		"two pools":  {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 1, "x"), slice("b", "other", 0, 1, "x")}},
		"two slices": {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 2, "x"), slice("b", "pool", 3, 2, "y")}},
		"missing":    {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 2, "x")}, want: []string{"pool pool does not have as many slices of generation 3"}},
		"too many":   {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 1, "x"), slice("b", "pool", 3, 1, "y")}, want: []string{"pool pool does not have as many slices of generation 3"}},
		"old":        {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 1, "x"), slice("b", "pool", 2, 1, "x")}, want: []string{"slice b of pool pool is of generation 2, and there is 3"}},
		"twice":      {slices: []resourceapi.ResourceSlice{slice("a", "pool", 3, 2, "x"), slice("b", "pool", 3, 2, "x")}, want: []string{"device pool/x is there twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := poolProblems(test.slices, sets.New("node"))
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
	if got := poolProblems([]resourceapi.ResourceSlice{slice("a", "pool", 1, 1)}, sets.New[string]()); len(got) != 1 || !strings.Contains(got[0], "node node, which does not exist") {
		t.Errorf("got %q", got)
	}
}

func TestStatusProblem(t *testing.T) {
	results := []resourceapi.DeviceRequestAllocationResult{{Driver: "driver", Pool: "pool", Device: "x"}}
	good := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Works", LastTransitionTime: metav1.Now()}
	bad := good
	bad.Reason = ""
	entry := func(device string, conditions ...metav1.Condition) []resourceapi.AllocatedDeviceStatus {
		return []resourceapi.AllocatedDeviceStatus{{Driver: "driver", Pool: "pool", Device: device, Conditions: conditions}}
	}
	network := entry("x", good)
	network[0].NetworkData = &resourceapi.NetworkDeviceData{}
	for name, test := range map[string]struct {
		devices []resourceapi.AllocatedDeviceStatus
		want    string
	}{
		"good":      {devices: entry("x", good)},
		"empty":     {devices: entry("x"), want: "says nothing"},
		"no reason": {devices: entry("x", bad), want: "no reason"},
		"network":   {devices: network, want: "networkData of device pool/x is empty"},
		"missing":   {want: `no entry for ["pool/x"]`},
	} {
		t.Run(name, func(t *testing.T) {
			err := statusProblem(results, test.devices)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
}

func TestLacking(t *testing.T) {
	const basic = "get resourceclaims/; get nodes/; list resourceslices/; watch resourceslices/; create resourceslices/; update resourceslices/; delete resourceslices/"
	const status = "; update resourceclaims/status; patch resourceclaims/status"
	for name, test := range map[string]struct {
		has  string
		want []string
	}{
		"reports nothing": {has: basic},
		"1.35":            {has: basic + status, want: []string{"associated-node:update", "associated-node:patch"}},
		"1.36":            {has: basic + status + "; associated-node:update resourceclaims/driver; associated-node:patch resourceclaims/driver"},
		"any node":        {has: basic + "; patch resourceclaims/status; arbitrary-node:patch resourceclaims/driver"},
		"no slices":       {has: "get resourceclaims/; get nodes/", want: []string{"list resourceslices", "watch resourceslices", "create resourceslices", "update resourceslices", "delete resourceslices"}},
		"nothing": {want: []string{"get resourceclaims", "get nodes", "list resourceslices", "watch resourceslices", "create resourceslices",
			"update resourceslices", "delete resourceslices"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lacking("driver", func(p access.Permission) bool {
				return slices.ContainsFunc(p.Verbs, func(verb string) bool {
					return slices.Contains(strings.Split(test.has, "; "), verb+" "+p.Resource+"/"+p.Subresource)
				})
			})
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

func TestKept(t *testing.T) {
	entry := func(reason string) []resourceapi.AllocatedDeviceStatus {
		return []resourceapi.AllocatedDeviceStatus{{Device: "x", Conditions: []metav1.Condition{{Type: "Ready", Reason: reason, Message: "at " + metav1.Now().String(), LastTransitionTime: metav1.Now()}}}}
	}
	before := entry("Works")
	if err := errors.Join(kept(before, entry("Works")), kept(nil, nil), kept(nil, before)); err != nil {
		t.Errorf("a driver may look again, and report late: %v", err)
	}
	if kept(before, entry("Broken")) == nil || kept(before, nil) == nil {
		t.Error("another status is not the same")
	}
	if before[0].Conditions[0].Message == "" {
		t.Error("what is compared was changed")
	}
}

func TestContainers(t *testing.T) {
	pod := func(restarts int32, state corev1.ContainerState, last *corev1.ContainerStateTerminated) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			ContainerID: fmt.Sprint("id-", restarts), RestartCount: restarts, State: state, LastTerminationState: corev1.ContainerState{Terminated: last},
		}}}}
	}
	well, badly := &corev1.ContainerStateTerminated{}, &corev1.ContainerStateTerminated{ExitCode: 1}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"first time":  {pod: pod(0, corev1.ContainerState{Terminated: well}, nil), want: "did not"},
		"in between":  {pod: pod(0, waiting, well), want: "did not"},
		"runs":        {pod: pod(1, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, well), want: "did not"},
		"ended again": {pod: pod(1, corev1.ContainerState{Terminated: well}, well)},
		"later":       {pod: pod(2, waiting, well)},
		"no device":   {pod: pod(1, corev1.ContainerState{Terminated: badly}, well), want: "ended with 1"},
		"failed":      {pod: pod(1, waiting, badly), want: "ended with 1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := startedAgain(test.pod)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
	if err := unchanged(pod(0, waiting, nil), pod(0, waiting, nil)); err != nil {
		t.Error(err)
	}
	if err := unchanged(pod(0, waiting, nil), pod(1, waiting, nil)); err == nil {
		t.Error("a container that was started again is another one")
	}
}

// TestTaintIsRemoved covers rules whose creation gets an error. They may be stored all the same. Those of others stay.
func TestTaintIsRemoved(t *testing.T) {
	resource := resourceapi.SchemeGroupVersion.WithResource("devicetaintrules")
	forbidden := apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no role"))
	for name, test := range map[string]struct {
		stored      bool
		created     error
		deleted     error
		wantVerdict check.Verdict
		wantReason  string
		wantRules   int
	}{
		"the answer gets lost":     {stored: true, created: errors.New("connection lost"), wantVerdict: check.Fail, wantReason: "connection lost"},
		"nobody may remove it":     {stored: true, deleted: forbidden, wantVerdict: check.Fail, wantReason: "delete DeviceTaintRules with the label dra-driver-check/run=", wantRules: 1},
		"there is nothing to undo": {created: forbidden, deleted: forbidden, wantVerdict: check.Skipped, wantReason: "you may not do this"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			kube := fake.NewClientset(node, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
			local := slice("slice", "node", 1, 1, "x")
			local.Spec.Driver = "driver"
			client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &local, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}},
				&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"dra-driver-check/run": "other"}}})
			nothing := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil }
			kube.PrependReactor("delete-collection", "*", nothing)
			client.PrependReactor("delete-collection", "*", nothing)
			client.PrependReactor("create", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				rule := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
				rule.SetName(rule.GetGenerateName() + "x")
				if test.stored {
					if err := client.Tracker().Create(resource, rule, ""); err != nil {
						return true, nil, err
					}
				}
				return true, rule, test.created
			})
			client.PrependReactor("delete-collection", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				if test.deleted != nil {
					return true, nil, test.deleted
				}
				// The client is locked.
				rules, err := client.Tracker().List(resource, resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule"), "")
				if err != nil {
					return true, nil, err
				}
				return true, nil, meta.EachListItem(rules, func(object runtime.Object) error {
					rule, err := meta.Accessor(object)
					if err != nil || !action.(clienttesting.DeleteCollectionAction).GetListRestrictions().Labels.Matches(labels.Set(rule.GetLabels())) {
						return err
					}
					return client.Tracker().Delete(resource, "", rule.GetName())
				})
			})
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{resourceapi.SchemeGroupVersion})
			mapper.Add(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), meta.RESTScopeNamespace)
			mapper.Add(resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule"), meta.RESTScopeRoot)
			env, err := check.Open(t.Context(), check.Env{
				Options: check.Options{Driver: "driver", DeviceClass: "class", Patience: 300 * time.Millisecond, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}},
				Kube:    kube, Dynamic: client, Mapper: mapper, Namespace: "mine",
			})
			if err != nil {
				t.Fatal(err)
			}
			results, err := check.Run(t.Context(), env, taintChecks[:1], func(check.Result) {})
			if err != nil || len(results) != 1 || results[0].Verdict != test.wantVerdict {
				t.Fatalf("want %s, got %+v, %v", test.wantVerdict, results, err)
			}
			if all := results[0].Reason + strings.Join(results[0].Notes, "\n"); !strings.Contains(all, test.wantReason) {
				t.Errorf("no %q in %q", test.wantReason, all)
			}
			list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1+test.wantRules {
				t.Errorf("want %d rules of the check and that of somebody else, got %v, %v", test.wantRules, list, err)
			}
		})
	}
}
