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
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	// WorkloadLookups counts how often the API server had to be asked about the
	// object that a ResourceClaim is reserved for.
	WorkloadLookups = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: ResourceClaimSubsystem,
			Name:      "workload_lookups_total",
			Help: "Number of times that an object in status.reservedFor of a ResourceClaim other than a pod was looked up in the API server, categorized by the result. " +
				"Result can be 'active' (might start more pods), 'done' (does not exist anymore, is being deleted, or has finished), " +
				"'forbidden' (the controller is not allowed to get it), 'unknown_resource' (there is no such namespaced resource), or 'error'.",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"result"},
	)

	// WaitingWorkloadReservations tracks for how many objects in status.reservedFor
	// the reservation cannot be given up at the moment, and why.
	WaitingWorkloadReservations = metrics.NewGaugeVec(
		&metrics.GaugeOpts{
			Subsystem: ResourceClaimSubsystem,
			Name:      "workload_reservations_waiting",
			Help: "Number of objects other than pods in status.reservedFor of a ResourceClaim whose reservation is kept for some reason other than the object being in use, categorized by that reason. " +
				"Reason can be 'forbidden' (the controller is not allowed to get the object), 'unknown_resource' (there is no such namespaced resource), " +
				"'pods' (the object is done, but pods still use the claim), or 'pods_deleted_claim' (the same for a claim which is not reserved anymore and is being deleted).",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"reason"},
	)

	// WorkloadReleases counts how giving up the last reservation of a
	// ResourceClaim ended.
	WorkloadReleases = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: ResourceClaimSubsystem,
			Name:      "workload_releases_total",
			Help: "Number of times that a ResourceClaim was found to be allocated for a workload without being reserved for anything, categorized by the result. " +
				"Result can be 'deallocated' (no pod used it), or 'restored' (a pod used it, so it was reserved again).",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"result"},
	)
)

var registerWorkloadMetrics sync.Once

// RegisterWorkloadMetrics registers those metrics which are only needed when
// the DRAReservedForWorkloads feature is enabled.
func RegisterWorkloadMetrics() {
	registerWorkloadMetrics.Do(func() {
		legacyregistry.MustRegister(WorkloadLookups)
		legacyregistry.MustRegister(WaitingWorkloadReservations)
		legacyregistry.MustRegister(WorkloadReleases)
	})
}
