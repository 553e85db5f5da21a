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
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

const (
	// patience is how long others may take for what usually takes no time.
	patience = 10 * time.Second
	// maxDetails is how many lines there are below one finding.
	maxDetails = 10
	// maxAllocation limits how long the allocator is asked: its work is exponential for some claims.
	maxAllocation = 20 * time.Second
)

func matchesNode(node *corev1.Node, selector *corev1.NodeSelector) bool {
	matches, err := corev1helpers.MatchNodeSelectorTerms(node, selector)
	return err == nil && matches
}

// nothingMatches is about requests that no device of the cluster can serve.
func nothingMatches(ctx context.Context, d *diagnosis) (findings []Finding) {
	if d.pod != nil && !d.waits() {
		return nil
	}
	for _, claim := range d.unallocated() {
		var alternatives []Finding
		served := false
		for _, r := range requestsOf(claim) {
			class := d.s.Class(r.DeviceClassName)
			if class == nil {
				continue
			}
			m := d.matchDevices(ctx, r, class)
			d.matches = append(d.matches, m)
			f := d.noMatch(m)
			switch {
			case f != nil && r.alternative:
				alternatives = append(alternatives, *f)
			case f != nil:
				findings = append(findings, *f)
			case r.alternative:
				served = true
			}
		}
		if !served {
			findings = append(findings, alternatives...)
		}
	}
	return findings
}

// noMatch returns nil if the expressions let a device through.
func (d *diagnosis) noMatch(m *match) *Finding {
	for _, e := range m.expressions {
		if e.err != nil {
			return &Finding{
				Cause: "selector-fails", Object: e.object, Field: e.field,
				Text:    fmt.Sprintf("the expression %q cannot be evaluated, so the scheduler allocates nothing: %v", e.text, e.err),
				Command: d.show(e.object),
			}
		}
	}
	if len(m.devices) > 0 {
		return nil
	}
	if len(d.s.Slices) == 0 {
		return &Finding{
			Cause: "no-slices", Object: claimObject(m.claim), Field: m.field + ".deviceClassName",
			Text: "there are no ResourceSlices at all: no driver has published devices", Command: "kubectl get resourceslices",
		}
	}
	if drivers := m.drivers(); len(drivers) > 0 && !slices.ContainsFunc(d.s.Slices, func(s *resourcev1.ResourceSlice) bool { return slices.Contains(drivers, s.Spec.Driver) }) {
		return &Finding{
			Cause: "no-slices", Object: "deviceclass/" + m.DeviceClassName, Field: "spec.selectors",
			Text:    fmt.Sprintf("driver %s has published no ResourceSlice: does it run?", few(drivers)),
			Command: "kubectl get resourceslices -o custom-columns=NAME:.metadata.name,DRIVER:.spec.driver,NODE:.spec.nodeName",
		}
	}
	f := &Finding{
		Cause: "selector-matches-nothing", Object: claimObject(m.claim), Field: m.field,
		Text:    fmt.Sprintf("none of %s matches", plural(len(d.s.Devices()), "device", "devices")),
		Command: d.show(claimObject(m.claim)),
	}
	for _, e := range m.expressions {
		f.Details = append(f.Details, fmt.Sprintf("%s %s excludes %d of %d: %s", e.object, e.field, e.excluded, e.seen, e.text))
		if e.seen > 0 && e.excluded == e.seen {
			// This is the one that excluded the last.
			f.Object, f.Field, f.Command = e.object, e.field, d.show(e.object)
		}
	}
	return f
}

func (d *diagnosis) show(object string) string {
	if strings.HasPrefix(object, "deviceclass/") {
		return "kubectl get " + object + " -o yaml"
	}
	return d.kubectl("get %s -o yaml", object)
}

// cannotAllocate is about claims for which there are devices, but not now, not enough or not here.
func cannotAllocate(ctx context.Context, d *diagnosis) (findings []Finding) {
	if d.pod != nil && !d.waits() || len(d.unallocated()) == 0 || d.s.OneNamespace || len(d.s.Nodes) == 0 {
		return nil
	}
	for _, m := range d.matches {
		if len(m.devices) == 0 && !m.alternative {
			// That is a cause of its own, and nothing else can be proven.
			return nil
		}
	}
	if len(d.matches) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxAllocation)
	defer cancel()
	found, err := d.minimal(ctx)
	if ctx.Err() != nil {
		d.tooLarge = true
		return nil
	}
	if err != nil {
		claim := d.matches[0].claim
		return []Finding{{
			Cause: "selector-fails", Object: claimObject(claim), Field: "spec.devices",
			Text: fmt.Sprintf("the allocator cannot work with the claim: %v", err), Command: d.show(claimObject(claim)),
		}}
	}
	for _, o := range found {
		findings = append(findings, d.explain(o)...)
	}
	// Of what helps alone, that which concerns more devices comes first.
	slices.SortStableFunc(findings, func(a, b Finding) int { return b.weight - a.weight })
	return findings
}

func (d *diagnosis) explain(o obstacle) []Finding {
	var f Finding
	m := d.matches[0]
	f.Object, f.Field = claimObject(m.claim), m.field
	switch o {
	case selectors:
		f.Cause, f.Text = "selector-matches-nothing", "no device that the selectors of the claim leave can be had, but others of the class can"
		for _, e := range m.expressions {
			f.Details = append(f.Details, fmt.Sprintf("%s %s excludes %d of %d: %s", e.object, e.field, e.excluded, e.seen, e.text))
		}
		f.Command, f.weight = d.show(f.Object), -1
	case counts:
		for _, other := range d.matches {
			if other.Count > m.Count {
				m = other
			}
		}
		f.Object, f.Field = claimObject(m.claim), m.field+".count"
		f.Cause = "too-few-devices"
		f.Text = fmt.Sprintf("the request wants %d devices on one node, and there are not so many in one place: %d match in the whole cluster", m.Count, len(m.devices))
		f.Command = d.show(f.Object)
	case capacities:
		for _, other := range d.matches {
			if other.Capacity != nil {
				m = other
				break
			}
		}
		f.Object, f.Field = claimObject(m.claim), m.field+".capacity.requests"
		f.Cause, f.Text = "too-little-capacity", "the request wants more capacity of one device than any that matches can give now"
		for _, name := range slices.Sorted(maps.Keys(ptr.Deref(m.Capacity, resourcev1.CapacityRequirements{}).Requests)) {
			wanted := m.Capacity.Requests[name]
			f.Details = append(f.Details, fmt.Sprintf("%s: %s wanted, %s in the largest device", name, wanted.String(), largest(m.devices, name)))
		}
		f.Command = d.show(f.Object)
	case constraints:
		f.Cause, f.Field, f.Text = "constraint-unmet", "spec.devices.constraints", "there are devices for each request, but none together meet the constraints"
		f.Command = d.show(f.Object)
		for _, c := range m.claim.Spec.Devices.Constraints {
			if c.MatchAttribute != nil {
				f.Details = append(f.Details, fmt.Sprintf("matchAttribute %s", *c.MatchAttribute))
			}
			if c.DistinctAttribute != nil {
				f.Details = append(f.Details, fmt.Sprintf("distinctAttribute %s", *c.DistinctAttribute))
			}
		}
		f.weight = len(m.devices)
	case taints:
		return d.explainTaints()
	case busy:
		return d.explainBusy()
	case nodes:
		return d.explainNodes()
	case pools:
		var names []string
		for _, pool := range d.s.IncompletePools() {
			names = append(names, fmt.Sprintf("pool %s/%s: %d of %d ResourceSlices", pool.Driver, pool.Name, pool.Found, pool.Want))
		}
		f.Cause, f.Object, f.Field = "pool-incomplete", "resourceslices", "spec.pool.resourceSliceCount"
		f.Text = "a pool is incomplete, and the scheduler waits for the rest of its ResourceSlices"
		f.Details = names[:min(len(names), maxDetails)]
		f.Command = "kubectl get resourceslices -o custom-columns=NAME:.metadata.name,POOL:.spec.pool.name,GENERATION:.spec.pool.generation,SLICES:.spec.pool.resourceSliceCount"
	}
	return []Finding{f}
}

// largest is how much of a capacity the device has that has most of it.
func largest(devices []*view.Device, name resourcev1.QualifiedName) string {
	var most *resource.Quantity
	for _, device := range devices {
		for own, capacity := range device.Capacity {
			// A driver may leave out its domain, and so may a claim.
			if own == name || string(own) == strings.TrimPrefix(string(name), device.Driver+"/") || string(name) == strings.TrimPrefix(string(own), device.Driver+"/") {
				if most == nil || capacity.Value.Cmp(*most) > 0 {
					most = &capacity.Value
				}
			}
		}
	}
	if most == nil {
		return "nothing"
	}
	return most.String()
}

// reachable returns those of the devices that are not on a node to which the pod cannot go. If there are none,
// then all are as good.
func (d *diagnosis) reachable(devices []*view.Device) []*view.Device {
	var list []*view.Device
	for _, device := range devices {
		if name := device.NodeName(); name != "" {
			if node := d.s.Node(name); node == nil || d.unfit(node) != "" {
				continue
			}
		}
		list = append(list, device)
	}
	if len(list) == 0 {
		return devices
	}
	return list
}

func (d *diagnosis) explainTaints() []Finding {
	var first *Finding
	n, all := 0, 0
	var lines []string
	for _, m := range d.matches {
		for _, device := range d.reachable(m.devices) {
			all++
			taint := m.tainted(device)
			if taint == nil {
				continue
			}
			if n++; first == nil {
				f := d.taintFinding("", device, taint)
				first = &f
			}
			lines = append(lines, fmt.Sprintf("%s: %s", device.ID, taintText(taint)))
		}
	}
	if first == nil {
		return nil
	}
	first.Text = fmt.Sprintf("%d of %s that match are tainted, and the claim does not tolerate it", n, plural(all, "device", "devices"))
	first.Details, first.weight = lines[:min(len(lines), maxDetails)], n
	return []Finding{*first}
}

// explainBusy says who has the devices, and whether they are about to be free.
func (d *diagnosis) explainBusy() []Finding {
	type group struct {
		holders []view.Holder
		lines   []string
	}
	groups := map[string]*group{}
	busy := 0
	seen := map[view.ID]bool{}
	for _, m := range d.matches {
		for _, device := range d.reachable(m.devices) {
			if seen[device.ID] {
				continue
			}
			seen[device.ID] = true
			used := false
			for _, h := range d.s.Holders()[device.ID] {
				if h.IsAdmin() {
					continue
				}
				used = true
				state, who := d.holderState(h.Claim)
				if groups[state] == nil {
					groups[state] = &group{}
				}
				g := groups[state]
				g.holders = append(g.holders, h)
				g.lines = append(g.lines, fmt.Sprintf("%s: claim %s/%s, %s", device.ID, h.Claim.Namespace, h.Claim.Name, who))
			}
			if used {
				busy++
			}
		}
	}
	var findings []Finding
	for _, state := range []string{"held-by-idle-claim", "deallocation-pending", "devices-in-use"} {
		g := groups[state]
		if g == nil {
			continue
		}
		h := g.holders[0]
		f := Finding{
			Cause: state, Object: claimObject(h.Claim), Field: "status.allocation", Details: g.lines[:min(len(g.lines), maxDetails)],
			weight: busy,
		}
		namespace := "kubectl -n " + h.Claim.Namespace
		switch state {
		case "held-by-idle-claim":
			f.Text = fmt.Sprintf("%s held by a claim that no pod uses", plural(len(g.holders), "device is", "devices are"))
			f.Command = fmt.Sprintf("%s delete resourceclaim %s", namespace, h.Claim.Name)
		case "deallocation-pending":
			f.Text = fmt.Sprintf("%s about to be free, as soon as those who had it are gone", plural(len(g.holders), "device is", "devices are"))
			f.Field = "status.reservedFor"
			f.Command = fmt.Sprintf("%s get resourceclaim %s -o yaml", namespace, h.Claim.Name)
		default:
			f.Text = fmt.Sprintf("all devices that match and that the pod could use are taken: %d of %d are in use", busy, len(seen))
			f.Command = "kubectl dra who " + h.Result.Pool + "/" + h.Result.Device
		}
		findings = append(findings, f)
	}
	if len(findings) > 0 {
		return findings
	}
	return []Finding{{
		Cause: "capacity-used-up", Object: claimObject(d.matches[0].claim), Field: d.matches[0].field, weight: busy,
		Text:    "the devices that match are free, but others have used up the counters that they share",
		Command: "kubectl dra who --free",
	}}
}

// holderState tells whether the devices of a claim are in use, about to be free, or forgotten.
func (d *diagnosis) holderState(claim *view.Claim) (state, who string) {
	users := d.users(claim)
	if claim.DeletionTimestamp != nil {
		if len(users) == 0 {
			return "deallocation-pending", "which is being deleted"
		}
		return "deallocation-pending", "which is being deleted when these are gone: " + few(users)
	}
	if len(users) == 0 {
		if claim.ForAnyPod {
			return "deallocation-pending", "which was just released"
		}
		return "held-by-idle-claim", "allocated for nobody"
	}
	ending, idle := true, true
	for _, ref := range claim.Status.ReservedFor {
		if !view.IsPod(ref) {
			ending = ending && d.gone[ref.UID]
			continue
		}
		idle = false
		pod := d.s.Pod(ref.UID)
		ending = ending && (d.gone[ref.UID] || pod != nil && (view.IsDone(pod) || pod.DeletionTimestamp != nil))
	}
	for _, pod := range d.s.PodsOf(claim) {
		if pod.Spec.NodeName != "" {
			idle = false
			ending = ending && pod.DeletionTimestamp != nil
		}
	}
	switch {
	case ending:
		return "deallocation-pending", "until these are gone: " + few(users)
	// Pods of other namespaces were not read.
	case idle && (d.s.Namespace == "" || claim.Namespace == d.s.Namespace):
		return "held-by-idle-claim", fmt.Sprintf("reserved for %s, which has no pod on a node", few(users))
	}
	return "devices-in-use", "used by " + few(users)
}

// explainNodes is about devices that are only where the pod cannot go.
func (d *diagnosis) explainNodes() []Finding {
	var lines, unfit []string
	where := map[string]bool{}
	notReady, drivers := 0, map[string]bool{}
	for _, m := range d.matches {
		for _, device := range m.devices {
			drivers[device.Driver] = true
			name := device.NodeName()
			node := d.s.Node(name)
			if name == "" || where[name] {
				continue
			}
			where[name] = true
			if node == nil {
				notReady++
				lines, unfit = append(lines, fmt.Sprintf("node %s: it does not exist", name)), append(unfit, name)
				continue
			}
			reason := d.unfit(node)
			if reason == "" {
				continue
			}
			if !isReady(node) {
				notReady++
			}
			lines, unfit = append(lines, fmt.Sprintf("node %s: %s", name, reason)), append(unfit, name)
		}
	}
	f := Finding{Object: d.podObject(), Field: "spec", Details: lines[:min(len(lines), maxDetails)], weight: len(lines)}
	f.Command = "kubectl get resourceslices -o custom-columns=NAME:.metadata.name,DRIVER:.spec.driver,NODE:.spec.nodeName"
	if notReady > 0 && notReady == len(lines) {
		f.Cause, f.Object, f.Field = "node-not-ready", "node/"+slices.Min(unfit), "status.conditions[Ready]"
		f.Text = "the devices that match are on nodes that are not ready"
		f.Command = "kubectl get nodes"
		return []Finding{f}
	}
	// Does the driver run where the pod can go?
	var fit []string
	for _, node := range d.s.Nodes {
		if d.unfit(node) == "" {
			fit = append(fit, node.Name)
		}
	}
	present := slices.ContainsFunc(d.s.Slices, func(s *resourcev1.ResourceSlice) bool {
		return drivers[s.Spec.Driver] && (s.Spec.NodeName == nil || slices.Contains(fit, *s.Spec.NodeName))
	})
	if len(fit) > 0 && !present {
		f.Cause = "driver-not-on-node"
		f.Text = fmt.Sprintf("the pod can only go to %s, and driver %s has published no devices there: does it run there?", few(fit), few(slices.Sorted(maps.Keys(drivers))))
		return []Finding{f}
	}
	f.Cause, f.Text = "node-unfit", "the devices that match are on nodes where the pod cannot go"
	return []Finding{f}
}
