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
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// faults interferes with the API calls of one component, to make races happen
// which otherwise are rare.
type faults struct {
	mutex sync.Mutex
	// before gets called for each request and may block.
	// If it returns an error, then the request fails without being sent.
	before func(req *http.Request) error
	// stalled is closed when watches may continue. It is nil while they are not
	// held back.
	stalled chan struct{}
	// stalledResource is the resource whose watches are held back.
	stalledResource string
	// reads has each request that got or listed something.
	reads []*read
}

// read is a request that got or listed something.
type read struct {
	url *url.URL
	// bytes is the size of the answer, as far as it was read.
	bytes atomic.Int64
}

func newFaults() *faults { return &faults{} }

func (f *faults) wrap(next http.RoundTripper) http.RoundTripper {
	return &faultyTransport{faults: f, next: next}
}

// reset removes all faults.
func (f *faults) reset() {
	f.setBefore(nil)
	f.resume()
}

func (f *faults) setBefore(before func(req *http.Request) error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.before = before
}

// stall holds back everything that the component would learn through a watch
// about a resource. Its cache becomes stale.
func (f *faults) stall(resource string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.stalled = make(chan struct{})
	f.stalledResource = resource
}

func (f *faults) resume() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.stalled != nil {
		close(f.stalled)
		f.stalled = nil
	}
}

// wait blocks while watches of the resource are held back.
func (f *faults) wait(ctx context.Context, resource string) {
	f.mutex.Lock()
	stalled := f.stalled
	if f.stalledResource != resource {
		stalled = nil
	}
	f.mutex.Unlock()
	if stalled == nil {
		return
	}
	select {
	case <-stalled:
	case <-ctx.Done():
	}
}

// resetReads forgets about reads so far.
func (f *faults) resetReads() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.reads = nil
}

// countReads returns how many requests got or listed something, and the size of the
// answers. The filter chooses among them.
func (f *faults) countReads(filter func(url *url.URL) bool) (requests int, bytes int64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, r := range f.reads {
		if filter(r.url) {
			requests++
			bytes += r.bytes.Load()
		}
	}
	return requests, bytes
}

type faultyTransport struct {
	faults *faults
	next   http.RoundTripper
}

func (t *faultyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.faults.mutex.Lock()
	before := t.faults.before
	t.faults.mutex.Unlock()
	if before != nil {
		if err := before(req); err != nil {
			return nil, err
		}
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if req.Method != http.MethodGet {
		return resp, nil
	}
	if req.URL.Query().Get("watch") != "" {
		parts := strings.Split(req.URL.Path, "/")
		resp.Body = &stallingBody{ReadCloser: resp.Body, ctx: req.Context(), faults: t.faults, resource: parts[len(parts)-1]}
		return resp, nil
	}
	r := &read{url: req.URL}
	resp.Body = &countingBody{ReadCloser: resp.Body, read: r}
	t.faults.mutex.Lock()
	t.faults.reads = append(t.faults.reads, r)
	t.faults.mutex.Unlock()
	return resp, nil
}

// WrappedRoundTripper is how client-go finds the transport underneath.
func (t *faultyTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// stallingBody is the body of the response to a watch.
type stallingBody struct {
	io.ReadCloser
	ctx      context.Context
	faults   *faults
	resource string
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// After the read, because it was already pending when the stall began.
	b.faults.wait(b.ctx, b.resource)
	return n, err
}

// countingBody is the body of the response to any other read.
type countingBody struct {
	io.ReadCloser
	read *read
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.bytes.Add(int64(n))
	return n, err
}

// isWriteOf returns true for a request that changes a resource of the given
// kind, like "/resourceclaims/".
func isWriteOf(req *http.Request, text string) bool {
	return req.Method != http.MethodGet && strings.Contains(req.URL.Path+"/", text)
}
