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

// Package who tells who has which device.
package who

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// Row is a device and who has it. A device has a row for each claim that has it, or one without a claim.
type Row struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
	// Gone is true if no ResourceSlice lists the device any more.
	Gone   bool     `json:"gone,omitempty"`
	Taints []string `json:"taints,omitempty"`
	// Claim is nil if no claim that could be read has the device.
	Claim *Claim `json:"claim,omitempty"`
	// Left is what others can still have: of the counters that the device shares with others, or of its own
	// capacity.
	Left map[string]string `json:"left,omitempty"`
	// Usable is true if another claim could have the device now.
	Usable bool `json:"free"`
}

// Claim is one that has a device.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Request   string `json:"request"`
	// As are the consumers: pod/a, job.batch/b.
	As          []string     `json:"as"`
	AdminAccess bool         `json:"adminAccess,omitempty"`
	ShareID     string       `json:"shareID,omitempty"`
	Since       *metav1.Time `json:"since,omitempty"`

	labels map[string]string
}

func (c *Claim) name() string {
	if c == nil {
		return "<none>"
	}
	return c.Namespace + "/" + c.Name
}

// Rows returns the devices of the cluster and who has them, sorted by node, pool and device.
func Rows(s *view.Snapshot) []Row {
	left := newCounters(s)
	var rows []Row
	published := map[view.ID]bool{}
	for _, device := range s.Devices() {
		published[device.ID] = true
		row := Row{Node: device.Where(), Driver: device.Driver, Pool: device.Pool, Device: device.ID.Device}
		for _, taint := range device.Taints {
			row.Taints = append(row.Taints, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
		}
		var enough bool
		row.Left, enough = left.of(device)
		holders := s.Holders()[device.ID]
		others := slices.ContainsFunc(holders, func(h view.Holder) bool { return !h.IsAdmin() })
		row.Usable = knowsFree(s) && enough && (!others || ptr.Deref(device.AllowMultipleAllocations, false))
		rows = append(rows, withHolders(row, holders)...)
	}
	for id, holders := range s.Holders() {
		if !published[id] {
			rows = append(rows, withHolders(Row{Node: "<unknown>", Driver: id.Driver, Pool: id.Pool, Device: id.Device, Gone: s.Sees(view.Slices)}, holders)...)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Pool, b.Pool), strings.Compare(a.Driver, b.Driver), strings.Compare(a.Device, b.Device), strings.Compare(a.Claim.name(), b.Claim.name()))
	})
	return rows
}

// knowsFree returns false if somebody may have a device whose claim could not be read.
func knowsFree(s *view.Snapshot) bool { return !s.OneNamespace && s.Sees(view.Claims, view.Slices) }

func withHolders(row Row, holders []view.Holder) []Row {
	if len(holders) == 0 {
		return []Row{row}
	}
	rows := make([]Row, 0, len(holders))
	for _, h := range holders {
		row.Claim = &Claim{
			Namespace: h.Claim.Namespace, Name: h.Claim.Name, Request: h.Result.Request, AdminAccess: h.IsAdmin(), ShareID: string(ptr.Deref(h.Result.ShareID, "")),
			Since: h.Claim.Since(), As: []string{}, labels: h.Claim.Labels,
		}
		for _, ref := range h.Claim.Status.ReservedFor {
			row.Claim.As = append(row.Claim.As, view.Consumer(ref))
		}
		rows = append(rows, row)
	}
	return rows
}

type counterSet struct{ driver, pool, name string }

// counters are what is left of the counters of pools, and of the capacity of devices that several claims share.
type counters struct {
	sets     map[counterSet]map[string]resource.Quantity
	capacity map[view.ID]map[resourcev1.QualifiedName]resource.Quantity
}

func newCounters(s *view.Snapshot) *counters {
	c := &counters{sets: map[counterSet]map[string]resource.Quantity{}, capacity: map[view.ID]map[resourcev1.QualifiedName]resource.Quantity{}}
	for _, slice := range s.LatestSlices() {
		for _, set := range slice.Spec.SharedCounters {
			values := map[string]resource.Quantity{}
			for name, counter := range set.Counters {
				values[name] = counter.Value.DeepCopy()
			}
			c.sets[counterSet{slice.Spec.Driver, slice.Spec.Pool.Name, set.Name}] = values
		}
	}
	for _, device := range s.Devices() {
		multiple := ptr.Deref(device.AllowMultipleAllocations, false)
		if multiple {
			values := map[resourcev1.QualifiedName]resource.Quantity{}
			for name, capacity := range device.Capacity {
				values[name] = capacity.Value.DeepCopy()
			}
			c.capacity[device.ID] = values
		}
		used := false
		for _, h := range s.Holders()[device.ID] {
			if h.IsAdmin() {
				continue
			}
			used = true
			for name, amount := range h.Result.ConsumedCapacity {
				subtract(c.capacity[device.ID], name, amount)
			}
		}
		if !used {
			continue
		}
		for _, consumption := range device.ConsumesCounters {
			for name, counter := range consumption.Counters {
				subtract(c.sets[counterSet{device.Driver, device.Pool, consumption.CounterSet}], name, counter.Value)
			}
		}
	}
	return c
}

func subtract[K comparable](values map[K]resource.Quantity, name K, amount resource.Quantity) {
	if value, found := values[name]; found {
		value.Sub(amount)
		values[name] = value
	}
}

// of returns what is left of that which a device shares, and whether that is enough for another claim.
func (c *counters) of(device *view.Device) (left map[string]string, enough bool) {
	left, enough = map[string]string{}, true
	for _, consumption := range device.ConsumesCounters {
		values := c.sets[counterSet{device.Driver, device.Pool, consumption.CounterSet}]
		for name, counter := range consumption.Counters {
			value := values[name]
			left[consumption.CounterSet+"/"+name] = value.String()
			enough = enough && value.Cmp(counter.Value) >= 0
		}
	}
	for name, value := range c.capacity[device.ID] {
		total := device.Capacity[name].Value
		left[string(name)] = fmt.Sprintf("%s of %s", value.String(), total.String())
		enough = enough && value.Sign() > 0
	}
	return left, enough
}

// leftText is sorted.
func leftText(left map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(left)) {
		parts = append(parts, name+": "+left[name])
	}
	return strings.Join(parts, ", ")
}

// filter says which rows the user wants.
type filter struct {
	// kind is device, pool, node, claim or pod, or empty for any of them.
	kind, name string
	// claims are those of the pod that was asked about.
	claims    map[string]bool
	namespace string
	selector  labels.Selector
	free      bool
}

var kinds = map[string]string{
	"device": "device", "devices": "device", "pool": "pool", "pools": "pool", "node": "node", "nodes": "node", "no": "node",
	"claim": "claim", "claims": "claim", "resourceclaim": "claim", "resourceclaims": "claim", "pod": "pod", "pods": "pod", "po": "pod",
}

// parse takes an argument apart: node/a, pool/b, a pod or claim, or a device with its pool and driver.
func (f *filter) parse(arg string) {
	if kind, name, found := strings.Cut(arg, "/"); found && kinds[kind] != "" {
		f.kind, f.name = kinds[kind], name
		return
	}
	f.kind, f.name = "", arg
	if strings.Contains(arg, "/") {
		f.kind = "device"
	}
}

func (f *filter) wants(row Row) bool {
	if f.free && !row.Usable {
		return false
	}
	if f.namespace != "" && !f.free && (row.Claim == nil || row.Claim.Namespace != f.namespace) {
		return false
	}
	if f.selector != nil && !f.selector.Empty() && (row.Claim == nil || !f.selector.Matches(labels.Set(row.Claim.labels))) {
		return false
	}
	if f.name == "" {
		return true
	}
	matches := map[string]bool{
		"device": slices.Contains([]string{row.Device, row.Pool + "/" + row.Device, row.Driver + "/" + row.Pool + "/" + row.Device}, f.name),
		"pool":   row.Pool == f.name || row.Driver+"/"+row.Pool == f.name,
		"node":   row.Node == f.name,
		"claim":  row.Claim != nil && row.Claim.Name == f.name,
		"pod":    row.Claim != nil && (f.claims[row.Claim.Namespace+"/"+row.Claim.Name] || slices.Contains(row.Claim.As, "pod/"+f.name)),
	}
	if f.kind != "" {
		return matches[f.kind]
	}
	return slices.Contains(slices.Collect(maps.Values(matches)), true)
}
