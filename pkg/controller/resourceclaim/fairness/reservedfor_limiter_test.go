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

package fairness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	testingclock "k8s.io/utils/clock/testing"
)

// TestLimiter checks that a namespace which wants too much does not affect
// others.
func TestLimiter(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	limiter := NewLimiter(clock, 20)
	accepted := map[string]int{}
	var delays []time.Duration
	for range 100 {
		for range 1000 {
			wait := limiter.TryAccept("greedy")
			if wait == 0 {
				accepted["greedy"]++
				continue
			}
			delays = append(delays, wait)
		}
		for i := range 9 {
			namespace := fmt.Sprintf("modest-%d", i)
			if limiter.TryAccept(namespace) == 0 {
				accepted[namespace]++
			}
		}
		clock.Step(time.Second)
	}
	for i := range 9 {
		// In the first second it was not known yet that others exist.
		assert.GreaterOrEqual(t, accepted[fmt.Sprintf("modest-%d", i)], 99, "accepted for modest-%d", i)
	}
	assert.LessOrEqual(t, accepted["greedy"], 20+99*2, "accepted for greedy namespace")
	assert.Equal(t, MaxDelay, slices.Max(delays))
	assert.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(delays)))), 10, "different delays")

	// On its own, it gets everything, but not more.
	clock.Step(time.Minute)
	n := 0
	for range 1000 {
		if limiter.TryAccept("greedy") == 0 {
			n++
		}
	}
	assert.Equal(t, 20, n)
	assert.LessOrEqual(t, len(limiter.current)+len(limiter.previous), 1, "namespaces in memory")
}
