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

// These releases have another manager, and its drivers are global.

package dra

import (
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type testManager = *ManagerImpl

// start creates a new manager with the state left behind by the previous one.
func (test *managerTest) start() {
	manager, err := NewManagerImpl(test.client, test.stateDir, "worker")
	test.ExpectNoError(err, "create manager")
	server, err := setupFakeDRADriverGRPCServer(test, false, nil, nil, nil)
	test.ExpectNoError(err, "start driver")
	test.Cleanup(server.teardownFn)
	for _, driverName := range []string{driverName, otherDriverName} {
		test.registerDriver(driverName, server.socketName)
	}
	test.manager = manager
	test.driver = server.server
}

var testPodCounter atomic.Uint32

// genTestPodWithClaims generates a different pod each time.
func genTestPodWithClaims(claimNames ...string) *v1.Pod {
	number := testPodCounter.Add(1)
	pod := genTestPod()
	pod.Name = fmt.Sprintf("test-pod-%d", number)
	pod.UID = types.UID(fmt.Sprintf("test-pod-uid-%d", number))
	pod.Spec.ResourceClaims = nil
	container := &pod.Spec.Containers[0]
	container.Resources.Claims = nil
	for _, claimName := range claimNames {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: claimName, ResourceClaimName: &claimName})
		container.Resources.Claims = append(container.Resources.Claims, v1.ResourceClaim{Name: claimName})
	}
	return pod
}
