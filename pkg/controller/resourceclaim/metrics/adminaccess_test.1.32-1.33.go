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
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1beta1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"
)

// TestAdminAccessMetrics covers names, labels and values.
func TestAdminAccessMetrics(t *testing.T) {
	claim := func(name string, allocated bool, adminAccess *bool) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
		c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "a"}, {Name: "b", AdminAccess: adminAccess}}
		if allocated {
			c.Status.Allocation = &resourceapi.AllocationResult{}
		}
		return c
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, c := range []*resourceapi.ResourceClaim{
		claim("a", false, nil), claim("b", true, nil), claim("c", true, ptr.To(false)), claim("d", true, ptr.To(true)),
	} {
		if err := indexer.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(ResourceClaimCreates)
	ResourceClaimCreates.Reset()
	registry.CustomMustRegister(&claimCollector{lister: resourcelisters.NewResourceClaimLister(indexer)})

	CountCreation(claim("e", false, nil), nil)
	CountCreation(claim("f", false, ptr.To(true)), nil)
	CountCreation(claim("g", false, ptr.To(true)), nil)
	CountCreation(claim("h", false, ptr.To(true)), errors.New("refused"))

	want := `# HELP resourceclaim_controller_creates_total [ALPHA] Number of requests to create a ResourceClaim, by outcome (success, failure) and by admin access
# TYPE resourceclaim_controller_creates_total counter
resourceclaim_controller_creates_total{admin_access="false",status="success"} 1
resourceclaim_controller_creates_total{admin_access="true",status="failure"} 1
resourceclaim_controller_creates_total{admin_access="true",status="success"} 2
# HELP resourceclaim_controller_resource_claims [ALPHA] Number of ResourceClaims, by allocation and by admin access
# TYPE resourceclaim_controller_resource_claims gauge
resourceclaim_controller_resource_claims{admin_access="false",allocated="false"} 1
resourceclaim_controller_resource_claims{admin_access="false",allocated="true"} 2
resourceclaim_controller_resource_claims{admin_access="true",allocated="true"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "resourceclaim_controller_creates_total", "resourceclaim_controller_resource_claims"); err != nil {
		t.Error(err)
	}
}
