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

// Package devicestatus has tests of who may write which part of the status of a
// ResourceClaim (KEP-4817), and how much, against a real API server with etcd, RBAC, and
// tokens of service accounts which are bound to nodes and pods. It speaks to the server like any
// client, in each version of the API that it serves. The same tests hold for all
// releases: from 1.36 on for upstream's own checks.
package devicestatus

import (
	"testing"

	"k8s.io/kubernetes/test/integration/framework"
)

func TestMain(m *testing.M) {
	framework.EtcdMain(m.Run)
}
