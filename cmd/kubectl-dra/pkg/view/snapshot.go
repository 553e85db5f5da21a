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

// Package view reads once what the verbs of kubectl dra have to know about a cluster. It never writes.
package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// Resource is something that is read, under the name that it has in a role.
type Resource string

// What can be read.
const (
	Pods        Resource = "pods"
	Claims      Resource = "resourceclaims"
	Templates   Resource = "resourceclaimtemplates"
	Classes     Resource = "deviceclasses"
	Slices      Resource = "resourceslices"
	TaintRules  Resource = "devicetaintrules"
	Nodes       Resource = "nodes"
	Namespaces  Resource = "namespaces"
	Quotas      Resource = "resourcequotas"
	Events      Resource = "events"
	Controllers Resource = "controllers"
	// OtherClaims are those of other namespaces, where claims of one may be read.
	OtherClaims Resource = "resourceclaims of other namespaces"
	// PodNames are pods without anything but their UIDs.
	PodNames Resource = "names of pods"
	Roles    Resource = "clusterroles and clusterrolebindings"
	Policies Resource = "validatingadmissionpolicies"
)

// Workload is what spec.reservedFor of the carry names. The name is empty in a template.
type Workload struct {
	APIGroup string    `json:"apiGroup,omitempty"`
	Resource string    `json:"resource"`
	Name     string    `json:"name,omitempty"`
	UID      types.UID `json:"uid,omitempty"`
}

func (w Workload) String() string {
	return Consumer(resourcev1.ResourceClaimConsumerReference{APIGroup: w.APIGroup, Resource: w.Resource, Name: w.Name})
}

// Consumer is for people: pod/a, job.batch/b.
func Consumer(ref resourcev1.ResourceClaimConsumerReference) string {
	kind := ref.Resource
	if ref.APIGroup != "" {
		kind += "." + ref.APIGroup
	}
	// As kubectl names one object.
	if group, suffix, _ := strings.Cut(kind, "."); strings.HasSuffix(group, "s") {
		kind = strings.TrimSuffix(group, "s")
		if suffix != "" {
			kind += "." + suffix
		}
	}
	if ref.Name == "" {
		return kind
	}
	return kind + "/" + ref.Name
}

// IsPod returns true for an entry of status.reservedFor that is a pod.
func IsPod(ref resourcev1.ResourceClaimConsumerReference) bool {
	return ref.APIGroup == "" && ref.Resource == "pods"
}

// Claim is a ResourceClaim, with what the carry adds to it. Its own fields are read for one namespace only.
type Claim struct {
	*resourcev1.ResourceClaim
	// ReservedFor is spec.reservedFor, ForAnyPod is status.allocation.reservedForAnyPod.
	ReservedFor *Workload
	ForAnyPod   bool
}

// IsAllocated returns true if the claim holds devices.
func (c *Claim) IsAllocated() bool { return c.Status.Allocation != nil }

// IsReserved returns true if the pod is listed.
func (c *Claim) IsReserved(pod *corev1.Pod) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(ref resourcev1.ResourceClaimConsumerReference) bool {
		return IsPod(ref) && ref.UID == pod.UID
	})
}

// Since is when the claim was allocated, as far as the claim tells.
func (c *Claim) Since() *metav1.Time {
	if c.Status.Allocation == nil {
		return nil
	}
	if t := c.Status.Allocation.AllocationTimestamp; t != nil {
		return t
	}
	// Before 1.35, only the API server's note about who wrote the field has a time.
	for _, entry := range c.ManagedFields {
		if entry.Subresource == "status" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:allocation"`) {
			return entry.Time
		}
	}
	return nil
}

// Snapshot is what was there at one time, as far as it may be read. The parts were not read at the very same
// moment: an object that another one refers to may be missing.
type Snapshot struct {
	// Now is when it was read.
	Now time.Time
	// Namespace is the one that it is about, empty for all.
	Namespace string
	// Gaps are what could not be read, and why.
	Gaps map[Resource]string
	// OneNamespace is true if claims of other namespaces may not be read.
	OneNamespace bool

	Pods       []*corev1.Pod
	Claims     []*Claim
	Templates  []*Template
	Classes    []*resourcev1.DeviceClass
	Slices     []*resourcev1.ResourceSlice
	TaintRules []*resourcev1.DeviceTaintRule
	Nodes      []*corev1.Node
	Namespaces []*corev1.Namespace
	Quotas     []*corev1.ResourceQuota
	Events     []*corev1.Event
	// Controllers are the owners of pods, and the workloads that claims name.
	Controllers []*metav1.PartialObjectMetadata

	// PodUIDs are those of all pods that exist.
	PodUIDs map[types.UID]bool
	Roles   RoleList
	// PolicyNames are those of ValidatingAdmissionPolicies.
	PolicyNames []string

	claims  map[types.NamespacedName]*Claim
	nodes   map[string]*corev1.Node
	devices []*Device
	holders map[ID][]Holder
}

// RoleList are roles for the whole cluster, and who has them.
type RoleList struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
}

// Template is a ResourceClaimTemplate, with what the carry adds to it.
type Template struct {
	*resourcev1.ResourceClaimTemplate
	ReservedFor *Workload
}

// Sees returns true if all of these were read.
func (s *Snapshot) Sees(resources ...Resource) bool {
	return !slices.ContainsFunc(resources, func(r Resource) bool { _, gap := s.Gaps[r]; return gap })
}

// Claim returns nil if there is none, or if it could not be read.
func (s *Snapshot) Claim(namespace, name string) *Claim {
	if s.claims == nil {
		s.claims = make(map[types.NamespacedName]*Claim, len(s.Claims))
		for _, c := range s.Claims {
			s.claims[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
		}
	}
	return s.claims[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Node returns nil if there is none.
func (s *Snapshot) Node(name string) *corev1.Node {
	if s.nodes == nil {
		s.nodes = make(map[string]*corev1.Node, len(s.Nodes))
		for _, node := range s.Nodes {
			s.nodes[node.Name] = node
		}
	}
	return s.nodes[name]
}

// Class returns nil if there is none.
func (s *Snapshot) Class(name string) *resourcev1.DeviceClass {
	return find(s.Classes, func(class *resourcev1.DeviceClass) bool { return class.Name == name })
}

// Template returns nil if there is none.
func (s *Snapshot) Template(namespace, name string) *Template {
	return find(s.Templates, func(t *Template) bool { return t.Namespace == namespace && t.Name == name })
}

// NamespaceLabels are those of a namespace.
func (s *Snapshot) NamespaceLabels(name string) map[string]string {
	if n := find(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name }); n != nil {
		return n.Labels
	}
	return nil
}

// EventsOf are those of an object, the latest first.
func (s *Snapshot) EventsOf(uid types.UID) []*corev1.Event {
	var events []*corev1.Event
	for _, event := range s.Events {
		if event.InvolvedObject.UID == uid {
			events = append(events, event)
		}
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { return EventTime(b).Compare(EventTime(a)) })
	return events
}

// EventTime is when the event was seen for the last time.
func EventTime(e *corev1.Event) time.Time {
	times := []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// IsDone returns true if the pod needs its devices no more.
func IsDone(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ClaimNames are those of the claims of a pod, as far as they are known, by their names in the pod.
func ClaimNames(pod *corev1.Pod) map[string]string {
	names := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		if name, _, err := resourceclaim.Name(pod, podClaim); err == nil && name != nil {
			names[podClaim.Name] = *name
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		// No entry of the pod can have a name with a slash.
		names["extended/resources"] = extended.ResourceClaimName
	}
	return names
}

// Refers returns true if one of the claims of a pod is that one.
func Refers(pod *corev1.Pod, claim *Claim) bool {
	if pod.Namespace != claim.Namespace {
		return false
	}
	for _, name := range ClaimNames(pod) {
		if name == claim.Name {
			return true
		}
	}
	return false
}

// PodsOf are the pods that refer to a claim and have not ended.
func (s *Snapshot) PodsOf(claim *Claim) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range s.Pods {
		if !IsDone(pod) && Refers(pod, claim) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Pod returns the pod with that UID, nil if there is none.
func (s *Snapshot) Pod(uid types.UID) *corev1.Pod {
	return find(s.Pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// Controller returns nil if there is none, or if it could not be read.
func (s *Snapshot) Controller(uid types.UID) *metav1.PartialObjectMetadata {
	return find(s.Controllers, func(o *metav1.PartialObjectMetadata) bool { return o.UID == uid })
}

func find[T any](list []*T, matches func(*T) bool) *T {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		return list[i]
	}
	return nil
}

// ID identifies a device.
type ID struct{ Driver, Pool, Device string }

func (id ID) String() string { return id.Driver + "/" + id.Pool + "/" + id.Device }

// Compare is for sorting.
func (id ID) Compare(other ID) int {
	return cmp.Or(strings.Compare(id.Driver, other.Driver), strings.Compare(id.Pool, other.Pool), strings.Compare(id.Device, other.Device))
}

// Device is one of those that drivers publish, in the latest generation of its pool.
type Device struct {
	ID
	*resourcev1.Device
	Slice *resourcev1.ResourceSlice
	// Taints are those of the slice and of DeviceTaintRules.
	Taints []Taint
}

// Taint says where it comes from: the name of a DeviceTaintRule, empty for the driver's own.
type Taint struct {
	resourcev1.DeviceTaint
	Rule string
}

// NodeName is the node of a local device, empty if several nodes can use it.
func (d *Device) NodeName() string {
	return cmp.Or(ptr.Deref(d.Slice.Spec.NodeName, ""), ptr.Deref(d.Device.NodeName, ""))
}

// Where is for people.
func (d *Device) Where() string {
	switch {
	case d.NodeName() != "":
		return d.NodeName()
	case ptr.Deref(d.Slice.Spec.AllNodes, false) || ptr.Deref(d.Device.AllNodes, false):
		return "<all>"
	}
	return "<some>"
}

type poolID struct{ driver, pool string }

// Devices returns those of the latest generation of each pool, sorted.
func (s *Snapshot) Devices() []*Device {
	if s.devices != nil {
		return s.devices
	}
	for _, slice := range s.LatestSlices() {
		for i := range slice.Spec.Devices {
			device := &Device{Device: &slice.Spec.Devices[i], Slice: slice}
			device.ID = ID{slice.Spec.Driver, slice.Spec.Pool.Name, device.Name}
			for _, taint := range device.Device.Taints {
				device.Taints = append(device.Taints, Taint{DeviceTaint: taint})
			}
			for _, rule := range s.TaintRules {
				if selects(rule.Spec.DeviceSelector, device.ID) {
					device.Taints = append(device.Taints, Taint{rule.Spec.Taint, rule.Name})
				}
			}
			s.devices = append(s.devices, device)
		}
	}
	slices.SortFunc(s.devices, func(a, b *Device) int { return a.Compare(b.ID) })
	return s.devices
}

func selects(selector *resourcev1.DeviceTaintSelector, id ID) bool {
	return selector != nil && ptr.Deref(selector.Driver, id.Driver) == id.Driver &&
		ptr.Deref(selector.Pool, id.Pool) == id.Pool && ptr.Deref(selector.Device, id.Device) == id.Device
}

// LatestSlices are those of the latest generation of each pool.
func (s *Snapshot) LatestSlices() []*resourcev1.ResourceSlice {
	latest := map[poolID]int64{}
	for _, slice := range s.Slices {
		id := poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
		latest[id] = max(latest[id], slice.Spec.Pool.Generation)
	}
	var result []*resourcev1.ResourceSlice
	for _, slice := range s.Slices {
		if slice.Spec.Pool.Generation == latest[poolID{slice.Spec.Driver, slice.Spec.Pool.Name}] {
			result = append(result, slice)
		}
	}
	return result
}

// Pool is a pool that lacks slices.
type Pool struct {
	Driver, Name string
	Found, Want  int64
}

// IncompletePools are those of which not all slices are published. The scheduler waits for the rest.
func (s *Snapshot) IncompletePools() []Pool {
	pools := map[poolID]*Pool{}
	for _, slice := range s.LatestSlices() {
		id := poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
		if pools[id] == nil {
			pools[id] = &Pool{Driver: id.driver, Name: id.pool, Want: slice.Spec.Pool.ResourceSliceCount}
		}
		pools[id].Found++
	}
	var incomplete []Pool
	for _, pool := range pools {
		if pool.Found < pool.Want {
			incomplete = append(incomplete, *pool)
		}
	}
	slices.SortFunc(incomplete, func(a, b Pool) int {
		return cmp.Or(strings.Compare(a.Driver, b.Driver), strings.Compare(a.Name, b.Name))
	})
	return incomplete
}

// Holder is a claim that has a device.
type Holder struct {
	Claim  *Claim
	Result *resourcev1.DeviceRequestAllocationResult
}

// IsAdmin returns true if the claim only looks at the device: others can have it.
func (h Holder) IsAdmin() bool { return ptr.Deref(h.Result.AdminAccess, false) }

// Holders returns who has which device.
func (s *Snapshot) Holders() map[ID][]Holder {
	if s.holders == nil {
		s.holders = map[ID][]Holder{}
		for _, claim := range s.Claims {
			if claim.Status.Allocation == nil {
				continue
			}
			for i := range claim.Status.Allocation.Devices.Results {
				result := &claim.Status.Allocation.Devices.Results[i]
				id := ID{result.Driver, result.Pool, result.Device}
				s.holders[id] = append(s.holders[id], Holder{claim, result})
			}
		}
	}
	return s.holders
}
