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
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubectl/pkg/describe"
)

// The limits of a claim. They are written down here once more, because whoever changes them
// changes what drivers may rely on.
const (
	maxDevices       = 32
	maxConditions    = 8
	maxReason        = 1 << 10
	maxMessage       = 32 << 10
	maxIPs           = 16
	maxInterfaceName = 256
	maxHardware      = 128
	maxData          = 10 << 10
	maxDriver        = 63
	maxPool          = 253
	maxDevice        = 63

	// longMessage is what fits into etcd if all 256 conditions of a claim have it, and
	// everything else is as large as it may be.
	longMessage = 2 << 10
	// shownText is how much of the message of a condition kubectl shows.
	shownText = 1 << 10
)

// fill makes a text longer.
func fill(text string, length int) string {
	return text + strings.Repeat("x", length-len(text))
}

var longDriver = fill("driver-", maxDriver)

// fullEntry is the status of a device in which everything has the largest size. Nothing is
// there twice, in no device. The reason begins with a text.
func fullEntry(i int, reason string) object {
	var conditions, ips []any
	for j := range maxConditions {
		conditions = append(conditions, object{
			"type":               fill(fmt.Sprintf("Type-%d-%d-", i, j), 63),
			"status":             "Unknown",
			"reason":             fill(fmt.Sprintf("%s_%d_%d_", reason, i, j), maxReason),
			"message":            strings.Repeat(fmt.Sprintf("Message %02d %02d. ", i, j), longMessage)[:longMessage-1] + "!",
			"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": int64(1) << 62,
		})
	}
	for j := range maxIPs {
		ips = append(ips, fmt.Sprintf("2001:db8:1111:2222:3333:4444:%x:%x/128", 0x1000+i, 0x1000+j))
	}
	return object{
		"driver": longDriver, "pool": fill("pool-", maxPool), "device": fill(fmt.Sprintf("device-%d-", i), maxDevice),
		"conditions": conditions,
		"data":       dataOf(i, maxData),
		"networkData": object{
			"interfaceName":   fill(fmt.Sprintf("interface-%d-", i), maxInterfaceName),
			"ips":             ips,
			"hardwareAddress": fill(fmt.Sprintf("address-%d-", i), maxHardware),
		},
	}
}

// dataOf has that size as JSON.
func dataOf(i, size int) object {
	raw, err := json.Marshal(object{"device": i, "text": ""})
	if err != nil {
		panic(err)
	}
	return object{"device": int64(i), "text": fill("", size-len(raw))}
}

func fullEntries(n int, reason string) []any {
	var entries []any
	for i := range n {
		entries = append(entries, fullEntry(i, reason))
	}
	return entries
}

// allocationOf has these devices, for a node.
func allocationOf(entries []any) object {
	var results []any
	for _, entry := range entries {
		entry := entry.(object)
		results = append(results, object{"request": "req", "driver": entry["driver"], "pool": entry["pool"], "device": entry["device"]})
	}
	return object{"nodeSelector": runtime.DeepCopyJSON(selectors["node-a"]), "devices": object{"results": results}}
}

// writes are the ways in which a driver writes its entries: in an update beside everything else that is
// in the status, and in server-side apply alone.
func writes() []method {
	return []method{
		{"update", update(), false},
		{"apply", func(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error {
			return applyAs(longDriver)(client, claim, object{"devices": status["devices"]})
		}, false},
	}
}

// testLimits checks what one driver can store in one claim.
func testLimits(t *testing.T, s *server) {
	plugin := s.newServiceAccount(t, s.newNamespace(t), "plugin", rule(driver, []string{longDriver}, "associated-node:update", "associated-node:patch")).inPod(t, "node-a")
	for _, version := range s.versions {
		t.Run(version+"/maximum", func(t *testing.T) { s.testMaximum(t, version, plugin) })
		t.Run(version+"/past", func(t *testing.T) { s.testPast(t, version, plugin) })
	}
	t.Run("too many devices", s.testTooManyDevices)
	t.Run("too many entries", s.testTooManyEntries)
	t.Run("too large", func(t *testing.T) { s.testTooLarge(t, plugin) })
}

// testMaximum checks that a driver can write, and everybody can read, a claim that has as much as it may
// have of everything.
func (s *server) testMaximum(t *testing.T, version string, plugin dynamic.Interface) {
	claim := s.newClaim(t, version, object{"allocation": allocationOf(fullEntries(maxDevices, "First"))})
	// One after the other: then both are managers of the fields, which makes the claim larger.
	for _, m := range writes() {
		status := runtime.DeepCopyJSON(claim.Object["status"].(object))
		status["devices"] = fullEntries(maxDevices, m.name)
		if err := m.do(s.claims(plugin, version), claim, status); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		claim = s.get(t, version, claim.GetName())
		if !reflect.DeepEqual(claim.Object["status"], status) {
			t.Errorf("%s: what was read is not what was written", m.name)
		}
		s.logSize(t, claim, m.name)
		s.expectDescribed(t, claim)
	}
}

// logSize says how large a claim is, as JSON and as it is stored.
func (s *server) logSize(t *testing.T, claim *unstructured.Unstructured, what string) {
	t.Helper()
	size := func(value any) int {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return len(raw)
	}
	stored, err := s.client.Discovery().RESTClient().Get().AbsPath("apis", claim.GetAPIVersion(), "namespaces", claim.GetNamespace(), "resourceclaims", claim.GetName()).
		SetHeader("Accept", runtime.ContentTypeProtobuf).DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes of JSON, %d of them managed fields; %d bytes of protobuf", what, size(claim.Object), size(claim.GetManagedFields()), len(stored))
}

// expectDescribed checks that "kubectl describe" shows all entries, and says where
// it leaves something out.
func (s *server) expectDescribed(t *testing.T, claim *unstructured.Unstructured) {
	t.Helper()
	describer, found := describe.DescriberFor(schema.GroupKind{Group: group, Kind: "ResourceClaim"}, s.admin)
	if !found {
		t.Fatal("kubectl has no describer for ResourceClaims")
	}
	text, err := describer.Describe(claim.GetNamespace(), claim.GetName(), describe.DescriberSettings{ShowEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	// Lines are broken at spaces.
	oneLine := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	_, text, _ = strings.Cut(oneLine(text), " Devices: ")
	for _, entry := range claim.Object["status"].(object)["devices"].([]any) {
		entry := entry.(object)
		name := fmt.Sprintf("%s/%s/%s:", entry["driver"], entry["pool"], entry["device"])
		before, after, found := strings.Cut(text, name+" ")
		if !found || before != "" {
			t.Fatalf("want the device %s, got: %.1000s", name, text)
		}
		network := entry["networkData"].(object)
		var ips []string
		for _, ip := range network["ips"].([]any) {
			ips = append(ips, ip.(string))
		}
		want := fmt.Sprintf("Request: req Interface: %s Hardware Address: %s IPs: %s Data: %d bytes, which -o yaml shows Conditions: ",
			network["interfaceName"], network["hardwareAddress"], strings.Join(ips, ", "), maxData)
		if text, found = strings.CutPrefix(after, want); !found {
			t.Fatalf("%s want:\n%s\ngot:\n%.4000s", name, want, after)
		}
		for _, condition := range entry["conditions"].([]any) {
			condition := condition.(object)
			// For how long it has been so changes while the test runs.
			_, text, _ = strings.Cut(text, fmt.Sprintf("%s: %s for ", condition["type"], condition["status"]))
			_, rest, _ := strings.Cut(text, ", ")
			message := condition["message"].(string)
			want := oneLine(fmt.Sprintf("%s %s ... (%d bytes more, which -o yaml shows)", condition["reason"], message[:shownText], len(message)-shownText)) + " "
			if text, found = strings.CutPrefix(rest, want); !found {
				t.Fatalf("%s want:\n%s\ngot:\n%.4000s", name, want, rest)
			}
		}
	}
	if text != "Events: <none>" {
		t.Errorf("unexpected text after the devices: %.1000s", text)
	}
}

// testPast checks that what is one past a limit is refused, with the field, and changes nothing.
func (s *server) testPast(t *testing.T, version string, plugin dynamic.Interface) {
	condition := func(field string, value any) change {
		return func(entry object) { entry["conditions"].([]any)[0].(object)[field] = value }
	}
	network := func(field string, value any) change {
		return func(entry object) { entry["networkData"].(object)[field] = value }
	}
	const path = "status.devices[0]"
	for _, test := range []struct {
		name   string
		change change
		field  string
		cause  metav1.CauseType
	}{
		{"conditions", func(entry object) {
			entry["conditions"] = append(entry["conditions"].([]any), fullEntry(1, "Ninth")["conditions"].([]any)[0])
		}, path + ".conditions", metav1.CauseTypeTooMany},
		{"reason", condition("reason", fill("", maxReason+1)), path + ".conditions[0].reason", metav1.CauseTypeTooLong},
		{"message", condition("message", fill("", maxMessage+1)), path + ".conditions[0].message", metav1.CauseTypeTooLong},
		{"data", func(entry object) { entry["data"] = dataOf(0, maxData+1) }, path + ".data", metav1.CauseTypeTooLong},
		{"interface name", network("interfaceName", fill("", maxInterfaceName+1)), path + ".networkData.interfaceName", metav1.CauseTypeTooLong},
		{"hardware address", network("hardwareAddress", fill("", maxHardware+1)), path + ".networkData.hardwareAddress", metav1.CauseTypeTooLong},
		{"IPs", func(entry object) {
			network := entry["networkData"].(object)
			network["ips"] = append(network["ips"].([]any), "192.0.2.1/24")
		}, path + ".networkData.ips", metav1.CauseTypeTooMany},
		{"IP twice", network("ips", []any{"192.0.2.1/24", "2001:db8::1/64", "192.0.2.1/24"}), path + ".networkData.ips[2]", metav1.CauseTypeFieldValueDuplicate},
		{"IP without prefix length", network("ips", []any{"192.0.2.1"}), path + ".networkData.ips[0]", metav1.CauseTypeFieldValueInvalid},
		{"IP in another form", network("ips", []any{"192.0.2.1/24", "2001:0db8::1/64"}), path + ".networkData.ips[1]", metav1.CauseTypeFieldValueInvalid},
		{"device", func(entry object) { entry["device"] = "not-allocated" }, path, metav1.CauseTypeFieldValueInvalid},
	} {
		for _, m := range writes() {
			t.Run(test.name+"/"+m.name, func(t *testing.T) {
				entry := fullEntry(0, "First")
				claim := s.newClaim(t, version, object{"allocation": allocationOf([]any{entry}), "devices": []any{entry}})
				status := runtime.DeepCopyJSON(claim.Object["status"].(object))
				test.change(status["devices"].([]any)[0].(object))
				if m.name == "apply" && test.name == "device" {
					// The old one is not the driver's to remove, so there are two then.
					test.field = "status.devices[1]"
				}
				err := m.do(s.claims(plugin, version), claim, status)
				after := s.get(t, version, claim.GetName())
				expectInvalid(t, err, test.field, test.cause)
				if after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}

// expectInvalid checks that there is one error, about that field.
func expectInvalid(t *testing.T, err error, field string, cause metav1.CauseType) {
	t.Helper()
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		t.Errorf("want 422, got: %v", err)
		return
	}
	causes := status.Status().Details.Causes
	if len(causes) != 1 || causes[0].Field != field || causes[0].Type != cause {
		t.Errorf("want %s of %s, got: %+v", cause, field, causes)
	}
}

// testTooManyDevices checks that nobody can allocate one device more, and so no driver can have an
// entry for it.
func (s *server) testTooManyDevices(t *testing.T) {
	for _, version := range s.versions {
		for _, m := range methods() {
			t.Run(version+"/"+m.name, func(t *testing.T) {
				claim := s.newClaim(t, version, object{})
				status := object{"allocation": allocationOf(fullEntries(maxDevices+1, "First"))}
				expectInvalid(t, m.do(s.claims(s.dynamic, version), claim, status), "status.allocation.devices.results", metav1.CauseTypeTooMany)
				if after := s.get(t, version, claim.GetName()); after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}

// testTooManyEntries checks that entries for devices that are not allocated, and there are very many, are
// refused because of the first of them, without looking at all others.
func (s *server) testTooManyEntries(t *testing.T) {
	var entries []any
	for i := range 3000 {
		entries = append(entries, object{"driver": "d.example.com", "pool": "p", "device": fmt.Sprintf("device-%d", i)})
	}
	for _, version := range s.versions {
		for _, m := range methods() {
			t.Run(version+"/"+m.name, func(t *testing.T) {
				allocation := allocationOf(fullEntries(1, "First"))
				claim := s.newClaim(t, version, object{"allocation": allocation})
				expectInvalid(t, m.do(s.claims(s.dynamic, version), claim, object{"allocation": runtime.DeepCopyJSON(allocation), "devices": entries}), "status.devices[0]", metav1.CauseTypeFieldValueInvalid)
				if after := s.get(t, version, claim.GetName()); after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}

// testTooLarge checks what happens when each field is within its limit, but all together are too much
// for etcd, or for a request.
func (s *server) testTooLarge(t *testing.T, plugin dynamic.Interface) {
	entries := fullEntries(maxDevices, "First")
	for message, text := range map[int]string{
		2 * longMessage: "etcdserver: request is too large",
		maxMessage:      "Request entity too large",
	} {
		for _, entry := range entries {
			for _, condition := range entry.(object)["conditions"].([]any) {
				condition.(object)["message"] = fill("", message)
			}
		}
		for _, m := range writes() {
			t.Run(text+"/"+m.name, func(t *testing.T) {
				claim := s.newClaim(t, s.versions[0], object{"allocation": allocationOf(entries)})
				status := runtime.DeepCopyJSON(claim.Object["status"].(object))
				status["devices"] = entries
				err := m.do(s.claims(plugin, s.versions[0]), claim, status)
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("want %q, got: %v", text, err)
				}
				if after := s.get(t, s.versions[0], claim.GetName()); after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}
