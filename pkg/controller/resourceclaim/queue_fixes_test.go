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

package resourceclaim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
)

// newQueueTest returns a controller without informers, for a test with fake time.
func newQueueTest(t *testing.T) *Controller {
	client := createTestClient()
	setupMetrics()
	ec, err := newFixesTestController(klog.Background(), client, informers.NewSharedInformerFactory(client, 0))
	require.NoError(t, err)
	t.Cleanup(func() {
		ec.queue.ShutDown()
		// Some goroutines of client-go only check once in a while whether they have to stop.
		time.Sleep(time.Minute)
	})
	return ec
}

// TestNamespacesTakeTurns ensures that a namespace does not wait for thousands of keys of another one, and that keys of
// one namespace keep their order.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ec := newQueueTest(t)
		const count = 1000
		for i := range count {
			ec.queue.Add(fmt.Sprintf("%sa/pod-%d", podKeyPrefix, i))
		}
		ec.queue.Add(claimKeyPrefix + "b/claim")
		ec.queue.Add(podKeyPrefix + "b/pod")
		ec.queue.Add(podKeyPrefix + "b/pod")
		ec.queue.Add(podKeyPrefix + "c/pod")
		assert.Equal(t, count+3, ec.queue.Len())
		var got []string
		for ec.queue.Len() > 0 {
			key, _ := ec.queue.Get()
			ec.queue.Done(key)
			got = append(got, key)
		}
		assert.Equal(t, []string{"pod:a/pod-0", "claim:b/claim", "pod:c/pod", "pod:a/pod-1", "pod:b/pod", "pod:a/pod-2", "pod:a/pod-3"}, got[:7])
		assert.Equal(t, "pod:a/pod-999", got[count+2])
	})
}

// TestRetriesOfNamespaces ensures that namespaces share the retries, and that the first one of a namespace does not
// wait for thousands of another one.
func TestRetriesOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newRateLimiter()
		last := func(namespace string, n int) (longest time.Duration) {
			for i := range n {
				longest = max(longest, limiter.When(fmt.Sprintf("%s%s/pod-%d", podKeyPrefix, namespace, i)))
			}
			return longest
		}
		assert.Less(t, last("a", retryBurst), time.Second, "a few at once")
		assert.InDelta(t, 990, last("a", 9900).Seconds(), 1, "ten per second")
		assert.Less(t, last("b", retryBurst/2), time.Second, "another namespace")
		assert.InDelta(t, 20, last("b", 100).Seconds(), 1, "half of ten per second")
		assert.InDelta(t, 990+20, last("a", 100).Seconds(), 1, "also for the first one")
		time.Sleep(30 * time.Second)
		assert.InDelta(t, 990+20-30+10, last("a", 100).Seconds(), 1, "the other one is done")
		time.Sleep(time.Hour)
		assert.Less(t, last("a", retryBurst), time.Second, "later")
	})
}
