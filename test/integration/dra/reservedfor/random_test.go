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
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
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
	// randomNodes is the number of additional nodes which may get lost. Each has
	// one device. More workloads, one of each kind, use only those.
	randomNodes = 3
	// maxLists is how many lists of pods one change of the status of a claim may take.
	maxLists = 3
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
	r := newRandomRun(c, ns, h, seed)

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
		r.waitForWayOut()
		r.endAll()
		for _, s := range r.slots {
			r.waitForFree(s)
		}
		r.waitForTenants()
		r.waitForNothingInFlight()
		r.resetNodes()
		r.repairDevices()
		if err := h.replay(bound).err(); err != nil {
			tCtx.Fatalf("after step %d of %s=%d: %v", i+1, seedVariable, seed, err)
		}
	}
	result := c.check(h)
	r.checkRequests(result.changes)
	tCtx.Logf("%d steps: %v", steps, r.done)
	tCtx.Logf("%d pods were on a node at least for a moment while their claim was not allocated", result.everStranded)
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
	// class is what its claim asks for.
	class string
	// idle claims are released also when the workload lives.
	idle bool
}

type randomRun struct {
	*cluster
	ns      string
	history *history
	rand    *rand.Rand
	slots   []*slot
	extra   int
	// attacker is a namespace whose pods have forged owners, tenants are those that come
	// and go.
	attacker string
	tenants  []string
	// lostKind is a kind of custom resources that comes and goes, nil if there is none.
	lostKind *schema.GroupVersionResource
	kinds    int
	// broken says how a device is.
	broken map[string]string
	// throttled is true while the scheduler's writes are held back.
	throttled bool
	// done counts operations which had something to do.
	done map[string]int
}

func newRandomRun(c *cluster, ns string, h *history, seed int64) *randomRun {
	c.Helper()
	r := &randomRun{cluster: c, ns: ns, history: h, rand: rand.New(rand.NewSource(seed)), attacker: c.createNamespace(), broken: map[string]string{}, done: map[string]int{}}
	kinds := []schema.GroupResource{jobs, deployments, statefulsets}
	for i := range randomSlots {
		r.slots = append(r.slots, &slot{
			name: fmt.Sprintf("w%d", i),
			kind: kinds[i%3],
			// Half of the claims name the UID once it is known.
			withUID: i >= randomSlots/2,
			class:   ns,
			idle:    i == 1,
		})
	}
	local := ns + "-local"
	c.createDevices(local, 0)
	for i, kind := range kinds {
		r.slots = append(r.slots, &slot{name: fmt.Sprintf("local%d", i), kind: kind, withUID: i == 2, class: local})
	}
	for i := range randomNodes {
		name := r.node(i)
		c.createNode(name)
		_, err := resourceClient(c.Client()).ResourceSlices().Create(c, onNode(newSlice(name, local+".driver", 1), name), metav1.CreateOptions{})
		c.ExpectNoError(err, "create ResourceSlice")
	}
	return r
}

// node returns the name of a node that may get lost.
func (r *randomRun) node(i int) string { return fmt.Sprintf("%s-%d", r.ns, i) }

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
	{"delete namespace", 4, (*randomRun).deleteTenant},
	{"create namespace", 3, (*randomRun).createTenant},
	{"cordon node", 3, (*randomRun).cordon},
	{"lose node", 2, (*randomRun).loseNode},
	{"forge owner", 4, (*randomRun).forgeOwner},
	{"install or uninstall kind", 2, (*randomRun).changeKinds},
	{"break or repair device", 6, (*randomRun).breakDevice},
	{"throttle scheduler", 2, (*randomRun).throttle},
	{"update claim unknowing", 4, (*randomRun).updateUnknowing},
	{"create pod with claim twice", 3, (*randomRun).createPodWithClaimTwice},
	{"create pod with odd owner", 3, (*randomRun).createOddlyOwnedPod},
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
	holdUp := r.holdUp()
	var err error
	switch s.kind {
	case jobs:
		obj := newJob(r.ns, s.name, s.name, pods)
		maps.Copy(obj.Spec.Template.Labels, holdUp)
		_, err = r.Client().BatchV1().Jobs(r.ns).Create(r, obj, metav1.CreateOptions{})
	case deployments:
		obj := newDeployment(r.ns, s.name, s.name, pods)
		obj.Spec.Template.Labels = maps.Clone(obj.Spec.Template.Labels)
		maps.Copy(obj.Spec.Template.Labels, holdUp)
		_, err = r.Client().AppsV1().Deployments(r.ns).Create(r, obj, metav1.CreateOptions{})
	default:
		obj := newStatefulSet(r.ns, s.name, s.name, pods)
		obj.Spec.Template.Labels = maps.Clone(obj.Spec.Template.Labels)
		maps.Copy(obj.Spec.Template.Labels, holdUp)
		_, err = r.Client().AppsV1().StatefulSets(r.ns).Create(r, obj, metav1.CreateOptions{})
	}
	return r.expected(err, "create workload")
}

// workload returns the object of a slot, nil if it does not exist.
func (r *randomRun) workload(s *slot) metav1.Object {
	r.Helper()
	var obj metav1.Object
	var err error
	get := func() {
		switch s.kind {
		case jobs:
			obj, err = r.Client().BatchV1().Jobs(r.ns).Get(r, s.name, metav1.GetOptions{})
		case deployments:
			obj, err = r.Client().AppsV1().Deployments(r.ns).Get(r, s.name, metav1.GetOptions{})
		default:
			obj, err = r.Client().AppsV1().StatefulSets(r.ns).Get(r, s.name, metav1.GetOptions{})
		}
	}
	get()
	// Without an answer, nothing is known. HTTP/2 ends a stream now and then on a busy machine, and client-go does
	// not try again then.
	if broken := (*url.Error)(nil); errors.As(err, &broken) {
		r.Logf("once more: %v", err)
		get()
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
	claim := newClaim(r.ns, s.name, s.class, reservedFor(s.kind, s.name, uid))
	if s.idle {
		claim.Annotations = map[string]string{releaseWhenIdle: "10s"}
	}
	_, err := resourceClient(r.Client()).ResourceClaims(r.ns).Create(r, claim, metav1.CreateOptions{})
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
	claim, err = resourceClient(r.Client()).ResourceClaims(r.ns).UpdateStatus(r, claim, metav1.UpdateOptions{})
	if err == nil {
		r.history.excuse(claim)
	}
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
	for _, tenant := range r.tenants {
		r.expected(r.Client().CoreV1().Namespaces().Delete(r, tenant, metav1.DeleteOptions{}), "delete namespace")
	}
	err := r.Client().CoreV1().Pods(r.attacker).DeleteCollection(r, metav1.DeleteOptions{}, metav1.ListOptions{})
	r.expected(err, "delete pods with forged owners")
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
		return claim.Status.Allocation == nil && len(claim.Status.ReservedFor) == 0 && claim.DeletionTimestamp == nil
	}).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(gomega.BeTrueBecause("claim %s has no user anymore and must be deallocated", s.name))
	// A claim which names the UID of a workload that is gone is of no use for the
	// next round.
	if s.withUID {
		err := resourceClient(r.Client()).ResourceClaims(r.ns).Delete(r, s.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		r.expected(err, "delete claim")
	}
}

// holdUp returns labels for pods. Most of them are empty, the others hold pods up on their way to a
// node: in Permit for as long as it likes, in PreBind for less than the pause between
// releasing and deallocating a claim.
func (r *randomRun) holdUp() map[string]string {
	switch r.rand.Intn(6) {
	case 0:
		return map[string]string{holdInPermit: fmt.Sprintf("%dms", 100+r.rand.Intn(7000))}
	case 1:
		return map[string]string{holdInPreBind: fmt.Sprintf("%dms", 100+r.rand.Intn(1500))}
	}
	return nil
}

// createTenant creates a namespace in which a pod uses a claim that is reserved for something that
// nobody knows, or may look at.
func (r *randomRun) createTenant(*slot) bool {
	r.Helper()
	const maxTenants = 2
	if len(r.tenants) >= maxTenants {
		return false
	}
	ns, err := r.Client().CoreV1().Namespaces().Create(r, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}, metav1.CreateOptions{})
	r.ExpectNoError(err, "create namespace")
	r.tenants = append(r.tenants, ns.Name)
	unknown := schema.GroupResource{Group: "example.com", Resource: "unknowns"}
	if r.lostKind != nil {
		unknown = r.lostKind.GroupResource()
	}
	_, err = resourceClient(r.Client()).ResourceClaims(ns.Name).Create(r, newClaim(ns.Name, "shared", r.ns, reservedFor(unknown, "x", "y")), metav1.CreateOptions{})
	r.ExpectNoError(err, "create claim")
	pod := newPod(ns.Name, "user", "shared")
	pod.Labels = r.holdUp()
	_, err = r.Client().CoreV1().Pods(ns.Name).Create(r, pod, metav1.CreateOptions{})
	r.ExpectNoError(err, "create pod")
	return true
}

func (r *randomRun) deleteTenant(*slot) bool {
	r.Helper()
	if len(r.tenants) == 0 {
		return false
	}
	tenant := r.tenants[r.rand.Intn(len(r.tenants))]
	return r.expected(r.Client().CoreV1().Namespaces().Delete(r, tenant, metav1.DeleteOptions{}), "delete namespace")
}

// waitForTenants waits until all namespaces of tenants are gone, which need their claims to be gone.
func (r *randomRun) waitForTenants() {
	r.Helper()
	for _, tenant := range r.tenants {
		eventually(r.TContext, func(tCtx ktesting.TContext) bool {
			_, err := r.Client().CoreV1().Namespaces().Get(tCtx, tenant, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(gomega.BeTrueBecause("namespace %s should be gone", tenant))
	}
	r.tenants = nil
}

// cordon cordons a node or makes it available again.
func (r *randomRun) cordon(*slot) bool {
	r.Helper()
	r.setCordoned(r.node(r.rand.Intn(randomNodes)), r.rand.Intn(2) == 0)
	return true
}

// loseNode deletes a node with its pods, or brings it back.
func (r *randomRun) loseNode(*slot) bool {
	r.Helper()
	name := r.node(r.rand.Intn(randomNodes))
	err := r.Client().CoreV1().Nodes().Delete(r, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		r.createNode(name)
		return true
	}
	return r.expected(err, "delete node")
}

// resetNodes makes all nodes available for the next round.
func (r *randomRun) resetNodes() {
	r.Helper()
	for i := range randomNodes {
		_, err := r.Client().CoreV1().Nodes().Get(r, r.node(i), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.createNode(r.node(i))
			continue
		}
		r.ExpectNoError(err, "get node")
		r.setCordoned(r.node(i), false)
	}
}

// forgeOwner creates a pod in another namespace that claims to be controlled by what controls a
// pod here, and another one in this namespace, which claims to be controlled by a former
// incarnation of a workload.
func (r *randomRun) forgeOwner(s *slot) bool {
	r.Helper()
	pod := r.anyPod(s)
	if pod == nil {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	r.extra++
	name := fmt.Sprintf("forged-%d", r.extra)
	_, err := resourceClient(r.Client()).ResourceClaims(r.attacker).Create(r, newClaim(r.attacker, s.name, r.ns, reservedFor(s.kind, s.name, "")), metav1.CreateOptions{})
	r.expected(err, "create claim")
	_, err = r.Client().CoreV1().Pods(r.attacker).Create(r, forgedPod(r.attacker, name, s.name, *owner), metav1.CreateOptions{})
	r.expected(err, "create pod with forged owner")

	owner.UID = uuid.NewUUID()
	forged := forgedPod(r.ns, name, s.name, *owner)
	_, err = r.Client().CoreV1().Pods(r.ns).Create(r, forged, metav1.CreateOptions{})
	return r.expected(err, "create pod with forged owner")
}

// changeKinds installs a kind of custom resources or removes it again. Nobody may look at its
// objects.
func (r *randomRun) changeKinds(*slot) bool {
	r.Helper()
	if r.lostKind != nil {
		err := r.APIExtensions().ApiextensionsV1().CustomResourceDefinitions().Delete(r, r.lostKind.GroupResource().String(), metav1.DeleteOptions{})
		r.lostKind = nil
		return r.expected(err, "delete CustomResourceDefinition")
	}
	r.kinds++
	gvr, _ := r.createKindIn(fmt.Sprintf("random-%d.example.com", r.kinds), "Training")
	r.lostKind = &gvr
	return true
}

// waitForWayOut waits until no pod is on a node without an allocated claim, unless somebody said why.
func (r *randomRun) waitForWayOut() {
	r.Helper()
	eventually(r.TContext, func(tCtx ktesting.TContext) []string {
		claims, err := resourceClient(r.Client()).ResourceClaims(r.ns).List(tCtx, metav1.ListOptions{})
		tCtx.ExpectNoError(err, "list claims")
		allocated := map[string]bool{}
		for _, claim := range claims.Items {
			allocated[claim.Name] = claim.Status.Allocation != nil
		}
		var stranded []string
		for _, pod := range r.podsOf(r.ns, "") {
			if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || isTerminal(&pod) || isRunning(&pod) {
				continue
			}
			for _, podClaim := range pod.Spec.ResourceClaims {
				name := ptr.Deref(podClaim.ResourceClaimName, "")
				if found, ok := allocated[name]; ok && !found && !r.explained(&pod, name) {
					stranded = append(stranded, pod.Name)
				}
			}
		}
		return stranded
	}).WithTimeout(timeout).WithPolling(200*time.Millisecond).Should(gomega.BeEmpty(), "pods on a node without an allocated claim")
}

// waitForNothingInFlight waits until the scheduler knows that nothing is being allocated: there
// are no pods.
func (r *randomRun) waitForNothingInFlight() {
	r.Helper()
	eventually(r.TContext, func(ktesting.TContext) []string {
		var inFlight []string
		for uid, name := range r.history.claimUIDs() {
			if r.holds.isInFlight(uid) {
				inFlight = append(inFlight, name)
			}
		}
		return inFlight
	}).WithTimeout(timeout).WithPolling(200*time.Millisecond).Should(gomega.BeEmpty(), "claims in flight in the scheduler")
}

// checkRequests checks that what the controller lists depends on how often claims change.
func (r *randomRun) checkRequests(changes int) {
	r.Helper()
	lists, _ := r.controller.faults.countReads(func(url *url.URL) bool {
		return strings.HasSuffix(url.Path, "/namespaces/"+r.ns+"/pods")
	})
	r.Logf("%d lists of pods for %d changes of claims", lists, changes)
	if lists > maxLists*changes {
		r.Errorf("the controller listed pods %d times for %d changes of claims, expected at most %d for each", lists, changes, maxLists)
	}
}
