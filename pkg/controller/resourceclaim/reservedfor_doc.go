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

package resourceclaim

// Where to start with claims that are reserved for a workload (KEP-5194, feature gate
// DRAReservedForWorkloads).
//
//	| file                     | what it answers                                                        |
//	|--------------------------|------------------------------------------------------------------------|
//	| reservedfor.go           | read it first: the two steps of a release, and what users are told     |
//	| retention                | a package: whether an entry in status.reservedFor is kept. A function of facts |
//	| reservedfor_review.go    | gathers those facts for a claim, and does what was decided             |
//	| reservedfor_users.go     | whether a pod uses a claim, according to informer and API server       |
//	| owners                   | a package, shared with the scheduler: which owner references are followed |
//	| reservedfor_pods.go      | to which workload a pod belongs, and whether a pod is stranded         |
//	| reservedfor_workloads.go | whether a workload can still start pods                                |
//	| reservedfor_finished.go  | how custom resources say that they have finished                       |
//	| reservedfor_lookup.go    | asks the API server for workloads, with limits                         |
//	| fairness                 | a package: the limit for requests, with a share for each namespace     |
//	| reservedfor_state.go     | what is remembered about a claim                                       |
//	| reservedfor_idle.go      | claims that users want to be released when idle                        |
//	| reservedfor_consumer.go  | for which controller of a pod a claim gets generated from a template   |
//	| reservedfor_generate.go  | generates it, once for all pods, and removes it at the end             |
//	| reservedfor_podgroups.go, others with a release in their name | how releases differ               |
//
// What retention.Decide returns for an entry, by what is known about its object. It asks for what is
// cheap first, and for the next fact only if it matters:
//
//	| object                    | a pod in the cache uses the claim | no pod in the cache            | no pod in the API server |
//	|---------------------------|-----------------------------------|--------------------------------|--------------------------|
//	| active                    | KeepActive                        | KeepActive                     | KeepActive               |
//	| active, claim deleted or idle | KeepForPods                   | FindStoredUsers                | Release                  |
//	| done                      | KeepForPods                       | FindStoredUsers, KeepUntilListed, KeepForNewPod | Release |
//	|   and another entry covers its pods | Release                 | release                        | Release                  |
//	| forbidden, unknown kind   | KeepInUse                         | KeepUnchecked                  | KeepUnchecked            |
//	|   and a later entry covers its pods | Release                 | release                        | Release                  |
//	| not looked up             | KeepInUse                         | GetStored                      | GetStored                |
//	| look-up deferred          | KeepInUse                         | KeepUntilChecked               | KeepUntilChecked         |
//	| look-up failed            | KeepInUse                         | KeepAfterError                 | KeepAfterError           |
//
// With several entries, KeepInUse is no answer: the state of each object is needed.
//
// The states of a claim between its last reservation and the end of its allocation:
//
//	| status.reservedFor | status.allocation | what happens next                                                |
//	|--------------------|-------------------|------------------------------------------------------------------|
//	| a workload         | for any pod       | reviewed when a pod ends, when the workload changes, and now and then |
//	| empty              | for any pod       | after a pause: a list of pods. One uses it: reserved again. Else deallocated |
//	| empty              | none              | nothing                                                          |
//
// A claim that gets generated for several pods, by the record in workloads.generated:
//
//	| record           | claim in the informer | what a pod that needs it does                                  |
//	|------------------|-----------------------|----------------------------------------------------------------|
//	| any              | marked for it         | uses it                                                        |
//	| none             | no, or another one    | creates it                                                     |
//	| creating         | no                    | waits for the pod that does                                    |
//	| created          | no                    | uses it; after a minute, all pods are processed again          |
//	| not before       | no, or another one    | waits; at that time one of those which wait creates it         |
