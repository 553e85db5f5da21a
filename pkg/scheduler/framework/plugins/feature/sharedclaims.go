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

package feature

import (
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// Carried has the values of those feature gates that upstream does not have. It is part of Features,
// which upstream changes with each release.
type Carried struct {
	EnableDRASharedClaims bool
	// EnableDRAReservedForWorkloads is false in a tree without that feature.
	EnableDRAReservedForWorkloads bool
}

// carriedGates set the values for other features than DRASharedClaims.
var carriedGates []func(c *Carried, featureGate featuregate.FeatureGate)

// NewCarried copies the current state of the feature gates.
func NewCarried(featureGate featuregate.FeatureGate) Carried {
	c := Carried{EnableDRASharedClaims: featureGate.Enabled(features.DRASharedClaims)}
	for _, set := range carriedGates {
		set(&c, featureGate)
	}
	return c
}
