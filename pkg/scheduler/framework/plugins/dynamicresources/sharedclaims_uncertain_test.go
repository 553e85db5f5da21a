//go:build go1.25

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

package dynamicresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	cgotesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// uncertainErrors do not tell whether something was stored.
var uncertainErrors = map[string]error{
	"connection-lost":   errors.New("unexpected EOF"),
	"deadline":          context.DeadlineExceeded,
	"timeout":           apierrors.NewTimeoutError("request did not complete within requested timeout", 1),
	"internal-error":    apierrors.NewInternalError(errors.New("etcdserver: request timed out")),
	"unavailable-error": apierrors.NewServiceUnavailable("apiserver is shutting down"),
}

func onlyStatus(write string, err error) error {
	if write == "update/status" {
		return err
	}
	return nil
}

// deviceOf returns the allocated device, empty if there is none.
func deviceOf(claim *resourceapi.ResourceClaim) string {
	if claim.Status.Allocation == nil {
		return ""
	}
	result := claim.Status.Allocation.Devices.Results[0]
	return result.Pool + "/" + result.Device
}

// TestUncertainWrite covers an allocation where the response of the API server got lost.
func TestUncertainWrite(t *testing.T) {
	for name, err := range uncertainErrors {
		// It was stored before the client looks.
		syncTest(t, "stored/"+name, func(tCtx ktesting.TContext) {
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
			cycles := []*podCycle{tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))}
			tc.api.lost = func(write string) error { return onlyStatus(write, err) }
			requireAllBound(tCtx, tc.bindAll(cycles))
			assert.Equal(tCtx, []string{"update", "update/status", "patch/status"}, tc.api.takeWrites())
			assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
			assert.Empty(tCtx, tc.listInFlightClaims())
		})

		// It gets stored after the client has looked.
		syncTest(t, "stored-later/"+name, func(tCtx ktesting.TContext) {
			other := st.FromResourceClaim(newSharedClaim()).Name("other").Obj()
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim(), other})
			cycle := tc.schedule(newSharingPod("pod-1"))
			var store func()
			tc.api.late = func(write string, s func()) error {
				store = s
				return onlyStatus(write, err)
			}
			require.NotNil(tCtx, cycle.bind(tCtx), "the result of the write is not known")
			tc.api.late = nil

			// Meanwhile, another claim needs a device.
			otherPod := newSharingPod("pod-2")
			otherPod.Spec.ResourceClaims[0].ResourceClaimName = &other.Name
			otherCycle, status := tc.preFilter(otherPod)
			require.Nil(tCtx, status)
			if len(otherCycle.filter()) > 0 {
				node := otherCycle.filter()[0]
				require.Nil(tCtx, tc.p.Reserve(tCtx, otherCycle.state, otherPod, node))
				require.Nil(tCtx, tc.p.PreBind(tCtx, otherCycle.state, otherPod, node))
			}
			store()
			synctest.Wait()
			claim := tc.claim()
			require.NotEmpty(tCtx, deviceOf(claim))
			otherClaim, err := tc.p.claimClient(namespace).Get(tCtx, other.Name, metav1.GetOptions{})
			tCtx.ExpectNoError(err)
			assert.NotEqual(tCtx, deviceOf(claim), deviceOf(otherClaim), "device was handed out twice")

			// Settled as soon as it is known.
			time.Sleep(2 * claimLookInterval) // fake time
			synctest.Wait()
			assert.Empty(tCtx, tc.listInFlightClaims())
			require.Nil(tCtx, tc.schedule(newSharingPod("pod-3")).bind(tCtx))
		})

		// It never gets stored.
		syncTest(t, "not-stored/"+name, func(tCtx ktesting.TContext) {
			waiting, bound := newSharingPod("waiting"), assigned(newSharingPod("bound"), nodeName)
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()}, waiting, bound)
			cycle := tc.schedule(newSharingPod("pod-1"))
			var fail atomic.Bool
			fail.Store(true)
			tc.api.before = func(write string, _ *resourceapi.ResourceClaim) error {
				if !fail.Load() {
					return nil
				}
				return onlyStatus(write, err)
			}
			// Looking at the claim does not work for a while.
			tc.client.PrependReactor("get", "resourceclaims", func(cgotesting.Action) (bool, runtime.Object, error) {
				return fail.Load(), nil, err
			})
			require.NotNil(tCtx, cycle.bind(tCtx))
			require.Len(tCtx, tc.listInFlightClaims(), 1)
			time.Sleep(2 * uncertainWriteTimeout) // fake time
			require.Len(tCtx, tc.listInFlightClaims(), 1, "nobody knows yet")
			require.False(tCtx, tc.takeActivated(waiting))
			fail.Store(false)
			time.Sleep(2*claimLookInterval + wakeUpPause)
			synctest.Wait()
			require.Empty(tCtx, tc.listInFlightClaims())
			require.True(tCtx, tc.takeActivated(waiting), "nothing else tells it that devices are free")
			require.False(tCtx, tc.takeActivated(bound))
			require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
		})

		// Another pod stores it.
		syncTest(t, "try-again/"+name, func(tCtx ktesting.TContext) {
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
			cycle := tc.schedule(newSharingPod("pod-1"))
			tc.api.before = func(write string, _ *resourceapi.ResourceClaim) error { return onlyStatus(write, err) }
			require.NotNil(tCtx, cycle.bind(tCtx))
			tc.api.before = nil
			require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
			require.Empty(tCtx, tc.listInFlightClaims())
		})
	}

	// The API server refused: nothing to wait for.
	for name, err := range map[string]error{
		"forbidden":         apierrors.NewForbidden(claimGVR.GroupResource(), sharedClaimName, errors.New("no such rule")),
		"too-many-requests": apierrors.NewTooManyRequests("try again later", 1),
		"not-found":         apierrors.NewNotFound(claimGVR.GroupResource(), sharedClaimName),
	} {
		syncTest(t, "refused/"+name, func(tCtx ktesting.TContext) {
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
			cycle := tc.schedule(newSharingPod("pod-1"))
			tc.api.before = func(write string, _ *resourceapi.ResourceClaim) error { return onlyStatus(write, err) }
			status := cycle.bind(tCtx)
			require.Equal(tCtx, fwk.Error, status.Code())
			require.Empty(tCtx, tc.listInFlightClaims())
		})
	}
}

// TestUncertainWriteReplaced covers an allocation which was not stored, and another one for the same
// claim which gets in flight while that is found out.
func TestUncertainWriteReplaced(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		pending := tc.p.pendingAllocations()
		other := newAllocatedSharedClaim()
		other.UID = tc.claim().UID
		start := time.Now()
		tc.client.PrependReactor("get", "resourceclaims", func(cgotesting.Action) (bool, runtime.Object, error) {
			if time.Since(start) >= uncertainWriteTimeout && pending.GetPendingAllocation(other.UID) != other.Status.Allocation {
				pending.MaybeRemoveClaimPendingAllocation(other.UID, true)
				assert.NoError(tCtx, pending.SignalClaimPendingAllocation(other.UID, other))
			}
			return false, nil, nil
		})
		cycle := tc.schedule(newSharingPod("pod-1"))
		err := uncertainErrors["timeout"]
		tc.api.before = func(write string, _ *resourceapi.ResourceClaim) error { return onlyStatus(write, err) }
		require.NotNil(tCtx, cycle.bind(tCtx))
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		time.Sleep(2 * uncertainWriteTimeout) // fake time
		synctest.Wait()
		require.Same(tCtx, other.Status.Allocation, pending.GetPendingAllocation(other.UID), "must remain in flight")
	})
}

// TestCallAPI covers what a real client and a server do to the time limit of a call.
func TestCallAPI(t *testing.T) {
	const timeout = 2 * time.Second
	type handler func(w http.ResponseWriter, r *http.Request, request int)
	answer := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"`+resourceapi.SchemeGroupVersion.String()+`","kind":"ResourceClaim","metadata":{"name":"claim"}}`)
	}
	for name, tcase := range map[string]struct {
		// calls are made one after the other with the same client.
		calls int
		qps   float32
		// cancel gives up when a request has arrived at the server.
		cancel bool
		handle handler
		// expectErr is part of the error of the last call.
		expectErr                     string
		expectUnsent, expectUncertain bool
	}{
		// The last call waits longer than the timeout until its turn comes.
		"held-back-by-client": {calls: 4, qps: 0.8, handle: func(w http.ResponseWriter, _ *http.Request, _ int) { answer(w) }},
		"held-back-by-server": {
			calls: 1,
			handle: func(w http.ResponseWriter, _ *http.Request, request int) {
				if request <= 3 {
					w.Header().Set("Retry-After", "1")
					http.Error(w, "too many requests", http.StatusTooManyRequests)
					return
				}
				answer(w)
			},
		},
		"no-answer": {
			calls:           1,
			handle:          func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() },
			expectErr:       "no answer from the API server within",
			expectUncertain: true,
		},
		"canceled": {
			calls: 1, cancel: true,
			handle:          func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() },
			expectErr:       "test is over",
			expectUncertain: true,
		},
		"no-server": {calls: 1, expectErr: "connection refused", expectUnsent: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			var requests atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					t.Errorf("expected HTTP/2, got %s", r.Proto)
				}
				if tcase.cancel {
					cancel(errors.New("test is over"))
				}
				tcase.handle(w, r, int(requests.Add(1)))
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			config := &restclient.Config{Host: server.URL, TLSClientConfig: restclient.TLSClientConfig{Insecure: true}, QPS: tcase.qps, Burst: 1}
			if tcase.qps == 0 {
				config.QPS = -1
			}
			if tcase.handle == nil {
				server.Close()
			}
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			pl := &DynamicResources{clientset: client}

			var unsent bool
			for range tcase.calls {
				_, unsent, err = callAPI(ctx, timeout, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
					return pl.claimClient("ns").Get(ctx, "claim", metav1.GetOptions{})
				})
			}
			if tcase.expectErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tcase.expectErr)
			require.Equal(t, tcase.expectUnsent, unsent)
			require.Equal(t, tcase.expectUncertain, isUncertain(writeError(err, unsent)))
		})
	}
}
