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

package devicestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// serveVariable is the name of a file. If it is set, TestServe starts an API server
	// for somebody else, and writes into the file how to reach it.
	serveVariable = "DEVICESTATUS_SERVE"
	// serveGateVariable is "on" or "off".
	serveGateVariable = "DEVICESTATUS_SERVE_GATE"
	// servedDrivers is how many drivers there are. Each is on a node of its own, and has
	// a device there which is allocated.
	servedDrivers = 100
)

// TestServe is for the benchmark: two such servers, with and without the checks, are compared by one
// client which is all the drivers. It ends with its standard input.
func TestServe(t *testing.T) {
	name, gate := os.Getenv(serveVariable), os.Getenv(serveGateVariable)
	if name == "" {
		t.Skipf("%s is not set", serveVariable)
	}
	if gate != "on" && gate != "off" {
		t.Fatalf("%s is %q, want on or off", serveGateVariable, gate)
	}
	s := startServer(t, gate == "on")
	home := s.newNamespace(t)
	var drivers []object
	for i := range servedDrivers {
		driverName, node, pool, device := fmt.Sprintf("driver-%d.example.com", i), fmt.Sprintf("served-%d", i), "pool", "device"
		if _, err := s.client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// The same as the role in examples/devicestatus.
		account := s.newServiceAccount(t, home, fmt.Sprintf("driver-%d", i), rule(driver, []string{driverName}, "associated-node:update", "associated-node:patch"))
		claim := s.newClaim(t, s.versions[0], object{"allocation": object{
			"nodeSelector": selector(named(node)),
			"devices":      object{"results": []any{object{"request": "req", "driver": driverName, "pool": pool, "device": device}}},
		}})
		drivers = append(drivers, object{
			"name": driverName, "token": account.nodeConfig(t, node).BearerToken,
			"claim": claim.GetName(), "pool": pool, "device": device,
		})
	}
	data, err := json.Marshal(object{"host": s.admin.Host, "version": s.versions[0], "namespace": s.namespace, "drivers": drivers})
	if err != nil {
		t.Fatal(err)
	}
	// Whoever waits for it must not see half of it.
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
