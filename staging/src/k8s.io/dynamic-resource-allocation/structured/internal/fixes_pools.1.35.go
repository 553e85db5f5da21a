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

import draapi "k8s.io/dynamic-resource-allocation/api"

// PoolKey identifies a pool. Its name alone does not: drivers name their pools as they like, many after
// the node, and each has counters of its own.
func PoolKey(driver, pool draapi.UniqueString) draapi.UniqueString {
	return draapi.MakeUniqueString(driver.String() + "/" + pool.String())
}
