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
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// typedClaims is a client for claims like that of the scheduler: it neither reads nor writes JSON, so that
// parameters and data stay byte by byte what they were.
func (s *server) typedClaims(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &resourceapi.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *server) getTyped(t *testing.T, client rest.Interface, name string) *resourceapi.ResourceClaim {
	t.Helper()
	var claim resourceapi.ResourceClaim
	if err := client.Get().Namespace(s.namespace).Resource("resourceclaims").Name(name).Do(context.Background()).Into(&claim); err != nil {
		t.Fatal(err)
	}
	return &claim
}

// updateTyped changes the status of a claim.
func (s *server) updateTyped(t *testing.T, client rest.Interface, name string, change func(*resourceapi.ResourceClaimStatus)) error {
	t.Helper()
	claim := s.getTyped(t, client, name)
	change(&claim.Status)
	return client.Put().Namespace(s.namespace).Resource("resourceclaims").Name(name).SubResource("status").Body(claim).Do(context.Background()).Error()
}

// testParameters checks that drivers can write their status whatever way the parameters of a claim are
// written in. An allocation is immutable, and upstream compares it byte by byte; but the server writes
// JSON in its own way when it applies a patch, and so do clients.
func testParameters(t *testing.T, s *server) {
	plugin := s.newServiceAccount(t, s.newNamespace(t), "plugin", rule(driver, []string{driverA}, "associated-node:update", "associated-node:patch"))
	pod, scheduler, typed := plugin.inPod(t, "node-a"), s.typedClaims(t, s.admin), s.typedClaims(t, plugin.nodeConfig(t, "node-a"))
	for name, parameters := range map[string]string{
		"as the server writes it": `{"mode":"fast","vlan":7}`,
		"other order":             `{"vlan":7,"mode":"fast"}`,
		"spaces":                  `{"mode": "fast", "vlan": 7}`,
		"float":                   `{"mode":"fast","vlan":7.0}`,
		"not escaped":             `{"mode":"<fast>","vlan":7}`,
	} {
		set := func(status *resourceapi.ResourceClaimStatus, parameters string) {
			status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(parameters)
		}
		// allocated returns the name of a claim with such parameters.
		allocated := func(t *testing.T, version string) string {
			t.Helper()
			claim := s.newClaim(t, version, object{})
			if err := s.updateTyped(t, scheduler, claim.GetName(), func(status *resourceapi.ResourceClaimStatus) {
				config := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim}
				config.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: driverA}
				status.Allocation = &resourceapi.AllocationResult{
					NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}}},
					}}},
					Devices: resourceapi.DeviceAllocationResult{
						Results: []resourceapi.DeviceRequestAllocationResult{{Request: "req", Driver: driverA, Pool: "pool", Device: "device-0"}},
						Config:  []resourceapi.DeviceAllocationConfiguration{config},
					},
				}
				set(status, parameters)
			}); err != nil {
				t.Fatal(err)
			}
			return claim.GetName()
		}
		// expect checks how many devices were written, and that the parameters were not.
		expect := func(t *testing.T, name string, err error, devices int) {
			t.Helper()
			if err != nil {
				t.Errorf("this was refused: %v", err)
			}
			status := s.getTyped(t, scheduler, name).Status
			if got := string(status.Allocation.Devices.Config[0].Opaque.Parameters.Raw); got != parameters {
				t.Errorf("want the parameters %s, got: %s", parameters, got)
			}
			if len(status.Devices) != devices {
				t.Errorf("want %d devices, got: %+v", devices, status.Devices)
			}
		}
		for _, version := range s.versions {
			for _, m := range append(otherMethods(), writes()...) {
				t.Run(name+"/"+version+"/"+m.name, func(t *testing.T) {
					claim := s.get(t, version, allocated(t, version))
					status := runtime.DeepCopyJSON(claim.Object["status"].(object))
					status["devices"] = []any{a0}
					err := m.do(s.claims(pod, version), claim, status)
					expect(t, claim.GetName(), err, map[bool]int{false: 1, true: 0}[m.dryRun])
				})
			}
		}
		t.Run(name+"/typed update", func(t *testing.T) {
			claim := allocated(t, s.versions[0])
			expect(t, claim, s.updateTyped(t, typed, claim, func(status *resourceapi.ResourceClaimStatus) {
				status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driverA, Pool: "pool", Device: "device-0"}}
			}), 1)
		})
		t.Run(name+"/other parameters", func(t *testing.T) {
			// Whoever may do that by its permissions.
			err := s.updateTyped(t, scheduler, allocated(t, s.versions[0]), func(status *resourceapi.ResourceClaimStatus) {
				set(status, `{"mode":"slow","vlan":7}`)
			})
			expectInvalid(t, err, "status.allocation", metav1.CauseTypeFieldValueInvalid)
		})
	}
}
