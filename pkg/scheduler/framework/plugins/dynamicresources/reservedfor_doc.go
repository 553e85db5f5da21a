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

// Where to start with claims that are reserved for a workload (KEP-5194, feature gate
// DRAReservedForWorkloads). They are shared claims, see sharedclaims_doc.go for that part.
//
//	| file                    | what it answers                                                  |
//	|-------------------------|------------------------------------------------------------------|
//	| reservedfor.go          | read it first: what gets reserved, why a pod has to wait, and which events let it try again |
//	| reservedfor_owners.go   | to which workload a pod belongs                                  |
//	| reservedfor_ownerreader.go | how owners of any kind are read                               |
//	| reservedfor_unfit.go    | what becomes of an allocation that does not fit any more, or whose devices new pods must not use |
//	| reservedfor_taints.go   | the same for taints of devices (since 1.33)                      |
//	| reservedfor_held.go     | what a pod that waits is told about claims which hold devices without a pod |
//	| reservedfor_podgroups.go | PodGroups, and what 1.37 added                                  |
//	| reservedfor_compat.go   | how releases differ                                              |
//
// What a pod does with a claim that is allocated for any pod:
//
//	| reserved for                | the allocation fits            | it does not fit, or a device is broken             |
//	|-----------------------------|--------------------------------|----------------------------------------------------|
//	| the pod's workload          | uses it                        | waits until no pod uses it, then has it released   |
//	| another one                 | adds its own, up to the limit  | waits                                              |
//	|   and the pod has none      | waits for a pod of the workload | waits                                             |
//	| nobody (being released)     | adds its own: it is kept       | waits until it is deallocated                      |
//
// Releasing has two steps. The scheduler only takes the reservation away. The resourceclaim
// controller deallocates after a pause, or brings the reservation back if it finds a pod.
