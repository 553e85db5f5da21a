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

// workloadSubsystem is the same in all releases. Upstream's metrics of claims had it until 1.36.
const workloadSubsystem = "resourceclaim_controller"

var (
	// WorkloadLookups counts how often the API server had to be asked about the
	// object that a ResourceClaim is reserved for.
	WorkloadLookups = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: workloadSubsystem,
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
			Subsystem: workloadSubsystem,
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
			Subsystem: workloadSubsystem,
			Name:      "workload_releases_total",
			Help: "Number of times that a ResourceClaim was found to be allocated for a workload without being reserved for anything, categorized by the result. " +
				"Result can be 'deallocated' (no pod used it), or 'restored' (a pod used it, so it was reserved again).",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"result"},
	)

	// WorkloadReservationsRemoved counts why a reservation for something other
	// than a pod was not needed anymore.
	WorkloadReservationsRemoved = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: workloadSubsystem,
			Name:      "workload_reservations_removed_total",
			Help: "Number of objects other than pods for which a ResourceClaim was found to be not needed anymore, categorized by the reason. " +
				"Reason can be 'done' (the object does not exist anymore, is being deleted, or has finished, and no pod uses the claim), " +
				"'claim_deleted' (the claim is being deleted and no pod uses it), 'idle' (no pod has used the claim for as long as its annotation says), " +
				"or 'covered' (the claim is also reserved for a newer or living object).",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"reason"},
	)

	// WorkloadPodLists counts how often pods had to be listed.
	WorkloadPodLists = metrics.NewCounter(
		&metrics.CounterOpts{
			Subsystem:      workloadSubsystem,
			Name:           "workload_pod_lists_total",
			Help:           "Number of times that the pods of a namespace were listed to find out which ResourceClaims reserved for something other than a pod are not used anymore. One list covers all claims of the namespace.",
			StabilityLevel: metrics.ALPHA,
		},
	)

	// GeneratedClaims counts claims which were created for all pods of a consumer.
	GeneratedClaims = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: workloadSubsystem,
			Name:      "generated_claims_total",
			Help: "Number of times that a ResourceClaim was created from a ResourceClaimTemplate with spec.spec.reservedFor, for all pods of some object together, categorized by the result. " +
				"Result can be 'success' or 'failure'.",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"result"},
	)

	// StrandedPods counts pods which cannot run on the node that they were
	// assigned to.
	StrandedPods = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem: workloadSubsystem,
			Name:      "stranded_pods_total",
			Help: "Number of pods which were assigned to a node and cannot run there because of a ResourceClaim with spec.reservedFor, categorized by the reason. " +
				"Reason can be 'unallocated' (the claim is not allocated) or 'other_node' (the claim is allocated for other nodes). A pod is counted again once per hour and when the reason changes.",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"reason"},
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
		legacyregistry.MustRegister(WorkloadReservationsRemoved)
		legacyregistry.MustRegister(WorkloadPodLists)
		legacyregistry.MustRegister(StrandedPods)
		legacyregistry.MustRegister(GeneratedClaims)
	})
}
