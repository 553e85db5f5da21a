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

package resource

// adminAccessLabelKeys are the keys of the namespace label that allows admin
// access. All of them count on every release, so one set of manifests works
// everywhere and a namespace stays what it was when the cluster is upgraded. The first
// one is upstream's.
var adminAccessLabelKeys = []string{
	"resource.k8s.io/admin-access",        // upstream in 1.33
	"kubernetes.io/dra-admin-access",      // KEP-5018
	"resource.kubernetes.io/admin-access", // upstream since 1.34
}
