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

// Package fairness has the limit for requests which the ResourceClaim controller makes
// because of what tenants write, like owner references and consumers of claims (KEP-5194).
package fairness

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Limiter limits how often something may be done per second, and how often at the
// same time. When more than that is wanted, each namespace gets the same share. No
// namespace can starve others, no matter how much it wants.
type Limiter struct {
	clock     clock.PassiveClock
	perSecond int

	mutex sync.Mutex
	// start is when the current interval started. Intervals are one
	// second long.
	start time.Time
	// accepted is the total number of requests accepted in the current
	// interval.
	accepted int
	// current and previous contain the namespaces that wanted something in the
	// current interval and the one before.
	current, previous map[string]*wanted
	// running is the number of requests in progress, runningIn the same for each
	// namespace.
	running   int
	runningIn map[string]int
}

const (
	// MaxRunning is how many requests may be in progress at the same time. Requests
	// may take long before they fail. All claims share the workers, of which there
	// are at least twice as many by default.
	MaxRunning = 5
	// MaxRunningPerNamespace is the same for one namespace.
	MaxRunningPerNamespace = 2
	// MaxDelay is the longest delay for a namespace which wants too much.
	MaxDelay = 30 * time.Second
)

// wanted is what one namespace wanted in one interval.
type wanted struct {
	accepted, rejected int
}

// NewLimiter returns a limiter which accepts that many requests per second in total.
func NewLimiter(clock clock.PassiveClock, perSecond int) *Limiter {
	return &Limiter{clock: clock, perSecond: perSecond, current: make(map[string]*wanted), runningIn: make(map[string]int)}
}

// TryAccept returns zero if the namespace may proceed. Otherwise it returns the
// delay after which trying again might be successful. The delays are
// different, so those who were rejected do not come back all at once.
func (l *Limiter) TryAccept(namespace string) time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.advance()

	w := l.current[namespace]
	if w == nil {
		w = &wanted{}
		l.current[namespace] = w
	}
	share := max(1, l.perSecond/l.active())
	if l.accepted < l.perSecond && w.accepted < share {
		l.accepted++
		w.accepted++
		return 0
	}
	w.rejected++
	return min(time.Duration(1+w.rejected/share)*time.Second, MaxDelay)
}

// Begin returns false if too many requests are in progress. Otherwise End must be called
// when the request is done.
func (l *Limiter) Begin(namespace string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.running >= MaxRunning || l.runningIn[namespace] >= MaxRunningPerNamespace {
		return false
	}
	l.running++
	l.runningIn[namespace]++
	return true
}

// End ends what was begun for the namespace.
func (l *Limiter) End(namespace string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.running--
	if l.runningIn[namespace]--; l.runningIn[namespace] == 0 {
		delete(l.runningIn, namespace)
	}
}

// InProgress returns the number of requests that have begun and not ended.
func (l *Limiter) InProgress() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.running
}

// advance starts a new interval if the current one is over.
func (l *Limiter) advance() {
	age := l.clock.Since(l.start)
	if age >= 0 && age < time.Second {
		return
	}
	l.previous = nil
	if age >= 0 && age < 2*time.Second {
		l.previous = l.current
	}
	l.start = l.clock.Now()
	l.accepted = 0
	l.current = make(map[string]*wanted)
}

// active returns the number of namespaces which recently wanted something.
func (l *Limiter) active() int {
	n := len(l.current)
	for namespace := range l.previous {
		if l.current[namespace] == nil {
			n++
		}
	}
	return n
}
