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

package resource

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

const (
	driverA = "a.example.com"
	driverB = "b.example.com"
	nodeKey = "authentication.kubernetes.io/node-name"
)

// onNode is an allocation of two devices of each driver for a node.
func onNode(name string) *resource.AllocationResult {
	allocation := &resource.AllocationResult{NodeSelector: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
	for _, driver := range []string{driverA, driverB} {
		for i := range 2 {
			allocation.Devices.Results = append(allocation.Devices.Results, resource.DeviceRequestAllocationResult{
				Request: "req", Driver: driver, Pool: "pool", Device: fmt.Sprintf("device-%d", i),
			})
		}
	}
	return allocation
}

// entry is the status of a device.
func entry(driver, device, reason string) resource.AllocatedDeviceStatus {
	return resource.AllocatedDeviceStatus{Driver: driver, Pool: "pool", Device: device,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: reason}}}
}

// allocated is the status of a claim which is allocated for node-a.
func allocated(devices ...resource.AllocatedDeviceStatus) resource.ResourceClaimStatus {
	return resource.ResourceClaimStatus{Allocation: onNode("node-a"), Devices: devices}
}

// withData is the status of a claim with one device which has data.
func withData(raw string) resource.ResourceClaimStatus {
	device := entry(driverA, "device-0", "Up")
	setData(&device.Data, raw)
	return allocated(device)
}

func TestStatusChanges(t *testing.T) {
	withParameters := func(raw string) resource.ResourceClaimStatus {
		status := allocated()
		status.Allocation.Devices.Config = []resource.DeviceAllocationConfiguration{{
			Source: resource.AllocationConfigSourceClaim,
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{
				Driver: driverA, Parameters: runtime.RawExtension{Raw: []byte(raw)},
			}},
		}}
		return status
	}
	reserved := func(status resource.ResourceClaimStatus, names ...string) resource.ResourceClaimStatus {
		for _, name := range names {
			status.ReservedFor = append(status.ReservedFor, resource.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)})
		}
		return status
	}
	binding := []statusChange{{field: "allocation"}}
	reservation := []statusChange{{field: "reservedFor"}}
	devices := func(drivers ...string) (changes []statusChange) {
		for _, driver := range drivers {
			changes = append(changes, statusChange{"devices", driver})
		}
		return changes
	}
	a0, a1, b0 := entry(driverA, "device-0", "Up"), entry(driverA, "device-1", "Up"), entry(driverB, "device-0", "Up")
	changedA0, changedB0 := entry(driverA, "device-0", "Down"), entry(driverB, "device-0", "Down")

	for name, tc := range map[string]struct {
		old, new resource.ResourceClaimStatus
		want     []statusChange
	}{
		"nothing at all":                 {},
		"nothing":                        {reserved(allocated(a0, b0), "pod"), reserved(allocated(a0, b0), "pod"), nil},
		"empty lists instead of none":    {allocated(), resource.ResourceClaimStatus{Allocation: onNode("node-a"), Devices: []resource.AllocatedDeviceStatus{}, ReservedFor: []resource.ResourceClaimConsumerReference{}}, nil},
		"order of devices":               {allocated(a0, a1, b0), allocated(b0, a1, a0), nil},
		"allocated":                      {resource.ResourceClaimStatus{}, allocated(), binding},
		"deallocated":                    {allocated(), resource.ResourceClaimStatus{}, binding},
		"deallocated with devices":       {allocated(a0, b0), resource.ResourceClaimStatus{}, binding},
		"other node":                     {allocated(), resource.ResourceClaimStatus{Allocation: onNode("node-b")}, binding},
		"reserved":                       {allocated(), reserved(allocated(), "pod"), reservation},
		"not reserved anymore":           {reserved(allocated(), "pod"), allocated(), reservation},
		"reserved for another one":       {reserved(allocated(), "pod"), reserved(allocated(), "other"), reservation},
		"reserved for one more":          {reserved(allocated(), "pod"), reserved(allocated(), "pod", "other"), reservation},
		"reserved without allocation":    {resource.ResourceClaimStatus{}, reserved(resource.ResourceClaimStatus{}, "pod"), reservation},
		"allocated and reserved":         {resource.ResourceClaimStatus{}, reserved(allocated(), "pod"), binding},
		"added device":                   {allocated(), allocated(a0), devices(driverA)},
		"added to others":                {allocated(b0), allocated(a0, b0), devices(driverA)},
		"changed device":                 {allocated(a0, b0), allocated(changedA0, b0), devices(driverA)},
		"removed device":                 {allocated(a0, b0), allocated(b0), devices(driverA)},
		"removed last device":            {allocated(a0), allocated(), devices(driverA)},
		"two devices of a driver":        {allocated(), allocated(a0, a1), devices(driverA)},
		"two drivers":                    {allocated(), allocated(b0, a0), devices(driverA, driverB)},
		"one added, other removed":       {allocated(b0), allocated(a0), devices(driverA, driverB)},
		"one added, other changed":       {allocated(b0), allocated(a0, changedB0), devices(driverA, driverB)},
		"entry handed to another driver": {allocated(a0), allocated(b0), devices(driverA, driverB)},
		"twice the same entry":           {allocated(b0), allocated(b0, b0), devices(driverB)},
		"twice instead of another one":   {allocated(a0, a1), allocated(a0, a0), devices(driverA)},
		"reserved, and added":            {allocated(), reserved(allocated(a0), "pod"), append(slices.Clone(reservation), devices(driverA)...)},
		"allocated, and added":           {resource.ResourceClaimStatus{}, allocated(a0), append(slices.Clone(binding), devices(driverA)...)},
		"parameters in another format":   {withParameters(`{ "b": 1, "a": {"d": [1], "c": 2} }`), withParameters(`{"a":{"c":2,"d":[1]},"b":1}`), binding},
		"data in another format":         {withData(`{"ip":"b"}`), withData(`{"ip": "b"}`), devices(driverA)},
		"data which somebody hid":        {withData(`{"ip":"b"}`), withData(`{"ip":"a","ip":"b"}`), devices(driverA)},
		"other parameters":               {withParameters(`{"a":1}`), withParameters(`{"a":2}`), binding},
		"other order in a list":          {withParameters(`{"a":[1,2]}`), withParameters(`{"a":[2,1]}`), binding},
		"invalid parameters":             {withParameters(`{"a":`), withParameters(`{"a":1}`), binding},
		"same invalid parameters":        {withParameters(`{"a":`), withParameters(`{"a":`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			status, oldStatus := tc.new.DeepCopy(), tc.old.DeepCopy()
			if got := statusChanges(&tc.new, &tc.old); !slices.Equal(got, tc.want) {
				t.Errorf("want %v, got %v", tc.want, got)
			}
			// Validation comes next, and uses both.
			if !reflect.DeepEqual(&tc.new, status) || !reflect.DeepEqual(&tc.old, oldStatus) {
				t.Errorf("finding out what changed has changed something: %v, %v", tc.new, tc.old)
			}
		})
	}
}

func TestNotOnNode(t *testing.T) {
	const plugin = "system:serviceaccount:kube-system:plugin"
	change := func(f func(*core.NodeSelector)) *resource.AllocationResult {
		allocation := onNode("node-a")
		f(allocation.NodeSelector)
		return allocation
	}
	hostname := core.NodeSelectorRequirement{Key: "kubernetes.io/hostname", Operator: core.NodeSelectorOpIn, Values: []string{"node-a"}}
	const elsewhere = "the claim is not allocated for exactly one node"

	for name, tc := range map[string]struct {
		user       string
		nodes      []string
		allocation *resource.AllocationResult
		want       string
	}{
		"here":                   {plugin, []string{"node-a"}, onNode("node-a"), ""},
		"other node":             {plugin, []string{"node-b"}, onNode("node-a"), `the user is on the node "node-b", the claim is allocated for the node "node-a"`},
		"token without node":     {plugin, nil, onNode("node-a"), "the token of the user is not bound to a node"},
		"two nodes":              {plugin, []string{"node-a", "node-b"}, onNode("node-a"), "the user has more than one node"},
		"twice the node":         {plugin, []string{"node-a", "node-a"}, onNode("node-a"), "the user has more than one node"},
		"empty node name":        {plugin, []string{""}, onNode("node-a"), "the user has an invalid node name"},
		"invalid node name":      {plugin, []string{"Node_A"}, onNode("Node_A"), "the user has an invalid node name"},
		"user":                   {"jane", []string{"node-a"}, onNode("node-a"), "this is not a service account"},
		"node":                   {"system:node:node-a", []string{"node-a"}, onNode("node-a"), "this is not a service account"},
		"almost service account": {"system:serviceaccount:plugin", []string{"node-a"}, onNode("node-a"), "this is not a service account"},
		"not allocated":          {plugin, []string{"node-a"}, nil, elsewhere},
		"all nodes":              {plugin, []string{"node-a"}, &resource.AllocationResult{}, elsewhere},
		"empty selector":         {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms = nil }), elsewhere},
		"empty term":             {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms[0] = core.NodeSelectorTerm{} }), elsewhere},
		"two terms":              {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms = append(s.NodeSelectorTerms, s.NodeSelectorTerms[0]) }), elsewhere},
		"two names": {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) {
			s.NodeSelectorTerms[0].MatchFields[0].Values = []string{"node-a", "node-b"}
		}), elsewhere},
		"no name":      {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms[0].MatchFields[0].Values = nil }), elsewhere},
		"empty name":   {plugin, []string{""}, onNode(""), elsewhere},
		"any but that": {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms[0].MatchFields[0].Operator = core.NodeSelectorOpNotIn }), elsewhere},
		"other field":  {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { s.NodeSelectorTerms[0].MatchFields[0].Key = "metadata.namespace" }), elsewhere},
		"two fields":   {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) { f := &s.NodeSelectorTerms[0].MatchFields; *f = append(*f, (*f)[0]) }), elsewhere},
		"label": {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) {
			s.NodeSelectorTerms[0] = core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{hostname}}
		}), elsewhere},
		"name, and a label": {plugin, []string{"node-a"}, change(func(s *core.NodeSelector) {
			s.NodeSelectorTerms[0].MatchExpressions = []core.NodeSelectorRequirement{hostname}
		}), elsewhere},
		"service account of node": {"system:serviceaccount:node-a:node-a", []string{"node-a"}, onNode("node-a"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := &user.DefaultInfo{Name: tc.user, Extra: map[string][]string{nodeKey: tc.nodes}}
			if got := notOnNode(u, tc.allocation); got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

// asked is an authorizer that records what it gets asked, and allows what is listed.
type asked struct {
	t       *testing.T
	allowed []string
	err     error
	// silent leaves the reason out, as authorizers may.
	silent bool
	got    []string
}

func (a *asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if attributes.GetAPIGroup() != "resource.k8s.io" || attributes.GetAPIVersion() != "v1beta1" || attributes.GetResource() != "resourceclaims" ||
		!attributes.IsResourceRequest() || attributes.GetPath() != "/path" || attributes.GetUser().GetName() != "system:serviceaccount:kube-system:plugin" {
		a.t.Errorf("unexpected attributes: %+v", attributes)
	}
	question := fmt.Sprintf("%s %s/%s in %s", attributes.GetVerb(), attributes.GetSubresource(), attributes.GetName(), attributes.GetNamespace())
	a.got = append(a.got, question)
	if slices.Contains(a.allowed, question) {
		return authorizer.DecisionAllow, "", a.err
	}
	if a.silent {
		return authorizer.DecisionDeny, "", a.err
	}
	return authorizer.DecisionNoOpinion, "no role", a.err
}

// request is the context of a request by a plugin.
func request(verb string, nodes ...string) context.Context {
	ctx := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "system:serviceaccount:kube-system:plugin", Extra: map[string][]string{nodeKey: nodes}})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: "resource.k8s.io", APIVersion: "v1beta1", Path: "/path",
		Namespace: "ns", Resource: "resourceclaims", Subresource: "status", Name: "claim",
	})
}

func claimWith(status resource.ResourceClaimStatus) *resource.ResourceClaim {
	return &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}, Status: status}
}

func TestAuthorizeStatusUpdate(t *testing.T) {
	own, other := entry(driverA, "device-0", "Up"), entry(driverB, "device-0", "Up")
	associated := "associated-node:update driver/a.example.com in ns"
	arbitrary := "arbitrary-node:update driver/a.example.com in ns"
	arbitraryB := "arbitrary-node:update driver/b.example.com in ns"
	associatedB := "associated-node:update driver/b.example.com in ns"

	for name, tc := range map[string]struct {
		verb     string
		nodes    []string
		old, new resource.ResourceClaimStatus
		allowed  []string
		err      error
		silent   bool
		// asks is what the authorizer has to be asked, in this order.
		asks []string
		// errors are parts of the errors.
		errors [][]string
	}{
		"nothing changed": {old: allocated(own), new: allocated(own)},
		"own entry":       {nodes: []string{"node-a"}, old: allocated(), new: allocated(own), allowed: []string{associated}, asks: []string{associated}},
		"own entry, patched": {verb: "patch", nodes: []string{"node-a"}, old: allocated(), new: allocated(own),
			allowed: []string{"associated-node:patch driver/a.example.com in ns"}, asks: []string{"associated-node:patch driver/a.example.com in ns"}},
		"one verb is not the other": {verb: "patch", nodes: []string{"node-a"}, old: allocated(), new: allocated(own), allowed: []string{associated, arbitrary},
			asks:   []string{"associated-node:patch driver/a.example.com in ns", "arbitrary-node:patch driver/a.example.com in ns"},
			errors: [][]string{{"status.devices", `"associated-node:patch" or "arbitrary-node:patch"`, `driver "a.example.com"`, `namespace "ns"`, "no role"}}},
		"any node": {nodes: []string{"node-a"}, old: allocated(), new: allocated(own), allowed: []string{arbitrary}, asks: []string{associated, arbitrary}},
		"other node": {nodes: []string{"node-b"}, old: allocated(), new: allocated(own), allowed: []string{associated}, asks: []string{arbitrary},
			errors: [][]string{{"status.devices", `"arbitrary-node:update"`, `"associated-node:update" is not enough because the user is on the node "node-b"`}}},
		"other node, any node": {nodes: []string{"node-b"}, old: allocated(), new: allocated(own), allowed: []string{arbitrary}, asks: []string{arbitrary}},
		"other driver": {nodes: []string{"node-a"}, old: allocated(), new: allocated(other), allowed: []string{associated, arbitrary}, asks: []string{associatedB, arbitraryB},
			errors: [][]string{{"status.devices", `driver "b.example.com"`}}},
		"own and other driver": {nodes: []string{"node-a"}, old: allocated(), new: allocated(other, own), allowed: []string{associated}, asks: []string{associated, associatedB, arbitraryB},
			errors: [][]string{{"status.devices", `driver "b.example.com"`}}},
		"both drivers": {nodes: []string{"node-a"}, old: allocated(), new: allocated(other, own), asks: []string{associated, arbitrary, associatedB, arbitraryB},
			errors: [][]string{{`driver "a.example.com"`}, {`driver "b.example.com"`}}},
		"both allowed": {old: allocated(), new: allocated(other, own), allowed: []string{arbitrary, arbitraryB}, asks: []string{arbitrary, arbitraryB}},
		"removed":      {nodes: []string{"node-a"}, old: allocated(other), new: allocated(), allowed: []string{associated}, asks: []string{associatedB, arbitraryB}, errors: [][]string{{`driver "b.example.com"`}}},
		"bound":        {old: resource.ResourceClaimStatus{}, new: allocated(), allowed: []string{"update binding/ in "}, asks: []string{"update binding/ in "}},
		"not bound": {nodes: []string{"node-a"}, old: resource.ResourceClaimStatus{}, new: allocated(), allowed: []string{associated, arbitrary}, asks: []string{"update binding/ in "},
			errors: [][]string{{"status.allocation", `"update"`, "resourceclaims/binding", "cluster scope", "no role"}}},
		"deallocated": {old: allocated(own, other), new: resource.ResourceClaimStatus{}, allowed: []string{"update binding/ in "}, asks: []string{"update binding/ in "}},
		"bound and own": {nodes: []string{"node-a"}, old: resource.ResourceClaimStatus{}, new: allocated(own), allowed: []string{associated}, asks: []string{"update binding/ in ", associated},
			errors: [][]string{{"status.allocation"}}},
		"reserved": {nodes: []string{"node-a"}, verb: "patch", old: allocated(),
			new:  resource.ResourceClaimStatus{Allocation: onNode("node-a"), ReservedFor: []resource.ResourceClaimConsumerReference{{Name: "pod"}}},
			asks: []string{"patch binding/ in "}, errors: [][]string{{"status.reservedFor", `"patch"`, "resourceclaims/binding"}}},
		"allowed with error": {old: allocated(), new: allocated(own), allowed: []string{arbitrary}, err: errors.New("broken rule"), asks: []string{arbitrary}},
		"denied with error":  {old: allocated(), new: allocated(own), err: errors.New("broken rule"), asks: []string{arbitrary}, errors: [][]string{{"broken rule; no role"}}},
		"denied without reason": {nodes: []string{"node-a"}, old: allocated(), new: allocated(own), silent: true, asks: []string{associated, arbitrary},
			errors: [][]string{{"to change the entries of that driver."}}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.verb == "" {
				tc.verb = "update"
			}
			a := &asked{t: t, allowed: tc.allowed, err: tc.err, silent: tc.silent}
			errs := AuthorizeStatusUpdate(request(tc.verb, tc.nodes...), claimWith(tc.new), claimWith(tc.old), a)
			if !slices.Equal(a.got, tc.asks) {
				t.Errorf("want questions %q, got %q", tc.asks, a.got)
			}
			if len(errs) != len(tc.errors) {
				t.Fatalf("want %d errors, got: %v", len(tc.errors), errs)
			}
			for i, texts := range tc.errors {
				if errs[i].Type != field.ErrorTypeForbidden {
					t.Errorf("want a forbidden field, got: %v", errs[i])
				}
				for _, text := range texts {
					if !strings.Contains(errs[i].Error(), text) {
						t.Errorf("no %q in: %v", text, errs[i])
					}
				}
			}
		})
	}
}

// TestCannotAuthorize checks that nothing is allowed when it cannot be found out.
func TestCannotAuthorize(t *testing.T) {
	withoutUser := genericapirequest.WithRequestInfo(context.Background(), &genericapirequest.RequestInfo{Verb: "update"})
	withoutInfo := genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "jane"})
	for name, tc := range map[string]struct {
		ctx        context.Context
		authorizer authorizer.Authorizer
	}{
		"no authorizer":   {request("update"), nil},
		"no user":         {withoutUser, &asked{t: t}},
		"no request info": {withoutInfo, &asked{t: t}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := AuthorizeStatusUpdate(tc.ctx, claimWith(allocated()), claimWith(resource.ResourceClaimStatus{}), tc.authorizer)
			if len(errs) != 1 || errs[0].Type != field.ErrorTypeInternal {
				t.Errorf("want an internal error, got: %v", errs)
			}
			if errs := AuthorizeStatusUpdate(tc.ctx, claimWith(allocated()), claimWith(allocated()), tc.authorizer); len(errs) > 0 {
				t.Errorf("nothing changed, but: %v", errs)
			}
		})
	}
}

// wrapped is the strategy of upstream.
type wrapped struct {
	rest.RESTUpdateStrategy
	called bool
	// valid is set if it finds no mistake.
	valid bool
}

func (w *wrapped) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) {
	obj.(*resource.ResourceClaim).Labels = map[string]string{"upstream": "called"}
}

func (w *wrapped) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	w.called = true
	if w.valid {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status"), nil, "from upstream")}
}

// TestFormat checks who may write JSON in which format, and what is stored then.
func TestFormat(t *testing.T) {
	const (
		stored  = `{ "b": 1.0, "a": 12345678901234567890 }`
		sorted  = `{"a":12345678901234567890,"b":1}`
		rounded = `{"a":12345678901234567000,"b":1}`
		other   = `{"a":12345678901234567891,"b":1}`
		twice   = `{"a":0,"a":12345678901234567890,"b":1}`
		hidden  = `{"ip":"a","ip":"b"}`
		plain   = `{"ip":"b"}`
	)
	for name, tc := range map[string]struct {
		// old is what is stored, if it is something else.
		old, sent, want string
		// may is set if the user may write the entry, withoutChecks if nobody checks that, and
		// withoutFormat if the format is not kept.
		may, withoutChecks, withoutFormat bool
		refused                           bool
	}{
		"sorted":                    {sent: sorted, want: stored},
		"sorted, may":               {sent: sorted, want: stored, may: true},
		"sorted, no checks":         {sent: sorted, want: stored, withoutChecks: true},
		"sorted, format not kept":   {sent: sorted, want: sorted, withoutFormat: true, refused: true},
		"rounded":                   {sent: rounded, want: stored},
		"rounded, may":              {sent: rounded, want: rounded, may: true},
		"rounded, no checks":        {sent: rounded, want: rounded, withoutChecks: true},
		"rounded, format not kept":  {sent: rounded, want: rounded, withoutFormat: true, refused: true},
		"rounds alike":              {sent: other, want: other, refused: true},
		"rounds alike, may":         {sent: other, want: other, may: true},
		"key twice":                 {sent: twice, want: twice, refused: true},
		"key twice, may":            {sent: twice, want: twice, may: true},
		"correction":                {old: hidden, sent: plain, want: hidden},
		"correction, may":           {old: hidden, sent: plain, want: plain, may: true},
		"hides":                     {old: plain, sent: hidden, want: hidden, refused: true},
		"hides, may":                {old: plain, sent: hidden, want: hidden, may: true},
		"hides, format not kept":    {old: plain, sent: hidden, want: hidden, withoutFormat: true, refused: true},
		"not UTF-8, may":            {old: "{\"a\":\"\xff\"}", sent: "{\"a\":\"\xfe\"}", want: "{\"a\":\"\xfe\"}", may: true},
		"not UTF-8":                 {old: "{\"a\":\"\xff\"}", sent: "{\"a\":\"\xfe\"}", want: "{\"a\":\"\xfe\"}", refused: true},
		"not UTF-8, formatted":      {old: "{\"a\":\"\xff\"}", sent: "{\"a\":\"\uFFFD\"}", want: "{\"a\":\"\xff\"}"},
		"not UTF-8, formatted, may": {old: "{\"a\":\"\xff\"}", sent: "{\"a\":\"\uFFFD\"}", want: "{\"a\":\"\uFFFD\"}", may: true},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimDeviceStatus, !tc.withoutFormat)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimGranularStatusAuthorization, !tc.withoutChecks)
			if tc.old == "" {
				tc.old = stored
			}
			a := &asked{t: t}
			if tc.may {
				a.allowed = []string{"associated-node:update driver/a.example.com in ns"}
			}
			strategy := NewStatusStrategy(&wrapped{valid: true}, a)
			claim, oldClaim := claimWith(withData(tc.sent)), claimWith(withData(tc.old))
			strategy.PrepareForUpdate(request("update", "node-a"), claim, oldClaim)
			if got := string(claim.Status.Devices[0].Data.Raw); got != tc.want {
				t.Errorf("want %s, got %s", tc.want, got)
			}
			if errs := strategy.ValidateUpdate(request("update", "node-a"), claim, oldClaim); len(errs) > 0 != tc.refused {
				t.Errorf("want an error: %v, got: %v", tc.refused, errs)
			}
		})
	}
}

// TestTooMany checks that what cannot be valid is refused before anything is asked: it could be a
// question for each of many entries.
func TestTooMany(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimDeviceStatus, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimGranularStatusAuthorization, true)
	many := func(n int, format string) (entries []resource.AllocatedDeviceStatus) {
		for i := range n {
			entries = append(entries, entry(strings.ReplaceAll(format, "%d", fmt.Sprint(i)), "device-0", "Up"))
		}
		return entries
	}
	manyAllocated := allocated(many(20000, "driver-%d.example.com")...)
	manyAllocated.Allocation.Devices.Results = nil
	for _, device := range manyAllocated.Devices {
		manyAllocated.Allocation.Devices.Results = append(manyAllocated.Allocation.Devices.Results, resource.DeviceRequestAllocationResult{Driver: device.Driver, Pool: device.Pool, Device: device.Device})
	}
	shared := allocated(many(3, driverA)...)
	shared.Allocation.Devices.Results = slices.Repeat(shared.Allocation.Devices.Results[:1], 2)
	own := entry(driverA, "device-0", "Up")
	for name, tc := range map[string]struct {
		status resource.ResourceClaimStatus
		kind   field.ErrorType
		path   string
	}{
		"many drivers":                 {allocated(many(20000, "driver-%d.example.com")...), field.ErrorTypeInvalid, "status.devices[0]"},
		"many drivers after own":       {allocated(append([]resource.AllocatedDeviceStatus{own}, many(20000, "driver-%d.example.com")...)...), field.ErrorTypeInvalid, "status.devices[1]"},
		"many times the same":          {allocated(many(20000, driverA)...), field.ErrorTypeDuplicate, "status.devices[1]"},
		"twice the same":               {allocated(own, own), field.ErrorTypeDuplicate, "status.devices[1]"},
		"more than the shared devices": {shared, field.ErrorTypeDuplicate, "status.devices[2]"},
		"not allocated":                {allocated(entry(driverA, "device-7", "Up")), field.ErrorTypeInvalid, "status.devices[0]"},
		"many allocated":               {manyAllocated, field.ErrorTypeTooMany, "status.allocation.devices.results"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asked{t: t}
			strategy := NewStatusStrategy(&wrapped{valid: true}, a)
			claim, oldClaim := claimWith(tc.status), claimWith(allocated(own))
			strategy.PrepareForUpdate(request("update", "node-a"), claim, oldClaim)
			errs := strategy.ValidateUpdate(request("update", "node-a"), claim, oldClaim)
			if len(errs) != 1 || errs[0].Type != tc.kind || errs[0].Field != tc.path {
				t.Errorf("want %s of %s, got: %v", tc.kind, tc.path, errs)
			}
			if len(a.got) > 0 {
				t.Errorf("%d questions", len(a.got))
			}
		})
	}
}

func TestStatusStrategy(t *testing.T) {
	for name, tc := range map[string]struct {
		enabled, allowed bool
		validated        bool
	}{
		"off":     {false, false, true},
		"allowed": {true, true, true},
		"denied":  {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimDeviceStatus, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimGranularStatusAuthorization, tc.enabled)
			a := &asked{t: t}
			if tc.allowed {
				a.allowed = []string{"update binding/ in "}
			}
			upstream := &wrapped{}
			claim, oldClaim := claimWith(withData(`{"a":1}`)), claimWith(withData(`{ "a": 1 }`))
			NewStatusStrategy(upstream, a).PrepareForUpdate(request("update"), claim, oldClaim)
			if claim.Labels["upstream"] != "called" {
				t.Error("upstream did not prepare the claim")
			}
			if !reflect.DeepEqual(claim.Status, oldClaim.Status) {
				t.Errorf("want the format that is stored, got %s", claim.Status.Devices[0].Data.Raw)
			}
			errs := NewStatusStrategy(upstream, a).ValidateUpdate(request("update"), claimWith(allocated()), claimWith(resource.ResourceClaimStatus{}))
			if upstream.called != tc.validated {
				t.Errorf("upstream's validation was called: %v", upstream.called)
			}
			if got := len(errs) == 1 && strings.Contains(errs[0].Error(), "from upstream"); got != tc.validated {
				t.Errorf("unexpected errors: %v", errs)
			}
			if asked := len(a.got) > 0; asked != tc.enabled {
				t.Errorf("questions: %q", a.got)
			}
		})
	}
}
