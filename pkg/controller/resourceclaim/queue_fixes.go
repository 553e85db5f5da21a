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
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// This file is about namespaces that want more than the controller can do: its client has few requests per second.
// They take turns, also for what has to be tried again.

// newQueueConfig returns one for a queue in which namespaces take turns.
func newQueueConfig(name string) workqueue.TypedRateLimitingQueueConfig[string] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Queue: &fairQueue{keys: make(map[string][]string)}})
	return workqueue.TypedRateLimitingQueueConfig[string]{
		Name:          name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: name, Queue: queue}),
	}
}

// fairQueue has the keys of each namespace in their order. The next key is one of the namespace that
// has waited longest.
type fairQueue struct {
	keys map[string][]string
	// turns are the namespaces with keys.
	turns []string
	n     int
}

var _ workqueue.Queue[string] = &fairQueue{}

// Touch does nothing: the key keeps its place.
func (q *fairQueue) Touch(string) {}

// Push appends a key to those of its namespace.
func (q *fairQueue) Push(key string) {
	namespace := namespaceOf(key)
	if len(q.keys[namespace]) == 0 {
		q.turns = append(q.turns, namespace)
	}
	q.keys[namespace] = append(q.keys[namespace], key)
	q.n++
}

// Len returns the number of keys.
func (q *fairQueue) Len() int { return q.n }

// Pop removes and returns the next key.
func (q *fairQueue) Pop() string {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	keys := q.keys[namespace]
	key := keys[0]
	// The underlying array still has it.
	keys[0] = ""
	if keys = keys[1:]; len(keys) > 0 {
		q.keys[namespace] = keys
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.keys, namespace)
	}
	q.n--
	return key
}

// namespaceOf returns the namespace in a key of the queue.
func namespaceOf(key string) string {
	_, name, _ := strings.Cut(key, ":")
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}

const (
	// retryInterval and retryBurst are what the default rate limiter of a controller has: ten retries per second,
	// and more of them at once now and then.
	retryInterval = time.Second / 10
	retryBurst    = 100
)

// newRateLimiter returns the default one, except that the time does not grow up to 1000 seconds, and that namespaces
// share the overall rate. With the default one, each retry waits for all those before it: the first one of
// some namespace waits for a quarter of an hour when 10,000 pods of another one wait for room in a quota.
func newRateLimiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedMaxOfRateLimiter[string](
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, maxBackOff),
		&namespaceRateLimiter{next: make(map[string]time.Time)},
	)
}

// namespaceRateLimiter gives each namespace with retries the same share of them.
type namespaceRateLimiter struct {
	mutex sync.Mutex
	// next has when the next retry of a namespace comes. It is in the past if there were few.
	next map[string]time.Time
}

// When returns how long to wait before a key of the queue is tried again.
func (l *namespaceRateLimiter) When(key string) time.Duration {
	namespace := namespaceOf(key)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	earliest := now.Add(-(retryBurst - 1) * retryInterval)
	share := 1
	for other, next := range l.next {
		switch {
		case next.Before(earliest):
			delete(l.next, other)
		case next.After(now) && other != namespace:
			share++
		}
	}
	next, ok := l.next[namespace]
	if !ok {
		next = earliest
	}
	l.next[namespace] = next.Add(time.Duration(share) * retryInterval)
	return max(0, next.Sub(now))
}

// Forget does nothing: what a retry has taken of the share is not given back.
func (l *namespaceRateLimiter) Forget(string) {}

// NumRequeues returns zero because retries are not counted for each key.
func (l *namespaceRateLimiter) NumRequeues(string) int { return 0 }
