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
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

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
		calls  int
		qps    float32
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
			var requests atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					t.Errorf("expected HTTP/2, got %s", r.Proto)
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

			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if tcase.cancel {
				time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("test is over")) })
			}
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
