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

// testFeatures is whether admin access is on: nothing else can be turned on.
type testFeatures = bool

func adminFeatures(enabled bool) testFeatures { return enabled }

// fuzzFeatures draws what is on.
func fuzzFeatures(d *draws) testFeatures { return adminFeatures(!d.oneIn(8)) }

// allFuzzFeatures is everything.
var allFuzzFeatures = adminFeatures(true)

// requestedCounts is the number of devices of each alternative of a request.
func requestedCounts(request resourceapi.DeviceRequest) []int64 { return []int64{request.Count} }
