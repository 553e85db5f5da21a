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

// Where to start with claims that several pods share (feature gate DRASharedClaims).
//
//	| file                       | what it answers                                                    |
//	|----------------------------|--------------------------------------------------------------------|
//	| sharedclaims.go            | read it first: which claims are shared, who may use what is in flight |
//	| sharedclaims_store.go      | who writes a claim, and how the changes of all pods become one write |
//	| sharedclaims_uncertain.go  | how long an answer of the API server may take, and what if none came |
//	| sharedclaims_preflight.go  | which pods need no PreBind (since 1.34)                            |
//	| sharedclaims_filter.go     | for which nodes Filter need not be asked, and where a claim is allocated |
//	| sharedclaims_sign.go       | which pods are alike (since 1.35)                                  |
//	| sharedclaims_mapped.go     | devices that come with resources of the node, and what else 1.37 added |
//	| sharedclaims_pending.go    | several pods for one allocation in flight (until 1.35)             |
//	| sharedclaims_compat.go     | how releases differ                                                |
//
// The states of an allocation, and what a pod does that needs the claim:
//
//	| allocation                          | PreFilter, Filter     | Reserve                | PreBind                         |
//	|-------------------------------------|-----------------------|------------------------|---------------------------------|
//	| none                                | allocates             | puts it in flight      | stores it with the reservation  |
//	| in flight because of another pod    | uses it               | counts as a user of it | whichever comes first stores it |
//	| perhaps stored, no answer came      | uses it               | counts as a user of it | waits until it is known         |
//	| stored, room for more reservations  | uses it               | –                      | adds a reservation, with others |
//	| stored, reserved already            | uses it               | –                      | is not called                   |
//	| stored, list full                   | refuses               | –                      | –                               |
//
// What is in flight remains so until it is stored, or until the last pod that counts as a user is
// unreserved and nothing can have been stored.
