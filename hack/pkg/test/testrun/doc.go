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

// Package testrun runs Go tests of a Kubernetes tree and reports what came of
// them. It differs from plain "go test" in what it knows about a fork:
//
//   - A test of upstream that fails gets run again, at most twice, because some of
//     them are flaky also without any change. The first time, its sub-tests that passed
//     are left out. Each one is named at the end. A test of ours never gets a
//     second chance.
//   - A test of ours that was skipped is named at the end, with the reason.
//   - A feature gate which is off by default can be turned on for tests which do not
//     know about it, without touching them, and it is proved that it was on.
package testrun
