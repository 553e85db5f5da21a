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
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	otherJob := newJob("ns", "train", "shared", 1)
	otherJob.UID = "job-2"
	otherRef := *reservedFor(jobs, "train", "job-2")
	assigned := func(name string) *v1.Pod { return pod(name, v1.PodPending) }
	unassigned := func(name string) *v1.Pod {
		p := pod(name, v1.PodPending)
		p.Spec.NodeName = ""
		return p
	}
	owned := func(p *v1.Pod, kind, name, uid string) *v1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true)}}
		return p
	}
	deleted := func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		c.DeletionTimestamp = &metav1.Time{Time: start}
		return c
	}
	onOneNode := func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		c.Status.Allocation.NodeSelector = &v1.NodeSelector{}
		return c
	}
	annotated := func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		c.Annotations = map[string]string{releaseWhenIdle: "10s"}
		return c
	}
	deployment := newDeployment("ns", "serve", "shared", 1)
	deployment.UID = "deployment-1"
	deploymentRef := *reservedFor(deployments, "serve", "deployment-1")
	serve := func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		c.Spec.ReservedFor = (*resourceapi.ResourceClaimWorkloadReference)(reservedFor(deployments, "serve", ""))
		return c
	}
	replicaSet := func(owner string) *appsv1.ReplicaSet {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "serve-1", UID: "replicaset-1"}}
		if owner != "" {
			rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "serve", UID: types.UID(owner), Controller: ptr.To(true)}}
		}
		return rs
	}
	warning := &v1.Event{Type: v1.EventTypeWarning, Reason: "ClaimNotAllocated", InvolvedObject: v1.ObjectReference{UID: "a"}}
	var manyRefs []resourceapi.ResourceClaimConsumerReference
	for i := range maxEntries + 1 {
		manyRefs = append(manyRefs, *reservedFor(jobs, "train", types.UID(fmt.Sprintf("gone-%d", i))))
	}
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
		// excused are the steps that no component made.
		excused []int
		want    string
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
		"deallocated although a pod was on a node before the release": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: assigned("a")}, {obj: claim("shared", "d0", true)}, {obj: claim("shared", "", false)},
		}, want: "was deallocated although pod a was on a node before it was released"},
		"released and deallocated at once although a pod was on a node": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: assigned("a")}, {obj: claim("shared", "", false)},
		}, want: "was deallocated although pod a was on a node before it was released"},
		"deallocated while a pod gets bound": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: claim("shared", "d0", true)}, {obj: assigned("a")}, {obj: claim("shared", "", false)},
			{obj: warning}, {obj: job, after: 2 * bound},
		}},
		"stranded without a word": {history: []step{
			{obj: claim("shared", "", false)}, {obj: assigned("a")}, {obj: job, after: 2 * bound},
		}, want: "although its claim is not allocated, and nobody said so"},
		"stranded and helped": {history: []step{
			{obj: claim("shared", "", false)}, {obj: assigned("a")}, {obj: claim("shared", "d0", true, ref), after: bound / 2}, {obj: job, after: 2 * bound},
		}},
		"deleted and not gone because of a living workload": {history: []step{
			{obj: job}, {obj: deleted(claim("shared", "d0", true, ref))}, {obj: job, after: 2 * bound},
		}, want: "has no user since"},
		"deleted and deallocated, but not gone": {history: []step{
			{obj: deleted(claim("shared", "", false))}, {obj: job, after: 2 * bound},
		}, want: "has no user since"},
		"deleted and kept for a pod": {history: []step{
			{obj: deleted(claim("shared", "d0", true, ref))}, {obj: pod("a", v1.PodRunning)}, {obj: job, after: 2 * bound},
		}},
		"deallocated while the workload lives": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: owned(pod("a", v1.PodFailed), "Job", "train", "job-1")}, {obj: claim("shared", "", false)},
		}, want: "to which pod a belonged"},
		"deallocated while the second of two incarnations lives": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: job, deleted: true}, {obj: otherJob}, {obj: owned(assigned("b"), "Job", "train", "job-2")},
			{obj: assigned("a"), deleted: true}, {obj: assigned("b"), deleted: true}, {obj: claim("shared", "", false)},
		}, want: "to which pod b belonged"},
		"deallocated after both incarnations": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: job, deleted: true}, {obj: otherJob}, {obj: owned(assigned("b"), "Job", "train", "job-2")},
			{obj: assigned("a"), deleted: true}, {obj: assigned("b"), deleted: true}, {obj: otherJob, deleted: true}, {obj: claim("shared", "", false)},
		}},
		"deallocated while the workload lives because somebody released it": {history: []step{
			{obj: job}, {obj: claim("shared", "d0", true, ref)}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: owned(pod("a", v1.PodFailed), "Job", "train", "job-1")}, {obj: claim("shared", "d0", true)}, {obj: claim("shared", "", false)},
		}, excused: []int{4}},
		"deallocated on a node that was lost": {history: []step{
			{obj: job}, {obj: onOneNode(claim("shared", "d0", true, ref))}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: assigned("a"), deleted: true}, {obj: claim("shared", "", false)},
		}},
		"deallocated because it was idle": {history: []step{
			{obj: job}, {obj: annotated(claim("shared", "d0", true, ref))}, {obj: owned(assigned("a"), "Job", "train", "job-1")},
			{obj: assigned("a"), deleted: true}, {obj: annotated(claim("shared", "", false))},
		}},
		"deallocated while the Deployment of the ReplicaSet lives": {history: []step{
			{obj: deployment}, {obj: replicaSet("deployment-1")}, {obj: serve(claim("shared", "d0", true, deploymentRef))},
			{obj: owned(assigned("a"), "ReplicaSet", "serve-1", "replicaset-1")}, {obj: assigned("a"), deleted: true}, {obj: serve(claim("shared", "", false))},
		}, want: "to which pod a belonged"},
		"adopted on the way to the node": {history: []step{
			{obj: deployment}, {obj: replicaSet("")}, {obj: serve(claim("shared", "d0", true, deploymentRef))},
			{obj: owned(unassigned("a"), "ReplicaSet", "serve-1", "replicaset-1")}, {obj: replicaSet("deployment-1")},
			{obj: owned(assigned("a"), "ReplicaSet", "serve-1", "replicaset-1")}, {obj: assigned("a"), deleted: true}, {obj: serve(claim("shared", "", false))},
		}},
		"dead workload stays listed beside a living one": {history: []step{
			{obj: otherJob}, {obj: claim("shared", "d0", true, ref, otherRef)}, {obj: job, deleted: true, after: 2 * bound},
		}, want: "still lists jobs \"train\" (UID job-1)"},
		"dead workload stays listed alone because of a pod": {history: []step{
			{obj: claim("shared", "d0", true, ref)}, {obj: pod("a", v1.PodRunning)}, {obj: claim("other", "", false), after: 2 * bound},
		}},
		"dead workloads pile up": {history: []step{
			{obj: claim("shared", "d0", true, manyRefs...)},
		}, want: "entries for workloads"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			for _, i := range tc.excused {
				h.excuse(&metav1.ObjectMeta{ResourceVersion: fmt.Sprint(i + 100)})
			}
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
