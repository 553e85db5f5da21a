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

package dynamicresources

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// allocatedDevicesLists are the ways to get the allocated devices.
var allocatedDevicesLists = map[string]func(*claimTracker) (sets.Set[structured.DeviceID], error){
	"devices": (*claimTracker).ListAllAllocatedDevices,
	"state": func(tracker *claimTracker) (sets.Set[structured.DeviceID], error) {
		state, err := tracker.GatherAllocatedState()
		if err != nil {
			return nil, err
		}
		return state.AllocatedDevices, nil
	},
}

func newStressTracker(ctx context.Context, claimsCache *assumecache.AssumeCache, factory informers.SharedInformerFactory) *claimTracker {
	return NewDRAManager(ctx, claimsCache, nil, factory).resourceClaimTracker
}
