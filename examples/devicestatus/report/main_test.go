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

package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const driver, other = "gpu.example.com", "nic.example.com"

// allocated returns a claim with two shares of a device of the driver, and a device of another
// driver, which has reported on it.
func allocated() *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "uid"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: driver, Pool: "node", Device: "gpu-0", ShareID: ptr.To(types.UID("a"))},
		{Request: "gpu", Driver: driver, Pool: "node", Device: "gpu-0", ShareID: ptr.To(types.UID("b"))},
		{Request: "nic", Driver: other, Pool: "node", Device: "nic-0"},
	}}}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: other, Pool: "node", Device: "nic-0"}}
	return claim
}

// TestReport checks that a report has each device of the driver and leaves what another one
// reported, and that the next report keeps the time of each condition.
func TestReport(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset(allocated())
	claims := client.ResourceV1().ResourceClaims("ns")
	reported := func() *resourceapi.ResourceClaim {
		if n, err := report(ctx, client, "ns", "claim", driver, driver); err != nil || n != 2 {
			t.Fatalf("%d devices, %v", n, err)
		}
		claim, err := claims.Get(ctx, "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}

	claim := reported()
	var got []string
	for i, device := range claim.Status.Devices {
		got = append(got, device.Device+ptr.Deref(device.ShareID, ""))
		for j := range device.Conditions {
			claim.Status.Devices[i].Conditions[j].LastTransitionTime = metav1.Unix(int64(1e9+i), 0)
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"gpu-0a", "gpu-0b", "nic-0"}) {
		t.Fatalf("reports on %q", got)
	}
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, device := range reported().Status.Devices {
		for _, condition := range device.Conditions {
			if want := metav1.Unix(int64(1e9+i), 0); !condition.LastTransitionTime.Equal(&want) {
				t.Errorf("%s: ready since %v, want %v", device.Device, condition.LastTransitionTime, want)
			}
		}
	}
}

// TestNothingToReport checks what is said where there is nothing to report on, or the API server
// does not take it.
func TestNothingToReport(t *testing.T) {
	pending := allocated()
	pending.Status = resourceapi.ResourceClaimStatus{}
	for want, claim := range map[string]*resourceapi.ResourceClaim{
		"is not allocated":             pending,
		"has no device of":             {ObjectMeta: pending.ObjectMeta, Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}},
		"DRAResourceClaimDeviceStatus": allocated(),
		`"claim" not found`:            {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "unrelated"}},
	} {
		client := fake.NewClientset(claim)
		client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &resourceapi.ResourceClaim{}, nil
		})
		if _, err := report(context.Background(), client, "ns", "claim", driver, driver); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
