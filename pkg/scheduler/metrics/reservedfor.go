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

package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
)

// ResourceClaimReleaseRequests counts how often the scheduler took away the reservation of a claim
// because its allocation did not fit anymore and was not in use.
var ResourceClaimReleaseRequests = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      SchedulerSubsystem,
	Name:           "resourceclaim_release_requests_total",
	Help:           "Number of ResourceClaims reserved for a workload whose release was requested because the allocation does not fit its pods anymore and no pod uses it.",
	StabilityLevel: metrics.ALPHA,
})

var registerReservedFor sync.Once

// RegisterReservedFor registers the metrics for the DRAReservedForWorkloads feature. It
// may be called more than once.
func RegisterReservedFor() {
	registerReservedFor.Do(func() {
		RegisterMetrics(ResourceClaimReleaseRequests)
	})
}
