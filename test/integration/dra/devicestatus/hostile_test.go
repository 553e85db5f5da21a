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
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// putStatus updates a claim's status with JSON as it is: other clients would decode the data
// and encode them again.
func (s *server) putStatus(config *rest.Config, claim *unstructured.Unstructured, devices string) error {
	claim = claim.DeepCopy()
	const placeholder = "devices as they are"
	claim.Object["status"].(object)["devices"] = placeholder
	raw, err := json.Marshal(claim.Object)
	if err != nil {
		return err
	}
	body := strings.Replace(string(raw), `"`+placeholder+`"`, devices, 1)
	return kubernetes.NewForConfigOrDie(config).Discovery().RESTClient().Put().
		AbsPath("apis", claim.GetAPIVersion(), "namespaces", claim.GetNamespace(), "resourceclaims", claim.GetName(), "status").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(context.Background()).Error()
}

// storedData are those of the first device, as they are stored.
func (s *server) storedData(t *testing.T, version, name string) string {
	t.Helper()
	var claim struct {
		Status struct {
			Devices []struct{ Data json.RawMessage }
		}
	}
	raw, err := s.client.Discovery().RESTClient().Get().AbsPath("apis", group, version, "namespaces", s.namespace, "resourceclaims", name).
		SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(context.Background())
	if err == nil {
		err = json.Unmarshal(raw, &claim)
	}
	if err != nil || len(claim.Status.Devices) == 0 {
		t.Fatalf("%v in: %s", err, raw)
	}
	return string(claim.Status.Devices[0].Data)
}

// testCorrections checks that a driver can correct its own data, however little that changes, and nobody
// else can.
func testCorrections(t *testing.T, s *server) {
	home := s.newNamespace(t)
	driverRule := func(name string) rbacv1.PolicyRule {
		return rule(driver, []string{name}, "associated-node:update", "associated-node:patch")
	}
	plugin := s.newServiceAccount(t, home, "plugin", driverRule(driverA)).nodeConfig(t, "node-a")
	other := s.newServiceAccount(t, home, "other", driverRule(driverB)).nodeConfig(t, "node-a")
	// What a driver wrote, and then its correction.
	for name, data := range map[string][2]string{
		"rounds alike": {`{"id":12345678901234567890}`, `{"id":12345678901234567891}`},
		"rounded":      {`{"id":12345678901234567890}`, `{"id":12345678901234567000}`},
		"key twice":    {`{"ip":"a","ip":"b"}`, `{"ip":"b"}`},
		"hides":        {`{"ip":"b"}`, `{"ip":"a","ip":"b"}`},
		"not UTF-8":    {`{"a":"` + "\xff" + `"}`, `{"a":"` + "\uFFFD" + `"}`},
	} {
		for _, version := range s.versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				devices := func(data string) string {
					return fmt.Sprintf(`[{"driver":%q,"pool":"pool","device":"device-0","data":%s}]`, driverA, data)
				}
				claim := s.newClaim(t, version, object{"allocation": allocation("node-a")})
				if err := s.putStatus(plugin, claim, devices(data[0])); err != nil {
					t.Fatal(err)
				}
				if got := s.storedData(t, version, claim.GetName()); got != data[0] {
					t.Fatalf("want %q, got %q", data[0], got)
				}
				claim = s.get(t, version, claim.GetName())
				// Where the server itself might have made it from what is stored, nothing was changed.
				if err := s.putStatus(other, claim, devices(data[1])); err != nil {
					expectRefused(t, err, driver)
				}
				if got := s.storedData(t, version, claim.GetName()); got != data[0] {
					t.Errorf("another driver has changed it to %q", got)
				}
				claim = s.get(t, version, claim.GetName())
				if err := s.putStatus(plugin, claim, devices(data[1])); err != nil {
					t.Fatalf("its own driver: %v", err)
				}
				if got := s.storedData(t, version, claim.GetName()); got != data[1] {
					t.Errorf("the correction was dropped: want %q, got %q", data[1], got)
				}
			})
		}
	}
}

// testTooManyEntries checks that very many entries are refused, and change nothing.
func testTooManyEntries(t *testing.T, s *server) {
	plugin := s.newServiceAccount(t, s.newNamespace(t), "plugin", rule(driver, []string{driverA}, "associated-node:update", "associated-node:patch")).nodeConfig(t, "node-a")
	// Upstream's own checks in 1.36 compare each entry with all others, and ask about each driver.
	const many = 300
	for _, version := range s.versions {
		for name, format := range map[string]string{
			"same device":   `{"driver":"` + driverA + `","pool":"pool","device":"device-0","data":{"a":%d}}`,
			"many devices":  `{"driver":"` + driverA + `","pool":"pool","device":"many-%d"}`,
			"other drivers": `{"driver":"driver-%d.example.com","pool":"pool","device":"device-0"}`,
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				status := inUse("node-a")
				status["devices"].([]any)[0].(object)["data"] = dataOf(0, maxData)
				claim := s.newClaim(t, version, status)
				var entries []string
				for i := range many {
					entries = append(entries, fmt.Sprintf(format, i))
				}
				err := s.putStatus(plugin, claim, "["+strings.Join(entries, ",")+"]")
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.devices") {
					t.Errorf("want 422, got: %.1000v", err)
				}
				if after := s.get(t, version, claim.GetName()); after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}

// testLateRole checks what a driver sees while its role is missing: a refusal that it can tell from one of
// what it wrote, by its cause. The same write succeeds as soon as the role is there.
func testLateRole(t *testing.T, s *server) {
	for i, version := range s.versions {
		for j, m := range methods() {
			t.Run(version+"/"+m.name, func(t *testing.T) {
				home := s.newNamespace(t)
				account := s.newServiceAccount(t, home, "late")
				late := account.inPod(t, "node-a")
				claim := s.newClaim(t, version, inUse("node-a"))
				status := claim.DeepCopy().Object["status"].(object)
				changeOwn(status)
				write := func() error { return m.do(s.claims(late, version), claim, status) }
				err := write()
				expectRefused(t, err, driver)
				expectForbidden(t, err, "status.devices")

				missing := rule(driver, []string{driverA}, "associated-node:update", "associated-node:patch")
				s.allow(t, fmt.Sprintf("late-%s-%d-%d", home, i, j), "", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account.name}, missing)
				// Nothing is restarted, and nothing else is written.
				eventually(t, "the same write", func() error {
					err := write()
					if err != nil {
						expectForbidden(t, err, "status.devices")
					}
					return err
				})
				got := s.get(t, version, claim.GetName()).Object["status"].(object)["devices"].([]any)[0].(object)["conditions"].([]any)[0].(object)["reason"]
				if got != "Down" {
					t.Errorf("the entry was not written: %v", got)
				}
			})
		}
	}
}

// expectForbidden checks that all causes of a refusal are missing permissions, as clients see them.
func expectForbidden(t *testing.T, err error, path string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != 422 || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		t.Errorf("want 422 with causes, got: %v", err)
		return
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeForbidden || !strings.HasPrefix(cause.Field, path) {
			t.Errorf("want %s of %s, got: %+v", metav1.CauseTypeForbidden, path, cause)
		}
	}
}
