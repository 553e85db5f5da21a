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
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"
)

// apiCall is one call of a client. It knows what happens on the wire.
//
// A client holds requests back, because of its own limit or because the API server
// asked for that. With many pods that takes minutes, and each request is served
// in the end if nobody gives up. A time limit for all of that would be exceeded by most
// of the pods, again and again. Therefore the time only runs while the API server
// owes an answer.
type apiCall struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration

	mutex            sync.Mutex
	connecting, sent bool
	timer            *time.Timer
}

// callAPI invokes call and returns its result. The API server has the given time to answer each
// request. unsent is true if it is certain that no request reached an API server.
func callAPI[T any](ctx context.Context, timeout time.Duration, call func(ctx context.Context) (T, error)) (result T, unsent bool, err error) {
	c := &apiCall{timeout: timeout}
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	defer c.stopTimer()
	result, err = call(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { c.connect() },
		GotConn:              func(httptrace.GotConnInfo) { c.send() },
		GotFirstResponseByte: c.stopTimer,
	}))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return result, c.connecting && !c.sent, err
}

func (c *apiCall) connect() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.connecting = true
}

func (c *apiCall) send() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sent = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(c.timeout, func() {
		c.cancel(fmt.Errorf("no answer from the API server within %s", c.timeout))
	})
}

func (c *apiCall) stopTimer() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}
