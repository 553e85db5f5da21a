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

package structured

import resourceapi "k8s.io/api/resource/v1beta1"

type testFeatures = Features

func adminFeatures(enabled bool) testFeatures { return Features{AdminAccess: enabled} }

// fuzzFeatures draws what is on: mostly everything.
func fuzzFeatures(d *draws) testFeatures {
	features := allFuzzFeatures
	for _, feature := range []*bool{&features.AdminAccess, &features.DeviceTaints, &features.PartitionableDevices, &features.PrioritizedList} {
		*feature = !d.oneIn(8)
	}
	return features
}

// allFuzzFeatures is everything.
var allFuzzFeatures = Features{AdminAccess: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}

// requestedCounts is the number of devices of each alternative of a request.
func requestedCounts(request resourceapi.DeviceRequest) []int64 {
	counts := []int64{request.Count}
	for _, sub := range request.FirstAvailable {
		counts = append(counts, sub.Count)
	}
	return counts
}
