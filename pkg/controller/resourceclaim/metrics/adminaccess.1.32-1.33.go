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

// 1.32 does not tell claims with admin access apart. These are the metrics of 1.34.

package metrics

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1beta1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"
)

var (
	// ResourceClaimCreates tracks the attempts to create claims.
	ResourceClaimCreates = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem:      ResourceClaimSubsystem,
			Name:           "creates_total",
			Help:           "Number of requests to create a ResourceClaim, by outcome (success, failure) and by admin access",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{"status", "admin_access"},
	)

	resourceClaimsDesc = metrics.NewDesc(
		metrics.BuildFQName("", ResourceClaimSubsystem, "resource_claims"),
		"Number of ResourceClaims, by allocation and by admin access",
		[]string{"allocated", "admin_access"}, nil,
		metrics.ALPHA, "",
	)
)

// HasAdminAccess returns true if a request of the claim has admin access.
func HasAdminAccess(claim *resourceapi.ResourceClaim) bool {
	for _, request := range claim.Spec.Devices.Requests {
		if ptr.Deref(request.AdminAccess, false) {
			return true
		}
	}
	return false
}

func label(value bool) string {
	if value {
		return "true"
	}
	return "false"
}

// CountCreation counts one attempt to create the claim.
func CountCreation(claim *resourceapi.ResourceClaim, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	ResourceClaimCreates.WithLabelValues(status, label(HasAdminAccess(claim))).Inc()
}

// claimCollector counts the claims in a cache when it is asked for them.
type claimCollector struct {
	metrics.BaseStableCollector
	lister resourcelisters.ResourceClaimLister
}

var _ metrics.StableCollector = &claimCollector{}

// DescribeWithStability implements [metrics.StableCollector].
func (c *claimCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- resourceClaimsDesc
}

// CollectWithStability implements [metrics.StableCollector].
func (c *claimCollector) CollectWithStability(ch chan<- metrics.Metric) {
	claims, err := c.lister.List(labels.Everything())
	if err != nil {
		// Cannot happen, it is a cache.
		return
	}
	type key struct{ allocated, adminAccess bool }
	counts := map[key]int{}
	for _, claim := range claims {
		counts[key{claim.Status.Allocation != nil, HasAdminAccess(claim)}]++
	}
	for key, count := range counts {
		ch <- metrics.NewLazyConstMetric(resourceClaimsDesc, metrics.GaugeValue, float64(count), label(key.allocated), label(key.adminAccess))
	}
}

var registerClaims sync.Once

// RegisterClaims makes the number of claims in a cache available, once in a process.
func RegisterClaims(lister resourcelisters.ResourceClaimLister) {
	registerClaims.Do(func() {
		legacyregistry.MustRegister(ResourceClaimCreates)
		legacyregistry.CustomMustRegister(&claimCollector{lister: lister})
	})
}

// unlabelled keeps what upstream counts under the same name without labels. The sum of the
// labelled ones is the same number.
var unlabelled = metrics.NewKubeRegistry()
