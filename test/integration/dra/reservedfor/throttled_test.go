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
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// throttledVariable names the file for what "make bench" measures with TestThrottled.
const throttledVariable = "RESERVEDFOR_THROTTLED_REPORT"

// throttledCase is a number of pods for a scheduler whose requests are held back.
type throttledCase struct {
	// qps is how many requests the scheduler may send in a second. Zero stands for any number.
	qps, pods int
	// shared is true if the pods share one claim that is reserved for their Job. Without
	// DRASharedClaims such pods have no claim.
	shared bool
	// disturbed says what the API server does, and disturb does it.
	disturbed string
	disturb   func(next http.RoundTripper) http.RoundTripper
	// rounds is how often both are measured.
	rounds int
}

func (tc throttledCase) String() string {
	what, limit := "a claim each", "no client limit"
	if tc.shared {
		what = "one claim, beside none"
	}
	if tc.qps > 0 {
		limit = fmt.Sprintf("%d requests/s", tc.qps)
	}
	if tc.disturbed != "" {
		limit += ", " + tc.disturbed
	}
	return fmt.Sprintf("%d pods with %s, %s, DRASharedClaims off and on", tc.pods, what, limit)
}

// throttledCases are measured by "make bench".
var throttledCases = []throttledCase{
	{qps: 5, pods: 400, rounds: 1},
	{qps: 10, pods: 400, rounds: 1},
	{qps: 50, pods: 400, rounds: 2},
	{pods: 400, rounds: 3},
	{qps: 50, pods: 2000, rounds: 1},
	{pods: 2000, rounds: 2},
	{qps: 5, pods: 1000, shared: true, rounds: 1},
	{qps: 10, pods: 1000, shared: true, rounds: 1},
	{qps: 50, pods: 1000, shared: true, rounds: 2},
	{pods: 1000, shared: true, rounds: 3},
	{qps: 50, pods: 400, disturbed: "429 for every second request", disturb: refuseEverySecond, rounds: 1},
	{qps: 50, pods: 400, disturbed: "API server away for 30 s", disturb: awayFor(5*time.Second, 30*time.Second), rounds: 1},
	{qps: 50, pods: 400, disturbed: "5 s for each write of a claim", disturb: slowWrites(5 * time.Second), rounds: 1},
}

// TestThrottled has a client that may send fewer requests than pods need at once: a write that
// waits in the client must not count as one whose fate is unknown. Then it would be looked up, with
// more of the same requests, and nothing would be bound any more.
func TestThrottled(t *testing.T) {
	tCtx := ktesting.Init(t)
	setGate(tCtx, true)
	c := startAPIServer(tCtx)
	c.createNodes()
	if file := os.Getenv(throttledVariable); file != "" {
		c.measureThrottled(file)
		return
	}
	// So slow that a write waits for longer than the time limit of a write, which is 30 seconds.
	tc := throttledCase{qps: 1, pods: 40}
	took, requests := c.throttled(tc, true)
	c.Logf("%s: %s, %d requests about claims", tc, took, requests)
	// Finalizer and status. With each look-up there would be more.
	if expected := int64(2 * tc.pods); requests != expected {
		c.Errorf("%d requests about %d claims, expected %d", requests, tc.pods, expected)
	}
}

// measureThrottled writes what the command "bench" calls comparisons.
func (c *cluster) measureThrottled(file string) {
	c.Helper()
	type comparison struct {
		What     string  `json:"what"`
		Base     float64 `json:"base"`
		Measured float64 `json:"measured"`
		Ratio    float64 `json:"ratio"`
		Goal     float64 `json:"goal"`
	}
	var comparisons []comparison
	for _, tc := range throttledCases {
		var seconds [2]float64
		for range tc.rounds {
			// In this order, both have the same of a trend.
			for _, on := range []int{0, 1, 1, 0}[:min(4, 2*tc.rounds)] {
				took, requests := c.throttled(tc, on == 1)
				c.Logf("%s: DRASharedClaims %t: %s, %d requests about claims", tc, on == 1, took, requests)
				seconds[on] += took.Seconds() / float64(max(1, min(2, tc.rounds)))
			}
		}
		pods := float64(tc.pods * tc.rounds)
		comparisons = append(comparisons, comparison{tc.String(), pods / seconds[0], pods / seconds[1], seconds[0] / seconds[1], 0.97})
	}
	data, err := json.Marshal(comparisons)
	c.ExpectNoError(err, "encode results")
	c.ExpectNoError(os.WriteFile(file, data, 0o644), "write results")
}

// throttled returns how long it takes until all pods are bound, and how many requests about
// claims the scheduler made.
func (c *cluster) throttled(tc throttledCase, sharedClaims bool) (took time.Duration, requests int64) {
	c.Helper()
	run(c.TContext, "pods", func(tCtx ktesting.TContext) {
		c := c.withTest(tCtx)
		featuregatetesting.SetFeatureGateDuringTest(c, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, sharedClaims && tc.shared)
		featuregatetesting.SetFeatureGateDuringTest(c, utilfeature.DefaultFeatureGate, features.DRASharedClaims, sharedClaims)
		ns := c.createNamespace()
		pods := c.podsOfThrottled(ns, tc, sharedClaims)

		var sent atomic.Int64
		scheduler := c.newScheduler()
		scheduler.qps = tc.qps
		scheduler.wrap = func(next http.RoundTripper) http.RoundTripper {
			if tc.disturb != nil {
				next = tc.disturb(next)
			}
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if strings.Contains(req.URL.Path, "/namespaces/"+ns+"/resourceclaims") {
					sent.Add(1)
				}
				return next.RoundTrip(req)
			})
		}
		scheduler.start()
		start := time.Now()
		c.createMany(len(pods), func(i int) error {
			_, err := c.Client().CoreV1().Pods(ns).Create(c, pods[i], metav1.CreateOptions{})
			return err
		})
		c.waitForBound(ns, len(pods))
		took, requests = time.Since(start), sent.Load()
		scheduler.stop()
		c.ExpectNoError(c.Client().CoreV1().Pods(ns).DeleteCollection(c, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, metav1.ListOptions{}), "delete pods")
	})
	return took, requests
}

// podsOfThrottled creates what the pods need, and returns them.
func (c *cluster) podsOfThrottled(ns string, tc throttledCase, sharedClaims bool) []*v1.Pod {
	c.Helper()
	claims := tc.pods
	if tc.shared {
		claims = 1
	}
	if tc.shared && !sharedClaims {
		claims = 0
	}
	c.createDevices(ns, min(claims, resourceapi.ResourceSliceMaxDevices))
	for i := resourceapi.ResourceSliceMaxDevices; i < claims; i += resourceapi.ResourceSliceMaxDevices {
		slice := newSlice(fmt.Sprintf("%s-%d", ns, i), ns+".driver", min(claims-i, resourceapi.ResourceSliceMaxDevices))
		slice.Spec.Pool.Name = fmt.Sprintf("pool-%d", i)
		_, err := resourceClient(c.Client()).ResourceSlices().Create(c, slice, metav1.CreateOptions{})
		c.ExpectNoError(err, "create ResourceSlice")
	}
	var ref *resourceapi.ResourceClaimConsumerReference
	owner := c.createJob(newJob(ns, "train", "shared", 0))
	if tc.shared {
		ref = reservedFor(jobs, owner.Name, owner.UID)
	}
	c.createMany(claims, func(i int) error {
		_, err := resourceClient(c.Client()).ResourceClaims(ns).Create(c, newClaim(ns, fmt.Sprintf("claim-%d", i), ns, ref), metav1.CreateOptions{})
		return err
	})
	var pods []*v1.Pod
	for i := range tc.pods {
		claim := i
		if tc.shared {
			claim = 0
		}
		pod := newPod(ns, fmt.Sprintf("pod-%d", i), fmt.Sprintf("claim-%d", claim))
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))}
		if claims == 0 {
			pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources.Claims = nil, nil
		}
		pods = append(pods, pod)
	}
	return pods
}

// waitForBound waits until so many pods of a namespace have a node.
func (c *cluster) waitForBound(ns string, count int) {
	c.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		pods, err := c.Client().CoreV1().Pods(ns).List(c, metav1.ListOptions{FieldSelector: "spec.nodeName!=", ResourceVersion: "0"})
		c.ExpectNoError(err, "list pods")
		if len(pods.Items) == count {
			return
		}
		if time.Since(start) > timeout {
			c.Fatalf("after %s, %d of %d pods are bound", timeout, len(pods.Items), count)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// refuseEverySecond is an API server that has too much to do.
func refuseEverySecond(next http.RoundTripper) http.RoundTripper {
	var n atomic.Int64
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet || n.Add(1)%2 == 0 {
			return next.RoundTrip(req)
		}
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return &http.Response{
			Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody, Request: req,
		}, nil
	})
}

// awayFor is an API server that cannot be reached for some time.
func awayFor(after, period time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		start := time.Now()
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if since := time.Since(start); since < after || since > after+period {
				return next.RoundTrip(req)
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		})
	}
}

// slowWrites is an API server that takes its time for each write of a claim.
func slowWrites(delay time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && isWriteOf(req, "/resourceclaims/") {
				select {
				case <-time.After(delay):
				case <-req.Context().Done():
					_ = resp.Body.Close()
					return nil, req.Context().Err()
				}
			}
			return resp, err
		})
	}
}
