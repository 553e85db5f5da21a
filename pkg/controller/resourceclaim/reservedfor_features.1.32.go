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

// 1.32 has no Features.

package resourceclaim

// Features defines which features should be enabled in the controller in
// addition to those which have a parameter of their own.
type Features struct {
	ReservedForWorkloads bool
}

// optional returns the last parameter of NewController if there is one.
func optional(features []Features) Features {
	if len(features) == 0 {
		return Features{}
	}
	return features[0]
}
