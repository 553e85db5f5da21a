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
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// How a device of TestRandom can be broken. The last two are effects of a taint, by the names of the
// API: 1.32 has no Go type for them.
const (
	whole      = ""
	missing    = "missing"
	noSchedule = "NoSchedule"
	noExecute  = "NoExecute"
)

// breakDevice lets a device vanish, taints it, or repairs it. An allocation that holds a broken
// device fits no new pod. It is given up when no pod uses it any more, and once for each time that a
// device broke.
func (r *randomRun) breakDevice(*slot) bool {
	r.Helper()
	name := fmt.Sprintf("device-%d", r.rand.Intn(randomDevices))
	state := []string{whole, whole, missing, noSchedule, noExecute}[r.rand.Intn(5)]
	if r.broken[name] == state {
		return false
	}
	if state != whole {
		// Before it can have any effect.
		r.history.breaks(device{r.ns + ".driver", "pool", name})
	}
	r.broken[name] = state
	r.publishDevices()
	return true
}

// repairDevices is for the next round.
func (r *randomRun) repairDevices() {
	r.Helper()
	clear(r.broken)
	r.publishDevices()
}

// publishDevices does what a driver does.
func (r *randomRun) publishDevices() {
	r.Helper()
	version := resourceapi.SchemeGroupVersion.Version
	var devices []any
	for i := range randomDevices {
		name := fmt.Sprintf("device-%d", i)
		state := r.broken[name]
		if state == missing {
			continue
		}
		entry := object{"name": name}
		attributes := entry
		if version == "v1beta1" {
			attributes = object{}
			entry["basic"] = attributes
		}
		if state != whole {
			// Dropped in releases in which taints are off by default.
			attributes["taints"] = []any{object{"key": "random.example.com/broken", "effect": state}}
		}
		devices = append(devices, entry)
	}
	slices := r.Dynamic().Resource(resourceapi.SchemeGroupVersion.WithResource("resourceslices"))
	slice, err := slices.Get(r, r.ns, metav1.GetOptions{})
	r.ExpectNoError(err, "get ResourceSlice")
	r.ExpectNoError(unstructured.SetNestedSlice(slice.Object, devices, "spec", "devices"), "set devices")
	_, err = slices.Update(r, slice, metav1.UpdateOptions{})
	r.ExpectNoError(err, "publish devices")
}

// throttle holds back what the scheduler writes, or no longer does.
func (r *randomRun) throttle(*slot) bool {
	r.Helper()
	r.throttled = !r.throttled
	if !r.throttled {
		r.scheduler.faults.setBefore(nil)
		return true
	}
	var turn sync.Mutex
	r.scheduler.faults.setBefore(func(req *http.Request) error {
		if req.Method == http.MethodGet {
			return nil
		}
		turn.Lock()
		defer turn.Unlock()
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	return true
}

// updateUnknowing changes a claim as a client does that was compiled with upstream's types.
func (r *randomRun) updateUnknowing(s *slot) bool {
	r.Helper()
	claims := r.Dynamic().Resource(claimsIn(versions[r.rand.Intn(len(versions))])).Namespace(r.ns)
	claim, err := claims.Get(r, s.name, metav1.GetOptions{})
	if !r.expected(err, "get claim") {
		return false
	}
	delete(nested(claim, "spec"), "reservedFor")
	if nested(claim, "status", "allocation") != nil {
		delete(nested(claim, "status", "allocation"), "reservedForAnyPod")
	}
	r.extra++
	if r.rand.Intn(2) == 0 {
		claim.SetLabels(map[string]string{"random": fmt.Sprint(r.extra)})
		_, err = claims.Update(r, claim, metav1.UpdateOptions{})
	} else {
		_, err = claims.UpdateStatus(r, claim, metav1.UpdateOptions{})
	}
	return r.expected(err, "update claim")
}

// createPodWithClaimTwice creates a pod of a workload that has two names for one claim.
func (r *randomRun) createPodWithClaimTwice(s *slot) bool {
	r.Helper()
	obj := r.workload(s)
	if obj == nil {
		return false
	}
	r.extra++
	pod := newPod(r.ns, fmt.Sprintf("twice-%d", r.extra), s.name)
	pod.Labels = map[string]string{"app": s.name}
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "again", ResourceClaimName: ptr.To(s.name)})
	_, err := r.Client().CoreV1().Pods(r.ns).Create(r, pod, metav1.CreateOptions{})
	return r.expected(err, "create pod")
}

// createOddlyOwnedPod creates a pod whose owner no object can be.
func (r *randomRun) createOddlyOwnedPod(s *slot) bool {
	r.Helper()
	r.extra++
	long := strings.Repeat("x", 1+r.rand.Intn(2000))
	pod := newPod(r.ns, fmt.Sprintf("odd-%d", r.extra), s.name)
	pod.Labels = map[string]string{"app": s.name}
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: s.name, UID: "u", Controller: ptr.To(true)}
	switch r.rand.Intn(4) {
	case 0:
		owner.Name = long
	case 1:
		owner.Kind = "J" + long
	case 2:
		owner.APIVersion = long + "/v1"
	default:
		// The garbage collector takes it for gone.
		owner.UID = "../u"
	}
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	_, err := r.Client().CoreV1().Pods(r.ns).Create(r, pod, metav1.CreateOptions{})
	return r.expected(err, "create pod with an odd owner")
}
