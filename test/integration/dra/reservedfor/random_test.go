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
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

const (
	// randomSteps is how many steps one run has, shortRandomSteps how many with -short.
	randomSteps, shortRandomSteps = 1200, 450
	// stepsPerRound is after how many steps everything has to come to rest.
	stepsPerRound = 150
	// randomSlots is the number of workloads, each with its own claim.
	randomSlots = 6
	// randomDevices is less than that, so that claims have to wait for each other.
	randomDevices = 4
	// seedVariable is the environment variable for repeating a run.
	seedVariable = "RESERVEDFOR_SEED"
)

// TestRandom does things in random order and checks the invariants. The
// order of the steps depends only on the seed, what the components do at the
// same time does not.
func TestRandom(t *testing.T) {
	seed := time.Now().UnixNano()
	if value := os.Getenv(seedVariable); value != "" {
		var err error
		if seed, err = strconv.ParseInt(value, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	tCtx := ktesting.Init(t)
	tCtx.Logf("seed: %s=%d", seedVariable, seed)
	c := startCluster(tCtx)
	ns := c.createNamespace()
	h := observe(c.TContext, ns)
	c.createDevices(ns, randomDevices)
	// Some pods take longer to terminate than the controller would wait before it
	// deallocates.
	c.agent.setGrace(func(pod *v1.Pod) time.Duration {
		if pod.UID[0] < '4' {
			return quiet
		}
		return 0
	})
	r := &randomRun{cluster: c, ns: ns, rand: rand.New(rand.NewSource(seed)), done: map[string]int{}}
	for i := range randomSlots {
		r.slots = append(r.slots, &slot{
			name: fmt.Sprintf("w%d", i),
			kind: []schema.GroupResource{jobs, deployments, statefulsets}[i%3],
			// Half of the claims name the UID once it is known.
			withUID: i >= randomSlots/2,
		})
	}

	// If something hangs, then the reason may be that an invariant was violated.
	tCtx.Cleanup(func() {
		if tCtx.Failed() {
			tCtx.Logf("violations: %v", h.replay(bound).err())
		}
	})

	steps := randomSteps
	if testing.Short() {
		steps = shortRandomSteps
	}
	for i := range steps {
		r.step()
		if (i+1)%stepsPerRound != 0 {
			continue
		}
		// Everything ends, then everything must be free.
		r.endAll()
		for _, s := range r.slots {
			r.waitForFree(s)
		}
		if err := h.replay(bound).err(); err != nil {
			tCtx.Fatalf("after step %d of %s=%d: %v", i+1, seedVariable, seed, err)
		}
	}
	result := c.check(h)
	tCtx.Logf("%d steps: %v", steps, r.done)
	// A run in which nothing happens would not prove anything.
	for what, count := range map[string]int{"allocations": result.allocations, "releases": result.releases, "pods": result.runs} {
		if count < steps/stepsPerRound {
			tCtx.Errorf("only %d %s", count, what)
		}
	}
	for _, op := range operations {
		// With fewer steps, the rare ones may be missing.
		if r.done[op.name] == 0 && !testing.Short() {
			tCtx.Errorf("operation %q never did anything", op.name)
		}
	}
}

// slot is a workload and its claim. Both may or may not exist.
type slot struct {
	name    string
	kind    schema.GroupResource
	withUID bool
}

type randomRun struct {
	*cluster
	ns    string
	rand  *rand.Rand
	slots []*slot
	extra int
	// done counts operations which had something to do.
	done map[string]int
}

// operations are what a step can be. Each returns whether there was
// something to do.
var operations = []struct {
	name   string
	weight int
	run    func(r *randomRun, s *slot) bool
}{
	{"create workload", 14, (*randomRun).createWorkload},
	{"create claim", 14, (*randomRun).createSlotClaim},
	{"scale", 12, (*randomRun).scale},
	{"finish pod", 14, (*randomRun).finishPod},
	{"finish all pods", 6, (*randomRun).finishPods},
	{"delete pod", 8, (*randomRun).deletePod},
	{"force-delete pod", 5, (*randomRun).forceDeletePod},
	{"delete workload", 5, func(r *randomRun, s *slot) bool { return r.deleteWorkload(s, metav1.DeletePropagationBackground) }},
	{"delete workload in the foreground", 3, func(r *randomRun, s *slot) bool { return r.deleteWorkload(s, metav1.DeletePropagationForeground) }},
	{"orphan pods", 3, func(r *randomRun, s *slot) bool { return r.deleteWorkload(s, metav1.DeletePropagationOrphan) }},
	{"recreate workload", 5, (*randomRun).recreateWorkload},
	{"delete claim", 3, (*randomRun).deleteClaim},
	{"release claim", 3, (*randomRun).releaseClaim},
	{"create pod without workload", 3, (*randomRun).createExtraPod},
	{"suspend or resume", 3, (*randomRun).suspend},
	{"restart scheduler", 1, func(r *randomRun, _ *slot) bool { r.scheduler.restart(); return true }},
	{"restart controller", 1, func(r *randomRun, _ *slot) bool { r.controller.restart(); return true }},
	{"wait", 6, func(r *randomRun, _ *slot) bool {
		time.Sleep(time.Duration(r.rand.Intn(300)) * time.Millisecond)
		return true
	}},
}

// step picks operations until one had something to do.
func (r *randomRun) step() {
	r.Helper()
	total := 0
	for _, op := range operations {
		total += op.weight
	}
	for {
		n := r.rand.Intn(total)
		s := r.slots[r.rand.Intn(len(r.slots))]
		for _, op := range operations {
			if n -= op.weight; n >= 0 {
				continue
			}
			if op.run(r, s) {
				r.done[op.name]++
				return
			}
			break
		}
	}
}

// expected fails the test for errors other than those which are normal when
// several actors change the same objects.
func (r *randomRun) expected(err error, what string) bool {
	r.Helper()
	if err == nil {
		return true
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return false
	}
	r.ExpectNoError(err, what)
	return false
}

func (r *randomRun) createWorkload(s *slot) bool {
	r.Helper()
	pods := int32(1 + r.rand.Intn(4))
	var err error
	switch s.kind {
	case jobs:
		_, err = r.Client().BatchV1().Jobs(r.ns).Create(r, newJob(r.ns, s.name, s.name, pods), metav1.CreateOptions{})
	case deployments:
		_, err = r.Client().AppsV1().Deployments(r.ns).Create(r, newDeployment(r.ns, s.name, s.name, pods), metav1.CreateOptions{})
	default:
		_, err = r.Client().AppsV1().StatefulSets(r.ns).Create(r, newStatefulSet(r.ns, s.name, s.name, pods), metav1.CreateOptions{})
	}
	return r.expected(err, "create workload")
}

// workload returns the object of a slot, nil if it does not exist.
func (r *randomRun) workload(s *slot) metav1.Object {
	r.Helper()
	var obj metav1.Object
	var err error
	switch s.kind {
	case jobs:
		obj, err = r.Client().BatchV1().Jobs(r.ns).Get(r, s.name, metav1.GetOptions{})
	case deployments:
		obj, err = r.Client().AppsV1().Deployments(r.ns).Get(r, s.name, metav1.GetOptions{})
	default:
		obj, err = r.Client().AppsV1().StatefulSets(r.ns).Get(r, s.name, metav1.GetOptions{})
	}
	if !r.expected(err, "get workload") {
		return nil
	}
	return obj
}

func (r *randomRun) createSlotClaim(s *slot) bool {
	r.Helper()
	uid := types.UID("")
	if s.withUID {
		obj := r.workload(s)
		if obj == nil {
			return false
		}
		uid = obj.GetUID()
	}
	_, err := resourceClient(r.Client()).ResourceClaims(r.ns).Create(r, newClaim(r.ns, s.name, r.ns, reservedFor(s.kind, s.name, uid)), metav1.CreateOptions{})
	return r.expected(err, "create claim")
}

func (r *randomRun) patchWorkload(s *slot, patch string) bool {
	r.Helper()
	var err error
	switch s.kind {
	case jobs:
		_, err = r.Client().BatchV1().Jobs(r.ns).Patch(r, s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	case deployments:
		_, err = r.Client().AppsV1().Deployments(r.ns).Patch(r, s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	default:
		_, err = r.Client().AppsV1().StatefulSets(r.ns).Patch(r, s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	return r.expected(err, "patch workload")
}

func (r *randomRun) scale(s *slot) bool {
	r.Helper()
	field := "replicas"
	if s.kind == jobs {
		field = "parallelism"
	}
	return r.patchWorkload(s, fmt.Sprintf(`{"spec":{%q:%d}}`, field, r.rand.Intn(7)))
}

func (r *randomRun) suspend(s *slot) bool {
	r.Helper()
	return s.kind == jobs && r.patchWorkload(s, fmt.Sprintf(`{"spec":{"suspend":%t}}`, r.rand.Intn(2) == 0))
}

// pods lists pods which are not on their way out.
func (r *randomRun) pods(s *slot) []v1.Pod {
	r.Helper()
	var pods []v1.Pod
	for _, pod := range r.podsOf(r.ns, s.name) {
		if pod.DeletionTimestamp == nil && !isTerminal(&pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (r *randomRun) anyPod(s *slot) *v1.Pod {
	r.Helper()
	pods := r.pods(s)
	if len(pods) == 0 {
		return nil
	}
	return &pods[r.rand.Intn(len(pods))]
}

func (r *randomRun) outcome() v1.PodPhase {
	if r.rand.Intn(4) == 0 {
		return v1.PodFailed
	}
	return v1.PodSucceeded
}

func (r *randomRun) finishPod(s *slot) bool {
	r.Helper()
	pod := r.anyPod(s)
	if pod == nil {
		return false
	}
	r.agent.finish(pod, r.outcome())
	return true
}

func (r *randomRun) finishPods(s *slot) bool {
	r.Helper()
	pods := r.pods(s)
	for i := range pods {
		r.agent.finish(&pods[i], v1.PodSucceeded)
	}
	return len(pods) > 0
}

func (r *randomRun) deletePod(s *slot) bool {
	r.Helper()
	pod := r.anyPod(s)
	return pod != nil && r.expected(r.Client().CoreV1().Pods(r.ns).Delete(r, pod.Name, metav1.DeleteOptions{}), "delete pod")
}

func (r *randomRun) forceDeletePod(s *slot) bool {
	r.Helper()
	pod := r.anyPod(s)
	if pod == nil {
		return false
	}
	r.forceDelete(pod)
	return true
}

func (r *randomRun) deleteWorkload(s *slot, propagation metav1.DeletionPropagation) bool {
	r.Helper()
	options := metav1.DeleteOptions{PropagationPolicy: &propagation}
	var err error
	switch s.kind {
	case jobs:
		err = r.Client().BatchV1().Jobs(r.ns).Delete(r, s.name, options)
	case deployments:
		err = r.Client().AppsV1().Deployments(r.ns).Delete(r, s.name, options)
	default:
		err = r.Client().AppsV1().StatefulSets(r.ns).Delete(r, s.name, options)
	}
	return r.expected(err, "delete workload")
}

// recreateWorkload replaces a workload while pods of the old one may still run.
func (r *randomRun) recreateWorkload(s *slot) bool {
	r.Helper()
	return r.deleteWorkload(s, metav1.DeletePropagationBackground) && r.createWorkload(s)
}

func (r *randomRun) deleteClaim(s *slot) bool {
	r.Helper()
	return r.expected(resourceClient(r.Client()).ResourceClaims(r.ns).Delete(r, s.name, metav1.DeleteOptions{}), "delete claim")
}

// releaseClaim removes what the claim is reserved for, also while it is used.
func (r *randomRun) releaseClaim(s *slot) bool {
	r.Helper()
	claim, err := resourceClient(r.Client()).ResourceClaims(r.ns).Get(r, s.name, metav1.GetOptions{})
	if !r.expected(err, "get claim") || len(claim.Status.ReservedFor) == 0 {
		return false
	}
	claim.Status.ReservedFor = nil
	_, err = resourceClient(r.Client()).ResourceClaims(r.ns).UpdateStatus(r, claim, metav1.UpdateOptions{})
	return r.expected(err, "release claim")
}

func (r *randomRun) createExtraPod(s *slot) bool {
	r.Helper()
	r.extra++
	pod := newPod(r.ns, fmt.Sprintf("extra-%d", r.extra), s.name)
	// Found like the others when pods get deleted or finished.
	pod.Labels = map[string]string{"app": s.name}
	_, err := r.Client().CoreV1().Pods(r.ns).Create(r, pod, metav1.CreateOptions{})
	return r.expected(err, "create pod")
}

// endAll removes all workloads and pods. The claims remain.
func (r *randomRun) endAll() {
	r.Helper()
	for _, s := range r.slots {
		r.deleteWorkload(s, metav1.DeletePropagationBackground)
	}
	eventually(r.TContext, func(tCtx ktesting.TContext) []string {
		var remaining []string
		// Orphaned by a Deployment, they keep creating pods.
		err := r.Client().AppsV1().ReplicaSets(r.ns).DeleteCollection(tCtx, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{})
		r.expected(err, "delete ReplicaSets")
		for _, pod := range r.podsOf(r.ns, "") {
			remaining = append(remaining, fmt.Sprintf("pod %s: node %q, %s, deleted %v, finalizers %v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp, pod.Finalizers))
			// Also those which were orphaned and never ran.
			if pod.DeletionTimestamp == nil {
				err := r.Client().CoreV1().Pods(r.ns).Delete(tCtx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
				r.expected(err, "delete pod")
			}
		}
		for _, s := range r.slots {
			if obj := r.workload(s); obj != nil {
				remaining = append(remaining, fmt.Sprintf("%s %s: deleted %v, finalizers %v", s.kind, s.name, obj.GetDeletionTimestamp(), obj.GetFinalizers()))
			}
		}
		return remaining
	}).WithTimeout(timeout).WithPolling(200*time.Millisecond).Should(gomega.BeEmpty(), "remaining pods and workloads")
}

// waitForFree waits until the claim of a slot, if there is one, is deallocated.
func (r *randomRun) waitForFree(s *slot) {
	r.Helper()
	eventually(r.TContext, func(tCtx ktesting.TContext) bool {
		claim, err := resourceClient(r.Client()).ResourceClaims(r.ns).Get(tCtx, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true
		}
		tCtx.ExpectNoError(err, "get claim")
		return claim.Status.Allocation == nil && len(claim.Status.ReservedFor) == 0
	}).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(gomega.BeTrueBecause("claim %s has no user anymore and must be deallocated", s.name))
	// A claim which names the UID of a workload that is gone is of no use for the
	// next round.
	if s.withUID {
		err := resourceClient(r.Client()).ResourceClaims(r.ns).Delete(r, s.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		r.expected(err, "delete claim")
	}
}
