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

// The types of plugins are in another package than from 1.35 on.

package dynamicresources

import (
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	frameworkHandle      = framework.Handle
	frameworkPlugin      = framework.Plugin
	preFilterResult      = framework.PreFilterResult
	resourceClaimTracker = framework.ResourceClaimTracker
	sharedDRAManager     = framework.SharedDRAManager
	sharedLister         = framework.SharedLister
)

func newTestReactor(tracker cgotesting.ObjectTracker) cgotesting.ReactionFunc {
	return createReactor(tracker)
}
