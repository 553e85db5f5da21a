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

package describe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeresource "k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// claimGroup is the API group of ResourceClaims.
	claimGroup = "resource.k8s.io"
	// claimColumns is how wide the description of a claim is, unless a name
	// is longer.
	claimColumns = 80
	// claimLabelMax is the length from which on a label, like the type of a
	// condition, gets a line of its own, because there would be no space for
	// the rest of the line.
	claimLabelMax = 30
	// claimTextMax is how much is shown of a text that can be long, like the
	// message of a condition. Some of them can have 32 KiB each.
	claimTextMax = 1024
	// claimDataMax is how much data of a driver is shown. Of more than that,
	// only the size is.
	claimDataMax = 160
)

// claimVersions are the API versions which a server may have, best first. A
// server of another release than that of kubectl may lack the first ones.
var claimVersions = []string{"v1", "v1beta2", "v1beta1", "v1alpha3"}

// addResourceClaimDescriber registers the describer of ResourceClaims.
func addResourceClaimDescriber(m map[schema.GroupKind]ResourceDescriber, config *rest.Config) {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		// Then the generic describer is used, as for any other kind.
		klog.V(1).Info(err)
		return
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		klog.V(1).Info(err)
		return
	}
	m[schema.GroupKind{Group: claimGroup, Kind: "ResourceClaim"}] = &ResourceClaimDescriber{client: client, dynamic: dynamicClient}
}

// ResourceClaimDescriber generates information about a ResourceClaim: what was
// requested, which devices were allocated for it, what their drivers report,
// and whom it is reserved for.
//
// It reads the JSON of the claim and not one of the typed APIs, because then
// it works with all versions that a server may have, and shows what the server
// has even where the types of this release lack it.
type ResourceClaimDescriber struct {
	client  clientset.Interface
	dynamic dynamic.Interface
}

// Describe returns the description of one claim.
func (d *ResourceClaimDescriber) Describe(namespace, name string, settings DescriberSettings) (string, error) {
	ctx := context.TODO()
	obj, err := d.get(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	data, err := obj.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("ResourceClaim %s/%s: %w", namespace, name, err)
	}
	claim := &describedClaim{}
	if err := json.Unmarshal(data, claim); err != nil {
		return "", fmt.Errorf("ResourceClaim %s/%s is not as its API version %s has it: %w", namespace, name, obj.GetAPIVersion(), err)
	}

	pods := ""
	if claim.forWorkload() {
		pods = d.countPods(ctx, namespace, name, settings.ChunkSize)
	}
	var events *corev1.EventList
	var eventsErr error
	if settings.ShowEvents {
		events, eventsErr = searchEvents(d.client.CoreV1(), obj, settings.ChunkSize)
	}

	return tabbedString(func(out io.Writer) error {
		p := &claimPrinter{PrefixWriter: NewPrefixWriter(out)}
		p.claim(claim, printController(obj), pods)
		switch {
		case eventsErr != nil:
			p.Write(LEVEL_0, "Events:\t%s\n", cleanText("unknown: "+eventsErr.Error()))
		case events != nil:
			DescribeEvents(events, p)
		}
		return nil
	})
}

// get reads the claim in the best version that the server has.
func (d *ResourceClaimDescriber) get(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	groups, err := d.client.Discovery().ServerGroups()
	if err != nil {
		return nil, err
	}
	served := func(version string) bool {
		return slices.ContainsFunc(groups.Groups, func(group metav1.APIGroup) bool {
			return group.Name == claimGroup && slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
		})
	}
	i := slices.IndexFunc(claimVersions, served)
	if i < 0 {
		return nil, fmt.Errorf("the server has ResourceClaims in none of the versions %s of %s", strings.Join(claimVersions, ", "), claimGroup)
	}
	gvr := schema.GroupVersionResource{Group: claimGroup, Version: claimVersions[i], Resource: "resourceclaims"}
	return d.dynamic.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// countPods says how many pods refer to the claim, and in which phase they are.
func (d *ResourceClaimDescriber) countPods(ctx context.Context, namespace, name string, chunkSize int64) string {
	total := 0
	phases := map[corev1.PodPhase]int{}
	err := runtimeresource.FollowContinue(&metav1.ListOptions{Limit: chunkSize}, func(options metav1.ListOptions) (runtime.Object, error) {
		list, err := d.client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if usesClaim(&list.Items[i], name) {
				total++
				phases[list.Items[i].Status.Phase]++
			}
		}
		return list, nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("unknown: you may not list pods in namespace %s", namespace)
	case err != nil:
		return fmt.Sprintf("unknown: listing pods: %v", err)
	case total == 0:
		return "none refers to this claim"
	}
	var counts []string
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		if n := phases[phase]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	verb := "refer"
	if total == 1 {
		verb = "refers"
	}
	text := fmt.Sprintf("%d %s to this claim", total, verb)
	if len(counts) > 0 {
		text += ": " + strings.Join(counts, ", ")
	}
	return text
}

// usesClaim says whether the pod refers to the claim, by its name or through
// a template.
func usesClaim(pod *corev1.Pod, claim string) bool {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil && *c.ResourceClaimName == claim {
			return true
		}
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		if c.ResourceClaimName != nil && *c.ResourceClaimName == claim {
			return true
		}
	}
	return false
}

// describedClaim is what the description needs to know. All API versions have
// it at the same place, except for the details of a request.
type describedClaim struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		ReservedFor *describedConsumer `json:"reservedFor"`
		Devices     struct {
			Requests    []describedRequest    `json:"requests"`
			Constraints []describedConstraint `json:"constraints"`
			Config      []describedConfig     `json:"config"`
		} `json:"devices"`
	} `json:"spec"`
	Status struct {
		Allocation  *describedAllocation    `json:"allocation"`
		ReservedFor []describedConsumer     `json:"reservedFor"`
		Devices     []describedDeviceStatus `json:"devices"`
	} `json:"status"`
}

// describedRequest is a request or one of its alternatives.
type describedRequest struct {
	Name string `json:"name"`
	// Here the details stand in an alternative, and in a request of an API
	// version before v1beta2.
	describedDetails `json:",inline"`
	Exactly          *describedDetails  `json:"exactly"`
	FirstAvailable   []describedRequest `json:"firstAvailable"`
}

type describedDetails struct {
	DeviceClassName string `json:"deviceClassName"`
	Selectors       []struct {
		CEL *struct {
			Expression string `json:"expression"`
		} `json:"cel"`
	} `json:"selectors"`
	AllocationMode string                `json:"allocationMode"`
	Count          int64                 `json:"count"`
	AdminAccess    bool                  `json:"adminAccess"`
	Tolerations    []describedToleration `json:"tolerations"`
	Capacity       struct {
		Requests map[string]resource.Quantity `json:"requests"`
	} `json:"capacity"`
}

type describedToleration struct {
	Key               string `json:"key"`
	Operator          string `json:"operator"`
	Value             string `json:"value"`
	Effect            string `json:"effect"`
	TolerationSeconds *int64 `json:"tolerationSeconds"`
}

type describedConstraint struct {
	Requests          []string `json:"requests"`
	MatchAttribute    string   `json:"matchAttribute"`
	DistinctAttribute string   `json:"distinctAttribute"`
}

type describedConfig struct {
	Source   string   `json:"source"`
	Requests []string `json:"requests"`
	Opaque   *struct {
		Driver     string          `json:"driver"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"opaque"`
}

type describedConsumer struct {
	APIGroup string `json:"apiGroup"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
	UID      string `json:"uid"`
}

type describedAllocation struct {
	ReservedForAnyPod   bool                 `json:"reservedForAnyPod"`
	AllocationTimestamp *metav1.Time         `json:"allocationTimestamp"`
	NodeSelector        *corev1.NodeSelector `json:"nodeSelector"`
	Devices             struct {
		Results []describedResult `json:"results"`
		Config  []describedConfig `json:"config"`
	} `json:"devices"`
}

// describedDevice identifies an allocated device.
type describedDevice struct {
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID"`
}

type describedResult struct {
	describedDevice          `json:",inline"`
	Request                  string                       `json:"request"`
	AdminAccess              bool                         `json:"adminAccess"`
	Tolerations              []describedToleration        `json:"tolerations"`
	BindingConditions        []string                     `json:"bindingConditions"`
	BindingFailureConditions []string                     `json:"bindingFailureConditions"`
	ConsumedCapacity         map[string]resource.Quantity `json:"consumedCapacity"`
}

type describedDeviceStatus struct {
	describedDevice `json:",inline"`
	Conditions      []metav1.Condition `json:"conditions"`
	Data            json.RawMessage    `json:"data"`
	NetworkData     *struct {
		InterfaceName   string   `json:"interfaceName"`
		IPs             []string `json:"ips"`
		HardwareAddress string   `json:"hardwareAddress"`
	} `json:"networkData"`
}

// forWorkload says whether pods may use the claim without being listed.
func (c *describedClaim) forWorkload() bool {
	return c.Spec.ReservedFor != nil ||
		c.Status.Allocation != nil && c.Status.Allocation.ReservedForAnyPod ||
		slices.ContainsFunc(c.Status.ReservedFor, func(r describedConsumer) bool { return !r.isPod() })
}

// state is the same as in the table of claims.
func (c *describedClaim) state() string {
	var states []string
	if c.Metadata.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation == nil && c.Metadata.DeletionTimestamp == nil:
		states = append(states, "pending")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}

func (c describedConsumer) isPod() bool { return c.APIGroup == "" && c.Resource == "pods" }

// consumerKinds are the kinds of Kubernetes' own resources that pods belong
// to. Of others, only the resource is known.
var consumerKinds = map[schema.GroupResource]string{
	{Resource: "pods"}:                                  "Pod",
	{Resource: "replicationcontrollers"}:                "ReplicationController",
	{Group: "apps", Resource: "daemonsets"}:             "DaemonSet",
	{Group: "apps", Resource: "deployments"}:            "Deployment",
	{Group: "apps", Resource: "replicasets"}:            "ReplicaSet",
	{Group: "apps", Resource: "statefulsets"}:           "StatefulSet",
	{Group: "batch", Resource: "cronjobs"}:              "CronJob",
	{Group: "batch", Resource: "jobs"}:                  "Job",
	{Group: "scheduling.k8s.io", Resource: "podgroups"}: "PodGroup",
}

// String is the kind and the name.
func (c describedConsumer) String() string {
	gr := schema.GroupResource{Group: c.APIGroup, Resource: c.Resource}
	kind, ok := consumerKinds[gr]
	if !ok {
		kind = gr.String()
	}
	return orNone(strings.TrimSpace(kind + " " + c.Name))
}

// String is how a device is identified to users.
func (d describedDevice) String() string {
	return orNone(d.Driver) + "/" + orNone(d.Pool) + "/" + orNone(d.Device)
}

// claimField is a label with the texts that belong to it.
type claimField struct {
	label string
	texts []string
	// list says that the texts are items of a list. One that takes several
	// lines would otherwise look like several items.
	list bool
}

// claimFields is a block of labels, with the texts of all of them in one
// column.
type claimFields []claimField

// add adds a label, unless there is nothing to show for it.
func (f *claimFields) add(label string, texts ...string) {
	if slices.ContainsFunc(texts, func(text string) bool { return text != "" }) {
		*f = append(*f, claimField{label: label, texts: texts})
	}
}

// addList adds a label with a list, unless that is empty.
func (f *claimFields) addList(label string, items []string) {
	if len(items) > 0 {
		*f = append(*f, claimField{label: label, texts: items, list: len(items) > 1})
	}
}

// claimPrinter writes the description.
type claimPrinter struct {
	PrefixWriter
}

// fields writes a block. Only the top level has tabs: it is aligned with what
// is common to all describers.
func (p *claimPrinter) fields(level int, block claimFields) {
	column := len("  ")
	for _, f := range block {
		if n := len(cleanText(f.label)); n <= claimLabelMax {
			column = max(column, n+len(":  "))
		}
	}
	for _, f := range block {
		label := cleanText(f.label) + ":"
		if len(label) > column {
			p.Write(level, "%s\n", label)
			label = ""
		}
		for _, text := range f.texts {
			item, further := "", ""
			if f.list {
				item, further = "- ", "  "
			}
			for _, line := range wrapText(text, claimColumns-level*len("  ")-column-len(item)) {
				line = item + line
				item = further
				if level == LEVEL_0 {
					p.Write(level, "%s\t%s\n", label, line)
				} else {
					p.Write(level, "%-*s%s\n", column, label, line)
				}
				label = ""
			}
		}
	}
}

func (p *claimPrinter) claim(c *describedClaim, controller, pods string) {
	p.Write(LEVEL_0, "Name:\t%s\n", c.Metadata.Name)
	p.Write(LEVEL_0, "Namespace:\t%s\n", c.Metadata.Namespace)
	printLabelsMultiline(p, "Labels", c.Metadata.Labels)
	printAnnotationsMultiline(p, "Annotations", c.Metadata.Annotations)
	// "Reserved For" is always there. It is longer than "Annotations", so that
	// this block knows the column.
	var top claimFields
	top.add("Controlled By", controller)
	top.add("State", c.state())
	if w := c.Spec.ReservedFor; w != nil {
		which := "whichever has that name"
		if w.UID != "" {
			which = "uid " + w.UID
		}
		top.add("For Workload", fmt.Sprintf("%s (%s)", w, which))
	}
	top.addList("Reserved For", consumers(c.Status.ReservedFor))
	top.add("Pods", pods)
	p.fields(LEVEL_0, top)

	p.Write(LEVEL_0, "Requests:%s\n", noneIf(len(c.Spec.Devices.Requests) == 0))
	p.requests(LEVEL_1, c.Spec.Devices.Requests)
	p.constraints(c.Spec.Devices.Constraints)
	p.config(LEVEL_0, c.Spec.Devices.Config)
	p.allocation(c.Status.Allocation)
	p.devices(c)
}

func (p *claimPrinter) requests(level int, requests []describedRequest) {
	for _, r := range requests {
		if len(r.FirstAvailable) > 0 {
			p.Write(level, "%s: the first available of\n", cleanText(orNone(r.Name)))
			p.requests(level+1, r.FirstAvailable)
			continue
		}
		details := r.describedDetails
		if r.Exactly != nil {
			details = *r.Exactly
		}
		if details.DeviceClassName == "" && details.AllocationMode == "" {
			// A kind of request that only a later release knows.
			p.Write(level, "%s: <unknown>\n", cleanText(orNone(r.Name)))
			continue
		}
		p.Write(level, "%s:\n", cleanText(orNone(r.Name)))
		p.fields(level+1, details.fields())
	}
}

func (d describedDetails) fields() claimFields {
	var f claimFields
	f.add("Device Class", orNone(d.DeviceClassName))
	switch d.AllocationMode {
	case "", "ExactCount":
		f.add("Count", fmt.Sprint(d.Count))
	default:
		f.add("Count", d.AllocationMode)
	}
	if d.AdminAccess {
		f.add("Admin Access", "true")
	}
	f.add("Capacity", quantities(d.Capacity.Requests))
	f.addList("Tolerations", tolerations(d.Tolerations))
	var expressions []string
	for _, s := range d.Selectors {
		if s.CEL == nil {
			expressions = append(expressions, "<unknown>")
			continue
		}
		expressions = append(expressions, limitText(s.CEL.Expression))
	}
	f.addList("Selectors", expressions)
	return f
}

func (p *claimPrinter) constraints(constraints []describedConstraint) {
	if len(constraints) == 0 {
		return
	}
	p.Write(LEVEL_0, "Constraints:\n")
	for _, c := range constraints {
		what := "<unknown>"
		switch {
		case c.MatchAttribute != "":
			what = "the same " + c.MatchAttribute
		case c.DistinctAttribute != "":
			what = "a different " + c.DistinctAttribute + " each"
		}
		p.text(LEVEL_1, fmt.Sprintf("%s, for %s", what, requestNames(c.Requests)))
	}
}

func (p *claimPrinter) config(level int, configs []describedConfig) {
	if len(configs) == 0 {
		return
	}
	p.Write(level, "Config:\n")
	for _, c := range configs {
		text := "<unknown>"
		if c.Opaque != nil {
			text = orNone(c.Opaque.Driver)
		}
		if c.Source != "" {
			text += " " + c.Source
		}
		text += ", for " + requestNames(c.Requests)
		parameters := ""
		if c.Opaque != nil {
			parameters = shortData(c.Opaque.Parameters)
		}
		if parameters == "" {
			p.text(level+1, text)
			continue
		}
		p.text(level+1, text+":")
		p.text(level+2, parameters)
	}
}

func (p *claimPrinter) allocation(a *describedAllocation) {
	if a == nil {
		p.Write(LEVEL_0, "Allocation:%s\n", noneIf(true))
		return
	}
	p.Write(LEVEL_0, "Allocation:\n")
	var f claimFields
	if a.AllocationTimestamp != nil {
		f.add("Age", translateTimestampSince(*a.AllocationTimestamp))
	}
	f.addList("Nodes", nodes(a.NodeSelector))
	if a.ReservedForAnyPod {
		f.add("Reserved For Any Pod", "true")
	}
	p.fields(LEVEL_1, f)
	p.config(LEVEL_1, a.Devices.Config)
}

// devices writes a block for each allocated device, with what its driver
// reports. Several requests may have the same device, for admin access.
func (p *claimPrinter) devices(c *describedClaim) {
	var order []describedDevice
	results := map[describedDevice][]describedResult{}
	statuses := map[describedDevice][]describedDeviceStatus{}
	seen := func(d describedDevice) {
		if len(results[d])+len(statuses[d]) == 0 {
			order = append(order, d)
		}
	}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			seen(r.describedDevice)
			results[r.describedDevice] = append(results[r.describedDevice], r)
		}
	}
	for _, s := range c.Status.Devices {
		seen(s.describedDevice)
		statuses[s.describedDevice] = append(statuses[s.describedDevice], s)
	}

	p.Write(LEVEL_0, "Devices:%s\n", noneIf(len(order) == 0))
	for _, d := range order {
		p.Write(LEVEL_1, "%s:\n", cleanText(d.String()))
		var f claimFields
		f.add("Share ID", d.ShareID)
		for _, r := range results[d] {
			f.add("Request", orNone(r.Request))
			if r.AdminAccess {
				f.add("Admin Access", "true")
			}
			f.add("Capacity", quantities(r.ConsumedCapacity))
			f.addList("Tolerations", tolerations(r.Tolerations))
			f.add("Ready If", strings.Join(r.BindingConditions, ", "))
			f.add("Failed If", strings.Join(r.BindingFailureConditions, ", "))
		}
		if len(results[d]) == 0 {
			f.add("Request", "<none>: the device is not allocated")
		}
		for _, s := range statuses[d] {
			if n := s.NetworkData; n != nil {
				f.add("Interface", n.InterfaceName)
				f.add("Hardware Address", n.HardwareAddress)
				f.add("IPs", strings.Join(n.IPs, ", "))
			}
			f.add("Data", shortData(s.Data))
		}
		p.fields(LEVEL_2, f)
		for _, s := range statuses[d] {
			p.conditions(s.Conditions)
		}
	}
}

// conditions writes one field for each condition instead of a table: messages
// of drivers are long.
func (p *claimPrinter) conditions(conditions []metav1.Condition) {
	if len(conditions) == 0 {
		return
	}
	p.Write(LEVEL_2, "Conditions:\n")
	var f claimFields
	for _, c := range conditions {
		summary := orNone(string(c.Status))
		if !c.LastTransitionTime.IsZero() {
			summary += " for " + translateTimestampSince(c.LastTransitionTime)
		}
		if c.Reason != "" {
			summary += ", " + c.Reason
		}
		lines := []string{summary}
		if c.Message != "" {
			lines = append(lines, limitText(c.Message))
		}
		f.add(orNone(c.Type), lines...)
	}
	p.fields(LEVEL_3, f)
}

// text writes a paragraph; its further lines are indented.
func (p *claimPrinter) text(level int, text string) {
	const indent = "  "
	for i, line := range wrapText(text, claimColumns-(level+1)*len(indent)) {
		if i > 0 {
			line = indent + line
		}
		p.Write(level, "%s\n", line)
	}
}

// consumers lists those who are not pods one by one, and the pods by name.
func consumers(refs []describedConsumer) []string {
	var lines, pods []string
	for _, r := range refs {
		switch {
		case r.isPod():
			pods = append(pods, orNone(r.Name))
		case r.UID == "":
			lines = append(lines, r.String())
		default:
			lines = append(lines, fmt.Sprintf("%s (uid %s)", r, r.UID))
		}
	}
	switch len(pods) {
	case 0:
	case 1:
		lines = append(lines, "Pod "+pods[0])
	default:
		lines = append(lines, fmt.Sprintf("%d Pods: %s", len(pods), strings.Join(pods, ", ")))
	}
	if len(lines) == 0 {
		return []string{"<none>"}
	}
	return lines
}

// nodes has one line for each term of the selector.
func nodes(selector *corev1.NodeSelector) []string {
	if selector == nil {
		return []string{"any"}
	}
	var lines []string
	for _, term := range selector.NodeSelectorTerms {
		var parts []string
		for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
			part := r.Key + " " + string(r.Operator)
			if len(r.Values) > 0 {
				part += " [" + strings.Join(r.Values, ", ") + "]"
			}
			parts = append(parts, part)
		}
		lines = append(lines, orNone(strings.Join(parts, " and ")))
	}
	if len(lines) == 0 {
		return []string{"<none>"}
	}
	return lines
}

func tolerations(list []describedToleration) []string {
	var lines []string
	for _, t := range list {
		line := t.Key
		if line == "" {
			line = "any taint"
		}
		if t.Operator == "Exists" {
			line += " exists"
		} else {
			line += "=" + t.Value
		}
		if t.Effect != "" {
			line += ":" + t.Effect
		}
		if t.TolerationSeconds != nil {
			line += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		lines = append(lines, line)
	}
	return lines
}

func quantities(m map[string]resource.Quantity) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		quantity := m[name]
		parts = append(parts, name+"="+quantity.String())
	}
	return strings.Join(parts, ", ")
}

func requestNames(names []string) string {
	if len(names) == 0 {
		return "all requests"
	}
	return strings.Join(names, ", ")
}

// shortData is the data itself if it is short, and its size otherwise.
func shortData(data json.RawMessage) string {
	switch {
	case len(data) == 0 || string(data) == "null":
		return ""
	case len(data) > claimDataMax:
		return fmt.Sprintf("%d bytes, which -o yaml shows", len(data))
	}
	// With spaces, at which lines can be broken.
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, data, "", ""); err != nil {
		return string(data)
	}
	return strings.ReplaceAll(spaced.String(), "\n", " ")
}

// limitText cuts a text that is too long.
func limitText(text string) string {
	if len(text) <= claimTextMax {
		return text
	}
	// Not in the middle of a character.
	cut := strings.ToValidUTF8(text[:claimTextMax], "")
	return fmt.Sprintf("%s ... (%d bytes more, which -o yaml shows)", cut, len(text)-len(cut))
}

// wrapText breaks a text at spaces. Lines are only longer than the width if
// that is what a word is.
func wrapText(text string, width int) []string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line = cleanText(strings.TrimSpace(line))
		for len(line) > width {
			// There may be a space right behind the width.
			cut := strings.LastIndexByte(line[:width+1], ' ')
			if cut < 0 {
				cut = strings.IndexByte(line, ' ')
			}
			if cut < 0 {
				break
			}
			lines = append(lines, strings.TrimRight(line[:cut], " "))
			line = strings.TrimLeft(line[cut:], " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// cleanText replaces what would disturb the layout or the terminal: most of
// the texts come from drivers.
func cleanText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func noneIf(none bool) string {
	if none {
		return "  <none>"
	}
	return ""
}
