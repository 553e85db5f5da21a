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

package reservedfor

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestChecker shows for each invariant that a history which violates it gets
// recognized, and that one which is fine does not.
func TestChecker(t *testing.T) {
	const bound = time.Minute
	start := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	ref := *reservedFor(jobs, "train", "job-1")

	claim := func(name, device string, anyPod bool, refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
		c := newClaim("ns", name, className, reservedFor(jobs, "train", ""))
		if device != "" {
			c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "req", Driver: driverName, Pool: "pool", Device: device}},
			}}
			if anyPod {
				c.Status.Allocation.ReservedForAnyPod = ptr.To(true)
			}
		}
		c.Status.ReservedFor = refs
		return c
	}
	pod := func(name string, phase v1.PodPhase) *v1.Pod {
		p := newPod("ns", name, "shared")
		p.UID = types.UID(name)
		p.Spec.NodeName = "worker-0"
		p.Status.Phase = phase
		return p
	}
	job := newJob("ns", "train", "shared", 1)
	job.UID = ref.UID
	podRef := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "a", UID: "a"}

	type step struct {
		obj     runtime.Object
		deleted bool
		after   time.Duration
	}
	for name, tc := range map[string]struct {
		history []step
		// order is the order in which the changes are seen if it differs from
		// the one in which they happened.
		order []int
		want  string
	}{
		"fine": {history: []step{
			{obj: job}, {obj: claim("shared", "", false)}, {obj: pod("a", v1.PodPending)},
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: pod("b", v1.PodRunning)},
			{obj: pod("a", v1.PodSucceeded)}, {obj: pod("b", ""), deleted: true}, {obj: job, deleted: true},
			{obj: claim("shared", "d0", true), after: bound / 2}, {obj: claim("shared", "", false), after: bound / 2},
			{obj: claim("other", "d0", true, ref)},
		}},
		"deallocated under a running pod": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("shared", "", false)},
		}, want: "was deallocated while pod a is running"},
		"removed under a running pod": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("shared", "d0", true, ref), deleted: true},
		}, want: "was deallocated while pod a is running"},
		"other device under a running pod": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("shared", "d1", true, ref)},
		}, want: "was deallocated while pod a is running"},
		"deallocated under a pod that was seen too late": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("shared", "", false)},
		}, order: []int{0, 2, 1}, want: "was deallocated while pod a is running"},
		"deallocated before the pod runs": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: claim("shared", "", false)}, {obj: pod("a", v1.PodRunning)},
		}, want: "pod a runs although claim shared is not allocated"},
		"deallocated after the pod ended": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: pod("a", v1.PodFailed)}, {obj: claim("shared", "", false)},
		}},
		"runs without claim": {history: []step{{obj: pod("a", v1.PodRunning)}}, want: "pod a runs without claim shared"},
		"runs although not listed": {history: []step{
			{obj: claim("shared", "d0", false, podRef)}, {obj: pod("a", v1.PodRunning)}, {obj: pod("b", v1.PodRunning)},
		}, want: "pod b runs although claim shared is not reserved for it"},
		"device in two claims": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: claim("other", "d0", true, ref)},
		}, want: "device d0 is allocated to claim shared and claim other"},
		"device in two claims one after the other": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: claim("shared", "d0", true), deleted: true}, {obj: claim("other", "d0", true, ref)},
		}},
		"not deallocated after deletion of the workload": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: job, deleted: true}, {obj: claim("shared", "d0", true, ref), after: 2 * bound},
		}, want: "has no user since"},
		"not deallocated after release": {history: []step{
			{obj: claim("shared", "d0", true)}, {obj: claim("other", "", false), after: 2 * bound},
		}, want: "has no user since"},
		"kept for a workload without pods": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: claim("other", "", false), after: 2 * bound},
		}},
		"kept for a pod without workload": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("other", "", false), after: 2 * bound},
		}},
		"list grows": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref, podRef, podRef, podRef)},
		}, want: "still lists pods"},
		"list grows after somebody else removed the reservation": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)},
			{obj: claim("shared", "d0", true)}, {obj: claim("shared", "d0", true, ref, podRef, podRef, podRef)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			now := start
			var records []record
			for i, s := range tc.history {
				now = now.Add(s.after)
				records = append(records, record{rv: uint64(i + 100), seen: now, deleted: s.deleted, obj: s.obj})
			}
			for i := range records {
				if tc.order != nil {
					i = tc.order[i]
				}
				h.records = append(h.records, records[i])
			}
			err := h.replay(bound).err()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("unexpected violation: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("expected a violation with %q, got: %v", tc.want, err)
			}
		})
	}

	t.Run("incomplete", func(t *testing.T) {
		h := &history{}
		h.add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "no number"}}, false, start)
		if h.replay(bound).err() == nil {
			t.Error("expected an error")
		}
	})
}
