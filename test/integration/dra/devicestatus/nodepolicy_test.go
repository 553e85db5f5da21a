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
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	slicesPolicy = "dra-node-driver-slices"
	statusPolicy = "dra-node-driver-status"
)

// slices are ResourceSlices.
func (s *server) slices(client dynamic.Interface, version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "resourceslices"})
}

// newSlice returns a slice with these fields in its spec, besides those of the driver's own on node-a.
func newSlice(version string, fields object) *unstructured.Unstructured {
	spec := object{
		"driver": driverA, "nodeName": "node-a",
		"pool": object{"name": "node-a", "generation": int64(1), "resourceSliceCount": int64(1)},
	}
	for key, value := range fields {
		if spec[key] = value; value == nil {
			delete(spec, key)
		}
	}
	return &unstructured.Unstructured{Object: object{
		"apiVersion": group + "/" + version, "kind": "ResourceSlice",
		"metadata": object{"generateName": "slice-"}, "spec": spec,
	}}
}

func pool(name string, generation int64) object {
	return object{"pool": object{"name": name, "generation": generation, "resourceSliceCount": int64(1)}}
}

// expectPolicy checks the error for a request that a policy refuses. Without a text, it is one that
// the policy lets through.
func expectPolicy(t *testing.T, err error, policy, text string) {
	t.Helper()
	switch {
	case text == "":
		if err != nil {
			t.Errorf("this was refused: %v", err)
		}
	case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policy) || !strings.Contains(err.Error(), text):
		t.Errorf("want an error of %s with %q, got: %v", policy, text, err)
	}
}

// TestNodePolicy covers the policies of examples/devicestatus/node-policy: what a driver on one node
// must not do to others. Nothing else checks that before 1.36, as long as the gate is off.
func TestNodePolicy(t *testing.T) {
	s := startServer(t, false)
	ctx := context.Background()
	home := s.newNamespace(t)
	write := []string{"create", "update", "patch", "delete", "deletecollection", "list"}
	bound, named := rule("resourceslices", nil, "associated-node"), rule("resourceclaims/driver", []string{driverA}, "associated-node:update", "associated-node:patch")
	plugin := s.newServiceAccount(t, home, "plugin", rule("resourceslices", nil, write...), rule("resourceclaims", nil, write...), bound, named)
	// They must not be in the way of these: one that does not use them, and one that may everything.
	other := s.newServiceAccount(t, home, "other", rule("resourceslices", nil, write...), named)
	admin := s.newServiceAccount(t, home, "admin", rule("*", nil, "*"))
	here, there, nowhere := plugin.inPod(t, "node-a"), plugin.inPod(t, "node-b"), plugin.withToken(t, nil)
	strangers := []dynamic.Interface{other.inPod(t, "node-a"), admin.inPod(t, "node-a")}

	s.createAll(t, "node-policy.yaml")
	eventually(t, "the policies are in force", func() error {
		version, dryRun := s.versions[0], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := s.slices(here, version).Create(ctx, newSlice(version, pool("node-b", 1)), dryRun); err == nil {
			return errors.New("the one for slices is not")
		}
		claim := s.newClaim(t, version, ofNodes())
		if err := update(metav1.DryRunAll)(s.claims(here, version), claim, object{}); err == nil {
			return errors.New("the one for claims is not")
		}
		return nil
	})

	for _, version := range s.versions {
		t.Run(version+"/slices", func(t *testing.T) { s.testSlicesPolicy(t, version, here, there, nowhere, strangers) })
		t.Run(version+"/status", func(t *testing.T) { s.testStatusPolicy(t, version, here, nowhere) })
	}
}

func (s *server) testSlicesPolicy(t *testing.T, version string, here, there, nowhere dynamic.Interface, strangers []dynamic.Interface) {
	ctx := context.Background()
	const poolText, nodeText = "of the pool node-a, or of pools whose names begin with node-a/", "may only write ResourceSlices with this spec.nodeName"
	for name, tc := range map[string]struct {
		who    dynamic.Interface
		fields object
		want   string
	}{
		"own":                   {here, nil, ""},
		"own, second pool":      {here, pool("node-a/gpus", 1), ""},
		"another driver":        {here, object{"driver": driverB}, "may not write ResourceSlices of the driver " + driverB},
		"another node":          {here, object{"nodeName": "node-b"}, nodeText},
		"a node with own pool":  {there, nil, nodeText},
		"selector":              {here, object{"nodeName": nil, "nodeSelector": selector(named("node-a"))}, nodeText},
		"all nodes":             {here, object{"nodeName": nil, "allNodes": true}, nodeText},
		"pool of another node":  {here, pool("node-b", 1), poolText},
		"its next generation":   {here, pool("node-b", 99), poolText},
		"pool below another":    {here, pool("node-b/gpus", 1), poolText},
		"pool that looks alike": {here, pool("node-a-2", 1), poolText},
		"pool without a node":   {here, pool("gpus", 1), poolText},
		"not on a node":         {nowhere, nil, "not bound to a node"},
		"another account":       {strangers[0], object{"driver": driverB, "nodeName": "node-c", "pool": pool("node-b", 1)["pool"]}, ""},
		"may everything":        {strangers[1], object{"driver": driverB, "nodeName": "node-c", "pool": pool("node-b", 1)["pool"]}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.slices(tc.who, version).Create(ctx, newSlice(version, tc.fields), metav1.CreateOptions{})
			expectPolicy(t, err, slicesPolicy, tc.want)
		})
	}

	// What is there already.
	mine, err := s.slices(here, version).Create(ctx, newSlice(version, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs := newSlice(version, object{"nodeName": "node-b", "pool": pool("node-b", 1)["pool"]})
	if theirs, err = s.slices(there, version).Create(ctx, theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next := func(slice *unstructured.Unstructured) *unstructured.Unstructured {
		slice = slice.DeepCopy()
		if err := unstructured.SetNestedField(slice.Object, int64(2), "spec", "pool", "generation"); err != nil {
			t.Fatal(err)
		}
		return slice
	}
	_, err = s.slices(here, version).Update(ctx, next(mine), metav1.UpdateOptions{})
	expectPolicy(t, err, slicesPolicy, "")
	_, err = s.slices(here, version).Update(ctx, next(theirs), metav1.UpdateOptions{})
	expectPolicy(t, err, slicesPolicy, nodeText)
	expectPolicy(t, s.slices(here, version).Delete(ctx, theirs.GetName(), metav1.DeleteOptions{}), slicesPolicy, nodeText)
	expectPolicy(t, s.slices(here, version).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=node-b"}), slicesPolicy, nodeText)
	expectPolicy(t, s.slices(there, version).Delete(ctx, theirs.GetName(), metav1.DeleteOptions{}), slicesPolicy, "")
	expectPolicy(t, s.slices(s.dynamic, version).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), slicesPolicy, "")
}

// inPool is the status of a device of a pool.
func inPool(driver, pool, reason string) object {
	e := entry(driver, "device-0", reason)
	e["pool"] = pool
	return e
}

// ofNodes is the status of a claim with devices of two drivers and two nodes.
func ofNodes() object {
	results, devices := []any{}, []any{}
	for _, id := range [][2]string{{driverA, "node-a"}, {driverA, "node-a/gpus"}, {driverA, "node-b"}, {driverB, "node-a"}} {
		results = append(results, object{"request": "req", "driver": id[0], "pool": id[1], "device": "device-0"})
		devices = append(devices, inPool(id[0], id[1], "Up"))
	}
	return object{
		"allocation":  object{"devices": object{"results": results}},
		"reservedFor": []any{object{"resource": "pods", "name": "pod", "uid": "uid"}},
		"devices":     devices,
	}
}

func (s *server) testStatusPolicy(t *testing.T, version string, here, nowhere dynamic.Interface) {
	const entriesText, statusText = "may only write entries of status.devices that are for one driver, in the pool node-a", "the driver may only write the status of ResourceClaims"
	const driverText = "may not write entries of status.devices for " + driverB
	// replace replaces one of the entries, or removes it.
	replace := func(i int, with ...any) change {
		return func(status object) {
			entries := status["devices"].([]any)
			status["devices"] = append(append(append([]any{}, entries[:i]...), with...), entries[i+1:]...)
		}
	}
	var table []attempt
	add := func(name string, who dynamic.Interface, change change, want string) {
		table = append(table, attempt{name: name, who: who, change: change, update: want})
	}
	add("nothing", here, nothing, "")
	add("own", here, replace(0, inPool(driverA, "node-a", "Down")), "")
	add("own, second pool", here, replace(1, inPool(driverA, "node-a/gpus", "Down")), "")
	add("own removed", here, replace(0), "")
	add("pool of another node", here, replace(2, inPool(driverA, "node-b", "Down")), entriesText)
	add("pool of another node removed", here, replace(2), entriesText)
	add("another driver", here, replace(3, inPool(driverB, "node-a", "Down")), driverText)
	add("another driver removed", here, replace(3), driverText)
	add("own and another", here, all(replace(0, inPool(driverA, "node-a", "Down")), replace(3)), entriesText)
	add("all removed", here, removeAll, entriesText)
	add("reservation removed", here, noReservation, "the driver may only write status.devices")
	add("reserved for more", here, moreReservations, "the driver may only write status.devices")
	add("deallocated", here, deallocated, "the driver may only write status.devices")
	add("not on a node", nowhere, replace(0, inPool(driverA, "node-a", "Down")), "not bound to a node")
	for _, a := range table {
		for _, m := range allMethods() {
			t.Run(fmt.Sprintf("%s/%s", a.name, m.name), func(t *testing.T) {
				claim := s.newClaim(t, version, ofNodes())
				status := s.get(t, version, claim.GetName()).DeepCopy().Object["status"].(object)
				a.change(status)
				expectPolicy(t, m.do(s.claims(a.who, version), claim, status), statusPolicy, a.update)
				if after := s.get(t, version, claim.GetName()); a.update != "" && after.GetResourceVersion() != claim.GetResourceVersion() {
					t.Error("the claim was written")
				}
			})
		}
	}

	ctx := context.Background()
	claim := s.newClaim(t, version, ofNodes())
	labelled := claim.DeepCopy()
	labelled.SetLabels(map[string]string{"a": "b"})
	_, err := s.claims(here, version).Update(ctx, labelled, metav1.UpdateOptions{})
	expectPolicy(t, err, statusPolicy, statusText)
	expectPolicy(t, s.claims(here, version).Delete(ctx, claim.GetName(), metav1.DeleteOptions{}), statusPolicy, statusText)
	created := claim.DeepCopy()
	created.SetName("")
	created.SetGenerateName("claim-")
	created.SetResourceVersion("")
	_, err = s.claims(here, version).Create(ctx, created, metav1.CreateOptions{})
	expectPolicy(t, err, statusPolicy, statusText)
}
