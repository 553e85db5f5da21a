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

package core

// Differs from newer releases: the evaluator does not look up the pods' claims.

import (
	quota "k8s.io/apiserver/pkg/quota/v1"
	api "k8s.io/kubernetes/pkg/apis/resource"
)

func newClaimEvaluator() quota.Evaluator { return NewResourceClaimEvaluator(nil, nil, nil) }

// deviceRequest is one for devices of a class.
func deviceRequest(class string, count int64) api.DeviceRequest {
	return api.DeviceRequest{
		Name: "req-0",
		Exactly: &api.ExactDeviceRequest{
			DeviceClassName: class,
			AllocationMode:  api.DeviceAllocationModeExactCount,
			Count:           count,
		},
	}
}
