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

package internal

import (
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Representable returns false if rounding what a request asks for up to the next step of a range leaves
// 64 bits. The result would be a negative capacity, of which every device has enough: the
// API has no upper limit for requests. No such request can be satisfied.
func Representable(requested *resource.Quantity, capacity resourceapi.DeviceCapacity) bool {
	if capacity.RequestPolicy == nil || capacity.RequestPolicy.ValidRange == nil {
		return true
	}
	validRange := capacity.RequestPolicy.ValidRange
	if validRange.Min == nil || validRange.Step == nil {
		return true
	}
	if !fits64Bits(*validRange.Min) || !fits64Bits(*validRange.Step) || validRange.Step.Value() == 0 {
		return false // The driver's mistake. Nobody can divide by such a step.
	}
	if requested == nil || requested.Cmp(*validRange.Min) < 0 {
		return true
	}
	if !fits64Bits(*requested) {
		return false
	}
	step := validRange.Step.Value()
	rest := (requested.Value() - validRange.Min.Value()) % step
	return rest == 0 || step-rest <= math.MaxInt64-requested.Value()
}

// fits64Bits returns true for what can be used as a number that is not negative.
func fits64Bits(q resource.Quantity) bool {
	return q.Sign() >= 0 && q.CmpInt64(math.MaxInt64) <= 0
}
