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

package why

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// features of the allocator are all on: an API server whose gate is off does not let their fields through.
var features = structured.Features{
	AdminAccess: true, CompatibilityGroups: true, ConsumableCapacity: true, DerivedAttributes: true, DeviceBindingAndStatus: true,
	DeviceTaints: true, FractionalCapacityRange: true, ListTypeAttributes: true, OptionalNodeOperations: true,
	PartitionableDevices: true, PrioritizedList: true,
}

var celFeatures = dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}

// request is one of a claim, or an alternative of one. They have nearly the same fields.
type request struct {
	resourcev1.ExactDeviceRequest
	claim *view.Claim
	// field is where it stands in the claim.
	field string
	// alternative is true if others in the same request may do, too.
	alternative bool
}

func requestsOf(claim *view.Claim) []request {
	var list []request
	for i, r := range claim.Spec.Devices.Requests {
		field := fmt.Sprintf("spec.devices.requests[%d]", i)
		if r.Exactly != nil {
			list = append(list, request{ExactDeviceRequest: *r.Exactly, claim: claim, field: field + ".exactly"})
		}
		for j, sub := range r.FirstAvailable {
			list = append(list, request{
				ExactDeviceRequest: resourcev1.ExactDeviceRequest{
					DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode,
					Count: sub.Count, Tolerations: sub.Tolerations, Capacity: sub.Capacity,
				},
				claim: claim, field: fmt.Sprintf("%s.firstAvailable[%d]", field, j), alternative: true,
			})
		}
	}
	return list
}

// expression is a selector, and what it did to the devices that those before it left.
type expression struct {
	text, object, field string
	seen, excluded      int
	// err is why it could not be evaluated, for one device at least.
	err error
}

// match is which devices a request can have, were they all free.
type match struct {
	request
	expressions []*expression
	devices     []*view.Device
}

// matchDevices evaluates the selectors one after the other, as the scheduler does. Class must exist.
func (d *diagnosis) matchDevices(ctx context.Context, r request, class *resourcev1.DeviceClass) *match {
	m := &match{request: r}
	add := func(selectors []resourcev1.DeviceSelector, object, field string) {
		for i, selector := range selectors {
			if selector.CEL != nil {
				m.expressions = append(m.expressions, &expression{text: selector.CEL.Expression, object: object, field: fmt.Sprintf("%s[%d].cel.expression", field, i)})
			}
		}
	}
	add(class.Spec.Selectors, "deviceclass/"+class.Name, "spec.selectors")
	add(r.Selectors, claimObject(r.claim), r.field+".selectors")
	m.devices = d.s.Devices()
	for _, e := range m.expressions {
		e.seen = len(m.devices)
		compiled := d.cel.GetOrCompile(e.text)
		if compiled.Error != nil {
			e.err = compiled.Error
			m.devices = nil
			break
		}
		var left []*view.Device
		for _, device := range m.devices {
			matches, _, err := compiled.DeviceMatches(ctx, dracel.Device{
				Driver: device.Driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes, Capacity: device.Capacity,
			})
			if err != nil && e.err == nil {
				e.err = fmt.Errorf("device %s: %w", device.ID, dracel.EnhanceRuntimeError(err))
			}
			if matches {
				left = append(left, device)
			}
		}
		e.excluded = e.seen - len(left)
		m.devices = left
	}
	return m
}

// drivers are those that the expressions of a request compare device.driver with.
func (m *match) drivers() []string {
	names := sets.New[string]()
	for _, e := range m.expressions {
		compiled := dracel.GetCompiler(celFeatures).CompileCELExpression(e.text, dracel.Options{DisableCostEstimation: true})
		if compiled.Environment == nil {
			continue
		}
		tree, issues := compiled.Environment.Parse(e.text)
		if issues.Err() != nil {
			continue
		}
		names.Insert(comparedDrivers(tree)...)
	}
	return sets.List(names)
}

func comparedDrivers(tree *cel.Ast) []string {
	var names []string
	for _, call := range celast.MatchDescendants(celast.NavigateAST(tree.NativeRep()), celast.FunctionMatcher(operators.Equals)) {
		args := call.AsCall().Args()
		for i, arg := range args {
			if arg.Kind() != celast.SelectKind || arg.AsSelect().FieldName() != "driver" || args[1-i].Kind() != celast.LiteralKind {
				continue
			}
			if name, ok := args[1-i].AsLiteral().Value().(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// tainted returns the first taint because of which a request may not have a device, nil if there is none.
func (m *match) tainted(device *view.Device) *view.Taint {
	for i, taint := range device.Taints {
		// Other effects do not keep pods away.
		keeps := taint.Effect == resourcev1.DeviceTaintEffectNoSchedule || taint.Effect == resourcev1.DeviceTaintEffectNoExecute
		if keeps && !slices.ContainsFunc(m.Tolerations, func(t resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint.DeviceTaint) }) {
			return &device.Taints[i]
		}
	}
	return nil
}

// obstacle is something that a world without it would not have.
type obstacle int

const (
	selectors obstacle = iota
	counts
	capacities
	constraints
	taints
	busy
	nodes
	pools
	obstacles
)

type without map[obstacle]bool

// canAllocate asks the allocator of the scheduler whether the claims would get devices in a world without
// some obstacles. So the causes are proven, and nothing of the allocation is imitated.
func (d *diagnosis) canAllocate(ctx context.Context, w without) (bool, error) {
	f := features
	f.DeviceTaints = !w[taints]
	state, byNode := d.allocated(w[busy]), splitSlices(d.slices(w[pools]))
	claims := make([]*resourcev1.ResourceClaim, 0, len(d.claims))
	for _, c := range d.unallocated() {
		claims = append(claims, relax(c.ResourceClaim, w))
	}
	for _, node := range d.candidates() {
		if !w[nodes] && d.unfit(node) != "" {
			continue
		}
		// It goes through all slices for each node. Those of other nodes would be the most.
		allocator, err := structured.NewAllocator(ctx, f, state, classes{d.s}, byNode.of(node.Name), d.cel)
		if err != nil {
			return false, err
		}
		results, err := allocator.Allocate(ctx, node, claims)
		if errors.Is(err, structured.ErrFailedAllocationOnNode) {
			// As for the scheduler: not on this node, for instance because a pool that it sees is invalid.
			continue
		}
		if err != nil || len(results) == len(claims) {
			return err == nil, err
		}
	}
	return false, nil
}

// nodeSlices are those of pools that one node has for itself, and of all other pools under the empty name.
type nodeSlices map[string][]*resourcev1.ResourceSlice

// splitSlices keeps pools together: a pool with missing slices is not used.
func splitSlices(list []*resourcev1.ResourceSlice) nodeSlices {
	owner := map[string]string{}
	for _, slice := range list {
		pool, node := slice.Spec.Driver+"/"+slice.Spec.Pool.Name, ptr.Deref(slice.Spec.NodeName, "")
		if before, seen := owner[pool]; seen && before != node {
			node = ""
		}
		owner[pool] = node
	}
	split := nodeSlices{}
	for _, slice := range list {
		node := owner[slice.Spec.Driver+"/"+slice.Spec.Pool.Name]
		split[node] = append(split[node], slice)
	}
	return split
}

func (n nodeSlices) of(node string) []*resourcev1.ResourceSlice {
	return slices.Concat(n[""], n[node])
}

// relax returns the claim that the user could have written.
func relax(claim *resourcev1.ResourceClaim, w without) *resourcev1.ResourceClaim {
	claim = claim.DeepCopy()
	if w[constraints] {
		claim.Spec.Devices.Constraints = nil
	}
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			if w[selectors] {
				r.Exactly.Selectors = nil
			}
			if w[counts] && r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				r.Exactly.Count = 1
			}
			if w[capacities] {
				r.Exactly.Capacity = nil
			}
		}
		for j := range r.FirstAvailable {
			if w[selectors] {
				r.FirstAvailable[j].Selectors = nil
			}
			if w[counts] && r.FirstAvailable[j].AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				r.FirstAvailable[j].Count = 1
			}
			if w[capacities] {
				r.FirstAvailable[j].Capacity = nil
			}
		}
	}
	return claim
}

// allocated is what the claims of the cluster have.
func (d *diagnosis) allocated(nothing bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	if nothing {
		return state
	}
	for _, holders := range d.s.Holders() {
		for _, h := range holders {
			if h.IsAdmin() {
				continue
			}
			id := structured.MakeDeviceID(h.Result.Driver, h.Result.Pool, h.Result.Device)
			if h.Result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, h.Result.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, h.Result.ConsumedCapacity))
		}
	}
	return state
}

// slices has the taints of the rules in the slices, where the allocator looks for them.
func (d *diagnosis) slices(complete bool) []*resourcev1.ResourceSlice {
	found := map[string]int64{}
	for _, pool := range d.s.IncompletePools() {
		found[pool.Driver+"/"+pool.Name] = pool.Found
	}
	list := d.s.LatestSlices()
	for i, slice := range list {
		n, incomplete := found[slice.Spec.Driver+"/"+slice.Spec.Pool.Name]
		if len(d.s.TaintRules) == 0 && (!incomplete || !complete) {
			continue
		}
		slice = slice.DeepCopy()
		if incomplete && complete {
			slice.Spec.Pool.ResourceSliceCount = n
		}
		list[i] = slice
	}
	if len(d.s.TaintRules) > 0 {
		byID := map[view.ID]*resourcev1.Device{}
		for _, slice := range list {
			for j := range slice.Spec.Devices {
				byID[view.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: slice.Spec.Devices[j].Name}] = &slice.Spec.Devices[j]
			}
		}
		for _, device := range d.s.Devices() {
			for _, taint := range device.Taints {
				if taint.Rule != "" {
					byID[device.ID].Taints = append(byID[device.ID].Taints, taint.DeviceTaint)
				}
			}
		}
	}
	return list
}

type classes struct{ *view.Snapshot }

func (c classes) List() ([]*resourcev1.DeviceClass, error) { return c.Classes, nil }

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.Class(name); class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

// candidates are the nodes where it makes sense to ask: those that have a device that a request matches.
func (d *diagnosis) candidates() []*corev1.Node {
	names := sets.New[string]()
	for _, m := range d.matches {
		for _, device := range m.devices {
			if device.NodeName() == "" {
				return d.s.Nodes
			}
			names.Insert(device.NodeName())
		}
	}
	var list []*corev1.Node
	for _, node := range d.s.Nodes {
		if names.Has(node.Name) {
			list = append(list, node)
		}
	}
	return list
}

// unfit says why the pod cannot go to a node, whatever devices are there. It is empty if it can, as far as is
// known: only the scheduler knows how full a node is.
func (d *diagnosis) unfit(node *corev1.Node) string {
	if d.pod == nil {
		return ""
	}
	// Each obstacle and each device asks again.
	if d.reasons == nil {
		d.reasons = make(map[string]string)
	}
	reason, known := d.reasons[node.Name]
	if !known {
		reason = d.whyUnfit(node)
		d.reasons[node.Name] = reason
	}
	return reason
}

func (d *diagnosis) whyUnfit(node *corev1.Node) string {
	if d.pod.Spec.NodeName != "" && d.pod.Spec.NodeName != node.Name {
		return "the pod is on " + d.pod.Spec.NodeName
	}
	if !isReady(node) {
		return "it is not ready"
	}
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(d.log, d.pod.Spec.Tolerations, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, true) {
		return "it is cordoned"
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(d.pod).Match(node); err != nil || !matches {
		return "the node selector or affinity of the pod excludes it"
	}
	taint, untolerated := corev1helpers.FindMatchingUntoleratedTaint(d.log, node.Spec.Taints, d.pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true)
	if untolerated {
		return "the pod does not tolerate its taint " + taint.ToString()
	}
	for _, c := range d.claims {
		if c.claim == nil || c.claim.Status.Allocation == nil || c.claim.Status.Allocation.NodeSelector == nil {
			continue
		}
		if ok, err := corev1helpers.MatchNodeSelectorTerms(node, c.claim.Status.Allocation.NodeSelector); err != nil || !ok {
			return "claim " + c.claim.Name + " is allocated for other nodes"
		}
	}
	return ""
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// minimal returns the obstacles because of which there is no allocation: those that are enough alone, or else
// a smallest set of them. It is nil if the claims can be allocated, or if nothing would help. An error of the
// allocator is returned only then: without an obstacle, there may be none.
func (d *diagnosis) minimal(ctx context.Context) ([]obstacle, error) {
	var firstErr error
	canAllocate := func(w without) bool {
		possible, err := d.canAllocate(ctx, w)
		if firstErr == nil {
			firstErr = err
		}
		return possible
	}
	if d.possible = canAllocate(without{}); d.possible {
		return nil, nil
	}
	var alone []obstacle
	for o := range obstacles {
		if canAllocate(without{o: true}) {
			alone = append(alone, o)
		}
	}
	if len(alone) > 0 {
		return alone, nil
	}
	all := without{}
	for o := range obstacles {
		all[o] = true
	}
	if !canAllocate(all) {
		return nil, firstErr
	}
	for o := range obstacles {
		delete(all, o)
		if !canAllocate(all) {
			all[o] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// few joins the first names, and says how many there are.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// claimObject is not for the claim of extended resources, which has no name: see asExtended.
func claimObject(claim *view.Claim) string { return "resourceclaim/" + claim.Name }

func isAdmin(r request) bool { return ptr.Deref(r.AdminAccess, false) }
