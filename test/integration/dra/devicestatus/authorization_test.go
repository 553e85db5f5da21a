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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// named is a term that selects a node by its name.
func named(name string) object {
	return object{"matchFields": []any{object{"key": "metadata.name", "operator": "In", "values": []any{name}}}}
}

// selector consists of terms.
func selector(terms ...any) object {
	return object{"nodeSelectorTerms": terms}
}

// selectors are those of allocations.
var selectors = map[string]object{
	"node-a":   selector(named("node-a")),
	"two":      selector(named("node-a"), named("node-b")),
	"any but":  selector(object{"matchFields": []any{object{"key": "metadata.name", "operator": "NotIn", "values": []any{"node-a"}}}}),
	"hostname": selector(object{"matchExpressions": []any{object{"key": "kubernetes.io/hostname", "operator": "In", "values": []any{"node-a"}}}}),
	"name and label": selector(object{
		"matchFields":      named("node-a")["matchFields"],
		"matchExpressions": []any{object{"key": "kubernetes.io/os", "operator": "Exists"}},
	}),
	"all nodes": nil,
}

// entry is the status of a device.
func entry(driver, device, reason string) object {
	return object{
		"driver": driver, "pool": "pool", "device": device,
		"conditions": []any{object{"type": "Ready", "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}},
		"data":       object{"vlan": int64(7), "mtu": int64(1500)},
		"networkData": object{
			"interfaceName": "net1", "ips": []any{"10.9.8.7/24", "2001:db8::1/64"}, "hardwareAddress": "ea:9f:cb:40:b2:7d",
		},
	}
}

// allocation has two devices of each driver.
func allocation(nodes string) object {
	var results []any
	for _, driver := range []string{driverA, driverB} {
		for i := range 2 {
			results = append(results, object{"request": "req", "driver": driver, "pool": "pool", "device": fmt.Sprintf("device-%d", i)})
		}
	}
	a := object{"devices": object{"results": results}}
	if selectors[nodes] != nil {
		a["nodeSelector"] = runtime.DeepCopyJSON(selectors[nodes])
	}
	return a
}

// inUse is the status of a claim which is allocated, reserved, and has the status of one device of
// each driver.
func inUse(nodes string) object {
	return object{
		"allocation":  allocation(nodes),
		"reservedFor": []any{object{"resource": "pods", "name": "pod", "uid": "uid"}},
		"devices":     []any{entry(driverA, "device-0", "Up"), entry(driverB, "device-0", "Up")},
	}
}

// change changes the status of a claim which is in use.
type change func(status object)

// devices replaces the entries.
func devices(entries ...any) change {
	return func(status object) { status["devices"] = entries }
}

// all makes several changes at once.
func all(changes ...change) change {
	return func(status object) {
		for _, c := range changes {
			c(status)
		}
	}
}

var (
	a0, a1, b0, b1 = entry(driverA, "device-0", "Up"), entry(driverA, "device-1", "Up"), entry(driverB, "device-0", "Up"), entry(driverB, "device-1", "Up")

	nothing          change = func(object) {}
	reordered               = devices(b0, a0)
	addOwn                  = devices(a0, a1, b0)
	changeOwn               = devices(entry(driverA, "device-0", "Down"), b0)
	removeOwn               = devices(b0)
	addOther                = devices(a0, b0, b1)
	changeOther             = devices(a0, entry(driverB, "device-0", "Down"))
	removeOther             = devices(a0)
	removeAll        change = func(status object) { delete(status, "devices") }
	ownAndAddOther          = devices(entry(driverA, "device-0", "Down"), b0, b1)
	ownInsteadOther         = devices(a0, a1)
	noReservation    change = func(status object) { delete(status, "reservedFor") }
	otherReservation change = func(status object) {
		status["reservedFor"] = []any{object{"resource": "pods", "name": "other", "uid": "other"}}
	}
	moreReservations change = func(status object) {
		status["reservedFor"] = append(status["reservedFor"].([]any), object{"resource": "pods", "name": "other", "uid": "other"})
	}
	// The devices go with the allocation.
	deallocated change = func(status object) { clear(status) }
	moved       change = func(status object) { status["allocation"] = allocation("two") }
)

const (
	allowed = ""
	binding = "resourceclaims/binding"
	driver  = "resourceclaims/driver"
)

// attempt is a change by somebody.
type attempt struct {
	name   string
	who    dynamic.Interface
	nodes  string
	change change
	// update and patch are what has to be in the error if the verb is that one.
	update, patch string
	// invalid is a change that nobody can make.
	invalid bool
}

// both is for attempts with the same outcome for both verbs.
func both(name string, who dynamic.Interface, nodes string, change change, outcome string) attempt {
	return attempt{name, who, nodes, change, outcome, outcome, false}
}

// attempts is the table.
func attempts(t *testing.T, s *server) []attempt {
	home, names := s.newNamespace(t), []string{driverA}
	associated := rule(driver, names, "associated-node:update", "associated-node:patch")
	arbitrary := rule(driver, names, "arbitrary-node:update", "arbitrary-node:patch")

	plugin := s.newServiceAccount(t, home, "plugin", associated)
	controller := s.newServiceAccount(t, home, "controller", arbitrary)
	updater := s.newServiceAccount(t, home, "updater", rule(driver, names, "associated-node:update"))
	patcher := s.newServiceAccount(t, home, "patcher", rule(driver, names, "arbitrary-node:patch"))
	binder := s.newServiceAccount(t, home, "binder", rule(binding, nil, "update", "patch"))
	updatingBinder := s.newServiceAccount(t, home, "updating-binder", rule(binding, nil, "update"))
	powerful := s.newServiceAccount(t, home, "powerful", rule(driver, nil, "arbitrary-node:update", "arbitrary-node:patch"), rule(binding, nil, "update", "patch"))
	plain := s.newServiceAccount(t, home, "plain")
	wrongVerbs := s.newServiceAccount(t, home, "wrong-verbs", rule(driver, names, "update", "patch"))

	subject := func(account serviceAccount) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.namespace, Name: account.name}
	}
	// It has the permission in the namespace of the claims, the next one in another one.
	tenant := s.newServiceAccount(t, home, "tenant")
	s.allow(t, "tenant-driver", s.namespace, subject(tenant), associated)
	s.waitForRights(t, tenant.username(), s.namespace, associated)
	elsewhere, otherNamespace := s.newServiceAccount(t, home, "elsewhere"), s.newNamespace(t)
	s.allow(t, "elsewhere-driver", otherNamespace, subject(elsewhere), associated, rule(binding, nil, "update", "patch"))
	s.waitForRights(t, elsewhere.username(), otherNamespace, associated)
	// A role in the namespace of the claim is not enough to bind it.
	localBinder := s.newServiceAccount(t, home, "local-binder")
	s.allow(t, "local-binder-binding", s.namespace, subject(localBinder), rule(binding, nil, "update", "patch"))
	s.waitForRights(t, localBinder.username(), s.namespace, rule(binding, nil, "update", "patch"))

	s.allow(t, "jane", "", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}, append(mayWrite(), associated)...)
	s.waitForRights(t, "jane", "", append(mayWrite(), associated)...)

	here, there, nowhere := plugin.onNode(t, "node-a"), plugin.onNode(t, "node-b"), plugin.withToken(t, nil)
	pod, otherPod := plugin.inPod(t, "node-a"), plugin.inPod(t, "node-b")
	operator := controller.withToken(t, nil)

	return []attempt{
		both("plugin changes nothing", here, "node-a", nothing, allowed),
		both("plugin adds own", here, "node-a", addOwn, allowed),
		both("plugin changes own", here, "node-a", changeOwn, allowed),
		both("plugin removes own", here, "node-a", removeOwn, allowed),
		both("plugin in a pod adds own", pod, "node-a", addOwn, allowed),
		both("plugin in a pod changes own", pod, "node-a", changeOwn, allowed),
		both("plugin in a pod removes own", pod, "node-a", removeOwn, allowed),
		both("plugin with a role in the namespace", tenant.inPod(t, "node-a"), "node-a", changeOwn, allowed),

		both("plugin adds other", here, "node-a", addOther, driver),
		both("plugin changes other", here, "node-a", changeOther, driver),
		both("plugin removes other", here, "node-a", removeOther, driver),
		both("plugin removes all", here, "node-a", removeAll, driver),
		both("plugin changes own and adds other", here, "node-a", ownAndAddOther, driver),
		both("plugin adds own instead of other", here, "node-a", ownInsteadOther, driver),
		both("plugin in a pod changes other", pod, "node-a", changeOther, driver),

		both("plugin of another node", there, "node-a", changeOwn, driver),
		both("plugin in a pod on another node", otherPod, "node-a", changeOwn, driver),
		both("plugin of another node changes nothing", there, "node-a", nothing, allowed),
		both("plugin of another node removes own", there, "node-a", removeOwn, driver),
		both("plugin without node", nowhere, "node-a", changeOwn, driver),
		both("plugin with a role elsewhere", elsewhere.inPod(t, "node-a"), "node-a", changeOwn, driver),
		both("plugin with the verbs of the status", wrongVerbs.inPod(t, "node-a"), "node-a", changeOwn, driver),

		both("claim of two nodes", here, "two", changeOwn, driver),
		both("claim of all nodes but one", here, "any but", changeOwn, driver),
		both("claim selects by label", here, "hostname", changeOwn, driver),
		both("claim selects by name and label", here, "name and label", changeOwn, driver),
		both("claim of all nodes", here, "all nodes", changeOwn, driver),

		both("plugin deallocates", here, "node-a", deallocated, binding),
		both("plugin removes a reservation", here, "node-a", noReservation, binding),
		both("plugin changes a reservation", here, "node-a", otherReservation, binding),
		both("plugin adds a reservation", here, "node-a", moreReservations, binding),
		both("plugin changes own and adds a reservation", here, "node-a", all(changeOwn, moreReservations), binding),
		{"plugin moves", here, "node-a", moved, binding, binding, true},
		{"plugin moves and changes own", here, "node-a", all(moved, changeOwn), binding, binding, true},

		both("controller changes own", operator, "node-a", changeOwn, allowed),
		both("controller on a node changes own of another one", controller.onNode(t, "node-b"), "node-a", changeOwn, allowed),
		both("controller on the node changes own", controller.onNode(t, "node-a"), "node-a", changeOwn, allowed),
		both("controller changes own of two nodes", operator, "two", changeOwn, allowed),
		both("controller changes own of all nodes", operator, "all nodes", changeOwn, allowed),
		both("controller changes other", operator, "node-a", changeOther, driver),
		both("controller deallocates", operator, "node-a", deallocated, binding),

		{"updater changes own", updater.onNode(t, "node-a"), "node-a", changeOwn, allowed, driver, false},
		{"patcher changes own", patcher.withToken(t, nil), "two", changeOwn, driver, allowed, false},

		both("binder deallocates, which removes the devices", binder.withToken(t, nil), "node-a", deallocated, allowed),
		both("binder removes a reservation", binder.withToken(t, nil), "node-a", noReservation, allowed),
		both("binder adds a reservation", binder.withToken(t, nil), "two", moreReservations, allowed),
		both("binder changes a device", binder.withToken(t, nil), "node-a", changeOwn, driver),
		both("binder removes devices", binder.withToken(t, nil), "node-a", removeAll, driver),
		both("binder with a role in the namespace", localBinder.withToken(t, nil), "node-a", noReservation, binding),
		{"binder with one verb", updatingBinder.withToken(t, nil), "node-a", noReservation, allowed, binding, false},

		both("who may everything", powerful.withToken(t, nil), "two", all(noReservation, ownInsteadOther), allowed),
		both("who may nothing but write changes nothing", plain.withToken(t, nil), "node-a", nothing, allowed),
		both("who may nothing but write reorders", plain.withToken(t, nil), "node-a", reordered, allowed),
		both("who may nothing but write", plain.withToken(t, nil), "node-a", changeOwn, driver),
		both("who may nothing but write, on the node", plain.inPod(t, "node-a"), "node-a", changeOwn, driver),
		both("who may nothing but write reserves", plain.withToken(t, nil), "node-a", moreReservations, binding),

		both("as plugin", s.as(s.admin, plugin.username()), "node-a", changeOwn, driver),
		both("as plugin of the node", s.as(s.admin, plugin.username(), "node-a"), "node-a", changeOwn, allowed),
		both("as plugin of the node changes other", s.as(s.admin, plugin.username(), "node-a"), "node-a", changeOther, driver),
		both("as plugin of another node", s.as(s.admin, plugin.username(), "node-b"), "node-a", changeOwn, driver),
		both("as plugin of two nodes", s.as(s.admin, plugin.username(), "node-a", "node-b"), "node-a", changeOwn, driver),
		both("as controller", s.as(s.admin, controller.username()), "node-a", changeOwn, allowed),
		both("as user of the node", s.as(s.admin, "jane", "node-a"), "node-a", changeOwn, driver),
		both("as user reserves", s.as(s.admin, "jane", "node-a"), "node-a", moreReservations, binding),

		both("as scheduler", s.as(s.admin, "system:kube-scheduler"), "node-a", moreReservations, allowed),
		both("as scheduler deallocates", s.as(s.admin, "system:kube-scheduler"), "node-a", deallocated, allowed),
		both("as scheduler changes a device", s.as(s.admin, "system:kube-scheduler"), "node-a", changeOwn, driver),
		both("as resourceclaim controller", s.as(s.admin, "system:serviceaccount:kube-system:resource-claim-controller"), "node-a", noReservation, allowed),
		both("as resourceclaim controller deallocates", s.as(s.admin, "system:serviceaccount:kube-system:resource-claim-controller"), "node-a", deallocated, allowed),
		both("as administrator", s.dynamic, "two", all(noReservation, ownInsteadOther), allowed),
	}
}

// expectRefused checks the error about a missing permission.
func expectRefused(t *testing.T, err error, outcome string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("want 422, got: %v", err)
		return
	}
	texts := []string{"Forbidden", outcome, map[string]string{driver: "status.devices", binding: "status."}[outcome]}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("no %q in: %v", text, err)
		}
	}
}

// TestAuthorization checks who may write what, and how much, with the checks on. Starting an API
// server takes longer than most tests, so they share one.
func TestAuthorization(t *testing.T) {
	s := startServer(t, true)
	for _, user := range []string{"system:kube-scheduler", "system:serviceaccount:kube-system:resource-claim-controller"} {
		s.waitForRights(t, user, "", rule(binding, nil, "update"))
	}
	t.Run("attempts", func(t *testing.T) { testAttempts(t, s) })
	t.Run("impersonation", func(t *testing.T) { testImpersonation(t, s) })
	t.Run("format", func(t *testing.T) { testFormat(t, s) })
	t.Run("roles", func(t *testing.T) { testRoles(t, s) })
	t.Run("limits", func(t *testing.T) { testLimits(t, s) })
	t.Run("parameters", func(t *testing.T) { testParameters(t, s) })
	t.Run("corrections", func(t *testing.T) { testCorrections(t, s) })
	t.Run("too many entries", func(t *testing.T) { testTooManyEntries(t, s) })
	t.Run("late role", func(t *testing.T) { testLateRole(t, s) })
}

// testAttempts goes through the table in each version of the API, with update, server-side
// apply, and in turn with one of the other ways to write. What is refused must have changed
// nothing.
func testAttempts(t *testing.T, s *server) {
	for i, attempt := range attempts(t, s) {
		for j, version := range s.versions {
			for _, m := range append(methods(), otherMethod(i+j)) {
				t.Run(version+"/"+attempt.name+"/"+m.name, func(t *testing.T) {
					s.try(t, version, inUse(attempt.nodes), attempt, m, true)
				})
			}
		}
	}
}

// TestWithoutChecks checks that everybody who may write the status can do all that is refused
// with the checks.
func TestWithoutChecks(t *testing.T) {
	s := startServer(t, false)
	for i, attempt := range attempts(t, s) {
		if attempt.update == allowed && attempt.patch == allowed {
			continue
		}
		for j, version := range s.versions {
			m := allMethods()[(i+j)%len(allMethods())]
			t.Run(version+"/"+attempt.name+"/"+m.name, func(t *testing.T) {
				s.try(t, version, inUse(attempt.nodes), attempt, m, false)
			})
		}
	}
}

// try makes one attempt, on a claim with that status.
func (s *server) try(t *testing.T, version string, initial object, a attempt, m method, checks bool) {
	claim := s.newClaim(t, version, initial)
	before := claim.Object["status"].(object)
	status := runtime.DeepCopyJSON(before)
	a.change(status)
	err := m.do(s.claims(a.who, version), claim, status)
	after := s.get(t, version, claim.GetName())

	outcome := a.patch
	if m.verb() == "update" {
		outcome = a.update
	}
	switch {
	case !checks && a.invalid:
		if !apierrors.IsInvalid(err) || strings.Contains(err.Error(), driver) || strings.Contains(err.Error(), binding) {
			t.Errorf("want the error of an immutable field, got: %v", err)
		}
		status = before
	case checks && outcome != allowed:
		expectRefused(t, err, outcome)
		status = before
		if after.GetResourceVersion() != claim.GetResourceVersion() {
			t.Error("the claim was written")
		}
	case err != nil:
		t.Errorf("this was refused: %v", err)
		status = before
	case m.dryRun:
		status = before
	}
	got, _ := after.Object["status"].(object)
	if len(got) == 0 && len(status) == 0 {
		return
	}
	if !reflect.DeepEqual(got, status) {
		t.Errorf("want status:\n%v\ngot:\n%v", status, got)
	}
}

// testImpersonation checks that somebody who may act as a service account does not get to its node
// with that.
func testImpersonation(t *testing.T, s *server) {
	plugin := s.newServiceAccount(t, s.newNamespace(t), "plugin", rule(driver, []string{driverA}, "associated-node:update", "associated-node:patch"))
	helpdesk := s.newServiceAccount(t, s.newNamespace(t), "helpdesk", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}})
	config := helpdesk.config(t, nil)
	for _, version := range s.versions {
		for _, m := range allMethods() {
			t.Run(version+"/"+m.name, func(t *testing.T) {
				claim := s.newClaim(t, version, inUse("node-a"))
				status := runtime.DeepCopyJSON(claim.Object["status"].(object))
				changeOwn(status)
				expectRefused(t, m.do(s.claims(s.as(config, plugin.username()), version), claim, status), driver)
				err := m.do(s.claims(s.as(config, plugin.username(), "node-a"), version), claim, status)
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "impersonate") {
					t.Errorf("want 403 because of the node, got: %v", err)
				}
				if after := s.get(t, version, claim.GetName()); after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}
}

// testFormat checks that a driver can write its own entries whatever the data of another one, or the
// parameters of the claim, look like. The server itself formats them when it applies a
// patch.
func testFormat(t *testing.T, s *server) {
	plugin := s.newServiceAccount(t, s.newNamespace(t), "plugin", rule(driver, []string{driverA}, "associated-node:update", "associated-node:patch")).inPod(t, "node-a")
	const data = `{ "vlan": 7,  "mtu": 1500, "big": 12345678901234567890, "ratio": 1.0, "text": "<&>", "nested": {"b": [1, 2.50], "a": true} }`
	for _, version := range s.versions {
		for _, m := range allMethods() {
			t.Run(version+"/"+m.name, func(t *testing.T) {
				// The allocation cannot be changed later, so it comes in a claim that
				// has no status yet.
				const placeholder = "as it is"
				status := inUse("node-a")
				status["devices"].([]any)[1].(object)["data"] = placeholder
				status["allocation"].(object)["devices"].(object)["config"] = []any{object{
					"source": "FromClaim", "opaque": object{"driver": driverB, "parameters": placeholder},
				}}
				patch, err := json.Marshal([]any{object{"op": "replace", "path": "/status", "value": status}})
				if err != nil {
					t.Fatal(err)
				}
				patch = bytes.ReplaceAll(patch, []byte(`"`+placeholder+`"`), []byte(data))
				claim := s.newClaim(t, version, object{})
				claim, err = s.claims(s.dynamic, version).Patch(context.Background(), claim.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
				if err != nil {
					t.Fatal(err)
				}
				status = runtime.DeepCopyJSON(claim.Object["status"].(object))
				own := status["devices"].([]any)[0].(object)
				own["conditions"].([]any)[0].(object)["reason"] = "Down"
				if err := m.do(s.claims(plugin, version), claim, status); err != nil {
					t.Fatalf("this was refused: %v", err)
				}
				// What is meant must be the same as before.
				claim = s.get(t, version, claim.GetName())
				got, err := json.Marshal(claim.Object["status"].(object)["devices"].([]any)[1].(object)["data"])
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(got, []byte(`"nested":{"a":true,"b":[1,2.5]}`)) || !bytes.Contains(got, []byte(`"vlan":7`)) {
					t.Errorf("the data is now %s", got)
				}
				// A change of the data is one, whatever it looks like.
				status = runtime.DeepCopyJSON(claim.Object["status"].(object))
				status["devices"].([]any)[1].(object)["data"].(object)["nested"].(object)["b"] = []any{int64(2), 2.5}
				expectRefused(t, m.do(s.claims(plugin, version), claim, status), driver)
			})
		}
	}
}
