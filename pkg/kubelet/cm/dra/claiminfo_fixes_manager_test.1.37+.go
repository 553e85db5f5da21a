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

package dra

import (
	"time"
)

type testManager = *Manager

// start creates a new manager with the state left behind by the previous one.
func (test *managerTest) start() {
	manager, err := NewManager(test.Logger(), test.client, test.stateDir)
	test.ExpectNoError(err, "create manager")
	manager.initDRAPluginManager(test, getFakeNode, time.Second)
	test.Cleanup(manager.Stop)
	server, err := setupFakeDRADriverGRPCServer(test, false, nil, nil, nil, nil)
	test.ExpectNoError(err, "start driver")
	test.Cleanup(server.teardownFn)
	for _, driverName := range []string{driverName, otherDriverName} {
		test.ExpectNoError(manager.GetWatcherHandler().RegisterPlugin(test, driverName, server.socketName, []string{draPluginService}, nil), "register driver")
	}
	test.manager = manager
	test.driver = server.server
}
