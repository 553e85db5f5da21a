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

	"github.com/stretchr/testify/assert"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestCanBeReserved(t *testing.T) {
	for numConsumers, expected := range map[int]bool{
		0: true,
		1: true,
		resourceapi.ResourceClaimReservedForMaxSize - 1: true,
		resourceapi.ResourceClaimReservedForMaxSize:     false,
		// Could be stored by an API server with a higher limit.
		resourceapi.ResourceClaimReservedForMaxSize + 1: false,
	} {
		t.Run(fmt.Sprintf("%d-consumers", numConsumers), func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{}
			for i := range numConsumers {
				name := fmt.Sprintf("pod-%d", i)
				claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)})
			}
			assert.Equal(t, expected, CanBeReserved(claim))
		})
	}
}
