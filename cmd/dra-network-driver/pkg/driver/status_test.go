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

package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
)

func serve(client *fake.Clientset, versions ...string) {
	// Other groups have better versions.
	lists := []*metav1.APIResourceList{{GroupVersion: "batch/v1"}, {GroupVersion: "apps/v1"}}
	for _, version := range versions {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: resourceapi.GroupName + "/" + version})
	}
	client.Discovery().(*fakediscovery.FakeDiscovery).Resources = lists
}

// get returns what the server has in the given version.
func get(t *testing.T, client *fake.Clientset, version string) []resourceapi.AllocatedDeviceStatus {
	t.Helper()
	object, err := client.Tracker().Get(resourceapi.SchemeGroupVersion.WithResource("resourceclaims").GroupResource().WithVersion(version), "default", "claim")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var claim resourceapi.ResourceClaim
	if err := json.Unmarshal(encoded, &claim); err != nil {
		t.Fatal(err)
	}
	return claim.Status.Devices
}

func deviceStatus(name string) resourceapi.AllocatedDeviceStatus {
	return resourceapi.AllocatedDeviceStatus{
		Driver: driverName, Pool: nodeName, Device: name,
		Conditions:  []metav1.Condition{{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonAttached, LastTransitionTime: metav1.Unix(1, 0)}},
		Data:        &runtime.RawExtension{Raw: []byte(`{"cniVersion":"1.1.0"}`)},
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.1/24"}, HardwareAddress: "02:00:00:00:00:01"},
	}
}

// TestApply checks the patches, with a server that merges them, for the versions
// of the API that releases from 1.32 on have.
func TestApply(t *testing.T) {
	for _, tc := range []struct {
		served   []string
		expected string
	}{
		{[]string{"v1alpha3", "v1beta1"}, "v1beta1"},
		{[]string{"v1beta1", "v1beta2"}, "v1beta2"},
		{[]string{"v1", "v1beta1", "v1beta2"}, "v1"},
	} {
		t.Run(tc.expected, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			meta := metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "uid"}
			other := deviceStatus("other")
			other.Driver = "other.example.com"
			var claim runtime.Object = &resourceapi.ResourceClaim{ObjectMeta: meta, Status: resourceapi.ResourceClaimStatus{Devices: []resourceapi.AllocatedDeviceStatus{other}}}
			if tc.expected != "v1" {
				// The same in the types of that version.
				encoded, err := json.Marshal(claim)
				if err != nil {
					t.Fatal(err)
				}
				claim = &resourcev1beta1.ResourceClaim{}
				if tc.expected == "v1beta2" {
					claim = &resourcev1beta2.ResourceClaim{}
				}
				if err := json.Unmarshal(encoded, claim); err != nil {
					t.Fatal(err)
				}
			}
			client := fake.NewClientset(claim)
			serve(client, tc.served...)
			applier := NewApplier(client, driverName, nodeName)

			for _, devices := range [][]resourceapi.AllocatedDeviceStatus{
				{deviceStatus("net-0"), deviceStatus("net-1")},
				{deviceStatus("net-1")},
				nil,
			} {
				if err := applier.Apply(ctx, "default", "claim", "uid", devices); err != nil {
					t.Fatal(err)
				}
				actions := client.Actions()
				patch := actions[len(actions)-1].(clienttesting.PatchActionImpl)
				if version := patch.GetResource().Version; version != tc.expected {
					t.Errorf("version %s, want %s", version, tc.expected)
				}
				if patch.Subresource != "status" || patch.PatchType != types.ApplyPatchType || !*patch.PatchOptions.Force || patch.PatchOptions.FieldManager != driverName+"/"+nodeName {
					t.Errorf("patch %+v", patch)
				}
				if len(devices) == 0 && !strings.Contains(string(patch.Patch), `"devices":[]`) {
					t.Errorf("the patch does not remove the devices: %s", patch.Patch)
				}
				if !strings.Contains(string(patch.Patch), `"uid":"uid"`) {
					t.Errorf("the patch would change another claim of the same name: %s", patch.Patch)
				}
				if claim, err := applier.Get(ctx, "default", "claim"); err != nil || claim.UID != "uid" || len(claim.Status.Devices) != 1+len(devices) {
					t.Errorf("got %+v, %v", claim, err)
				}
				stored := get(t, client, patch.GetResource().Version)
				if expected := append([]resourceapi.AllocatedDeviceStatus{other}, devices...); !reflect.DeepEqual(stored, expected) {
					t.Errorf("stored:\n got %+v\nwant %+v", stored, expected)
				}
			}
		})
	}
}

// noVersion is what a client makes of the answer of a server without that version of the API.
var noVersion = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resourceapi.Resource("resourceclaims"), "claim", "404 page not found", 0, true)

// TestIsGone checks which answers say that an object does not exist.
func TestIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":        {nil, false},
		"claim":          {apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "claim"), true},
		"wrapped":        {fmt.Errorf("claim: %w", apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "claim")), true},
		"other claim":    {apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "other"), false},
		"other resource": {apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), "claim"), false},
		"no version":     {noVersion, false},
		"no details":     {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}, false},
		"refused":        {errors.New("connection refused"), false},
	} {
		if got := isGone(tc.err, "resourceclaims", "claim"); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestApplyAfterUpgrade checks that a version which the server has no more is
// replaced by one that it has.
func TestApplyAfterUpgrade(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "uid"}})
	serve(client, "v1beta1")
	applier := NewApplier(client, driverName, nodeName)
	devices := []resourceapi.AllocatedDeviceStatus{deviceStatus("net-0")}
	client.PrependReactor("patch", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Version == "v1beta1" {
			return true, nil, noVersion
		}
		return false, nil, nil
	})
	// requests are those that were made since the last call.
	requests := func() (requests []string) {
		for _, action := range client.Actions() {
			requests = append(requests, action.GetVerb()+" "+action.GetResource().Resource)
		}
		client.ClearActions()
		return requests
	}
	for _, expected := range [][]string{
		{"get group", "patch resourceclaims", "get group"},
		{"patch resourceclaims", "get group"},
	} {
		if err := applier.Apply(ctx, "default", "claim", "uid", devices); !apierrors.IsNotFound(err) {
			t.Errorf("error %v", err)
		}
		if got := slices.DeleteFunc(requests(), func(r string) bool { return r == "get resource" }); !slices.Equal(got, expected) {
			t.Errorf("requests %q, want %q", got, expected)
		}
	}
	if _, err := applier.Get(ctx, "default", "other"); !isGone(err, "resourceclaims", "other") {
		t.Errorf("error %v", err)
	}
	if got := slices.DeleteFunc(requests(), func(r string) bool { return r == "get resource" }); !slices.Equal(got, []string{"get resourceclaims"}) {
		t.Errorf("requests for a claim that is gone: %q", got)
	}
	failing := errors.New("connection refused")
	client.PrependReactor("get", "group", func(clienttesting.Action) (bool, runtime.Object, error) { return failing != nil, nil, failing })
	for name, applier := range map[string]*Applier{"version is known": applier, "version is not known": NewApplier(client, driverName, nodeName)} {
		if err := applier.Apply(ctx, "default", "claim", "uid", devices); !errors.Is(err, failing) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	failing = nil
	serve(client, "v1")
	if err := applier.Apply(ctx, "default", "claim", "uid", devices); err != nil {
		t.Fatal(err)
	}
	if stored := get(t, client, "v1"); !reflect.DeepEqual(stored, devices) {
		t.Errorf("stored %+v", stored)
	}
	serve(client, "v2")
	if err := NewApplier(client, driverName, nodeName).Apply(ctx, "default", "claim", "uid", devices); err == nil || !strings.Contains(err.Error(), "has none of the versions [v1 v1beta2 v1beta1] of resource.k8s.io that this driver knows, but [v2]") {
		t.Errorf("error %v", err)
	}
}

// TestApplyDropped is about a server that has the feature disabled.
func TestApplyDropped(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	serve(client, "v1")
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourceapi.ResourceClaim{}, nil
	})
	applier := NewApplier(client, driverName, nodeName)
	if err := applier.Apply(ctx, "default", "claim", "uid", []resourceapi.AllocatedDeviceStatus{deviceStatus("net-0")}); !errors.Is(err, ErrStatusDropped) {
		t.Errorf("error %v", err)
	}
	if err := applier.Apply(ctx, "default", "claim", "uid", nil); err != nil {
		t.Errorf("nothing can be dropped, but %v", err)
	}
	// What others have is not what this driver wrote.
	for name, change := range map[string]func(*resourceapi.AllocatedDeviceStatus){
		"":       func(*resourceapi.AllocatedDeviceStatus) {},
		"driver": func(s *resourceapi.AllocatedDeviceStatus) { s.Driver = "other.example.com" },
		"pool":   func(s *resourceapi.AllocatedDeviceStatus) { s.Pool = "other" },
		"device": func(s *resourceapi.AllocatedDeviceStatus) { s.Device = "net-1" },
	} {
		stored := deviceStatus("net-0")
		change(&stored)
		client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Devices: []resourceapi.AllocatedDeviceStatus{stored}}}, nil
		})
		if err := applier.Apply(ctx, "default", "claim", "uid", []resourceapi.AllocatedDeviceStatus{deviceStatus("net-0")}); errors.Is(err, ErrStatusDropped) != (name != "") {
			t.Errorf("other %s: error %v", name, err)
		}
	}
}

func TestFieldManager(t *testing.T) {
	long1, long2 := fieldManager(driverName, strings.Repeat("n", 252)+"1"), fieldManager(driverName, strings.Repeat("n", 252)+"2")
	if long1 == long2 || len(long1) > 128 {
		t.Errorf("field managers %s and %s", long1, long2)
	}
	for length, kept := range map[int]bool{128: true, 129: false} {
		node := strings.Repeat("n", length-len(driverName+"/"))
		if manager := fieldManager(driverName, node); (manager == driverName+"/"+node) != kept {
			t.Errorf("field manager of %d bytes becomes %s", length, manager)
		}
	}
}
