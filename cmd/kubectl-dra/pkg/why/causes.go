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
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/internal/access"
	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// Finding is one cause, and how to tell and mend it.
type Finding struct {
	// Cause is an id that does not change: docs/kubectl-dra.md lists them all.
	Cause string `json:"cause"`
	// Text says what is wrong.
	Text string `json:"text"`
	// Object and Field say so.
	Object string `json:"object"`
	Field  string `json:"field"`
	// Command mends it, or shows more of what has to be decided.
	Command string `json:"command,omitempty"`
	// Details are lines below the text.
	Details []string `json:"details,omitempty"`

	// weight sorts findings of the same kind: the higher one first.
	weight int
}

// podClaim is a claim of the pod, or the one claim that is asked about.
type podClaim struct {
	// entry is that of the pod, nil if there is no pod.
	entry *corev1.PodResourceClaim
	// name is empty if the claim was not made yet. Claim is nil if there is none.
	name  string
	claim *view.Claim
	// owned is true if the claim must belong to the pod.
	owned bool
}

// diagnosis is about one pod, or one claim that no pod waits for.
type diagnosis struct {
	s      *view.Snapshot
	pod    *corev1.Pod
	claims []podClaim
	events []*corev1.Event
	// asked is the claim that the user asked about, if it is that.
	asked *view.Claim
	// look finds out about the consumers of a claim.
	look func(*view.Claim)
	log  klog.Logger
	cel  *dracel.Cache

	// found are the causes until now.
	found []Finding
	// matches are those of the requests of the claims that are not allocated.
	matches []*match
	// gone are consumers of claims that do not exist any more.
	gone map[types.UID]bool
	// possible is true if the claims can be allocated as things are.
	possible bool
	// reasons has what unfit says of nodes, by their names.
	reasons map[string]string
	// extended is the claim that the scheduler makes for extended resources of the pod, if it has not done so yet.
	extended *view.Claim
	// maybeExtended is true if the pod has such a claim, or will have it, or that cannot be told.
	maybeExtended bool
	// tooLarge is true if that could not be worked out in time.
	tooLarge bool
}

// cause is one way in which something can be wrong. It finds nothing where it could not see what it needs.
type cause struct {
	// ids are those of its findings.
	ids   []string
	needs []view.Resource
	find  func(context.Context, *diagnosis) []Finding
}

// causes are ordered: what has to be mended before anything else matters comes first.
var causes = []cause{
	{[]string{"not-waiting", "pod-ended", "pod-deleted", "no-claims"}, []view.Resource{view.Pods}, notWaiting},
	{[]string{"scheduling-gated"}, []view.Resource{view.Pods}, heldBack},
	{[]string{"claim-missing"}, []view.Resource{view.Claims}, claimMissing},
	{[]string{"template-missing"}, []view.Resource{view.Templates}, templateMissing},
	{[]string{"quota", "admin-label-missing", "permission-missing", "gate-off", "claim-not-made"}, []view.Resource{view.Events}, refusedClaim},
	{[]string{"admin-label-missing"}, []view.Resource{view.Namespaces, view.Templates}, labelMissing},
	{[]string{"quota"}, []view.Resource{view.Quotas, view.Templates}, quotaFull},
	{[]string{"claim-not-made"}, []view.Resource{view.Templates, view.Namespaces, view.Quotas, view.Events}, claimNotMade},
	{[]string{"claim-of-another-pod"}, []view.Resource{view.Claims}, claimOfAnother},
	{[]string{"claim-deleted"}, []view.Resource{view.Claims}, claimDeleted},
	{[]string{"node-gone", "node-not-ready"}, []view.Resource{view.Nodes}, nodeBroken},
	{[]string{"never-scheduled", "claim-not-usable"}, []view.Resource{view.Claims, view.Events}, notAllocated},
	{[]string{"claim-not-usable", "gate-off", "driver-not-on-node", "kubelet-refused", "driver-error"}, []view.Resource{view.Events}, kubeletSays},
	{[]string{"driver-error"}, []view.Resource{view.Claims}, driverSays},
	{[]string{"gate-off"}, []view.Resource{view.Claims}, gateOff},
	{[]string{"reserved-for-another-workload", "permission-missing"}, []view.Resource{view.Claims}, reservedForOther},
	{[]string{"claim-full"}, []view.Resource{view.Claims}, claimFull},
	{[]string{"class-missing"}, []view.Resource{view.Classes, view.Claims}, classMissing},
	{[]string{"device-gone", "device-tainted"}, []view.Resource{view.Slices, view.Claims}, allocationBroken},
	{[]string{"node-gone", "node-not-ready", "node-unfit"}, []view.Resource{view.Nodes, view.Claims}, allocatedElsewhere},
	{[]string{"no-slices", "selector-matches-nothing", "selector-fails"}, []view.Resource{view.Classes, view.Slices, view.Claims}, nothingMatches},
	{[]string{"gate-off"}, []view.Resource{view.Claims}, adminDropped},
	{allocationIDs, []view.Resource{view.Classes, view.Slices, view.Claims, view.Nodes, view.TaintRules}, cannotAllocate},
	{[]string{"scheduler-says", "scheduler-silent"}, []view.Resource{view.Pods}, schedulerSays},
	{[]string{"claim-unused", "claim-idle", "claim-in-use", "deallocation-pending"}, []view.Resource{view.Pods, view.Claims}, claimWithoutPod},
}

// allocationIDs are causes that the allocator proves.
var allocationIDs = []string{
	"held-by-idle-claim", "deallocation-pending", "devices-in-use", "capacity-used-up", "device-tainted", "node-unfit", "node-not-ready",
	"driver-not-on-node", "too-few-devices", "too-little-capacity", "constraint-unmet", "pool-incomplete", "selector-matches-nothing", "selector-fails",
}

// IDs are those of all causes, sorted.
func IDs() []string {
	all := sets.New[string]()
	for _, c := range causes {
		all.Insert(c.ids...)
	}
	return sets.List(all)
}

// diagnose returns the causes, the right one first, and which ones it could not look for because of what.
func diagnose(ctx context.Context, d *diagnosis) (found []Finding, blind map[view.Resource]output.Gap) {
	d.log = klog.FromContext(ctx)
	d.cel = dracel.NewCache(1000, celFeatures)
	blind = map[view.Resource]output.Gap{}
	if d.pod == nil && !d.s.Sees(view.Pods) {
		// A pod may wait for the claim, for any reason.
		blind[view.Pods] = output.Gap{}.With(d.s.Gaps[view.Pods], IDs()...)
	}
	for _, c := range causes {
		if !d.s.Sees(c.needs...) {
			for _, r := range c.needs {
				if !d.s.Sees(r) {
					blind[r] = blind[r].With(d.s.Gaps[r], c.ids...)
				}
			}
			continue
		}
		for _, f := range c.find(ctx, d) {
			d.asExtended(&f)
			same := func(other Finding) bool {
				return other.Cause == f.Cause && other.Object == f.Object && other.Field == f.Field
			}
			if !slices.ContainsFunc(d.found, same) {
				d.found = append(d.found, f)
			}
		}
		if slices.ContainsFunc(d.found, func(f Finding) bool { return slices.Contains(final, f.Cause) }) {
			break
		}
	}
	return d.found, blind
}

// final are causes after which no other one matters.
var final = []string{"not-waiting", "pod-ended", "pod-deleted", "no-claims", "claim-in-use"}

func (d *diagnosis) unallocated() []*view.Claim {
	var list []*view.Claim
	for _, c := range d.claims {
		if c.claim != nil && c.claim.Status.Allocation == nil {
			list = append(list, c.claim)
		}
	}
	return list
}

// waits returns true if the pod is not on a node yet.
func (d *diagnosis) waits() bool { return d.pod != nil && d.pod.Spec.NodeName == "" }

func (d *diagnosis) podObject() string { return "pod/" + d.pod.Name }

// kubectl is a command in the namespace.
func (d *diagnosis) kubectl(format string, args ...any) string {
	namespace := d.s.Namespace
	if d.pod != nil {
		namespace = d.pod.Namespace
	} else if len(d.claims) > 0 {
		namespace = d.claims[0].claim.Namespace
	}
	return "kubectl -n " + namespace + " " + fmt.Sprintf(format, args...)
}

func (d *diagnosis) scheduledCondition() *corev1.PodCondition {
	if d.pod == nil {
		return nil
	}
	for i := range d.pod.Status.Conditions {
		if c := &d.pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

func notWaiting(_ context.Context, d *diagnosis) []Finding {
	if d.pod == nil {
		return nil
	}
	f := Finding{Object: d.podObject(), Field: "status.phase"}
	switch {
	case view.IsDone(d.pod):
		f.Cause, f.Text = "pod-ended", fmt.Sprintf("the pod has ended: %s %s", d.pod.Status.Phase, d.pod.Status.Reason)
	case d.pod.DeletionTimestamp != nil:
		f.Cause, f.Field, f.Text = "pod-deleted", "metadata.deletionTimestamp", "the pod is being deleted, since "+d.pod.DeletionTimestamp.UTC().Format("2006-01-02 15:04:05Z")
		if node := d.s.Node(d.pod.Spec.NodeName); node != nil && !isReady(node) {
			f.Text += fmt.Sprintf(", and its node %s does not answer", node.Name)
		}
	case d.pod.Status.Phase == corev1.PodRunning && !slices.ContainsFunc(d.events, isKubeletRefusal):
		f.Cause, f.Text = "not-waiting", "the pod runs on "+d.pod.Spec.NodeName
	case len(d.pod.Spec.ResourceClaims) == 0 && !d.maybeExtended:
		f.Cause, f.Field, f.Text = "no-claims", "spec.resourceClaims", "the pod has no ResourceClaims, so it does not wait for one"
		if c := d.scheduledCondition(); c != nil {
			f.Details = []string{"the scheduler says: " + c.Message}
		}
	default:
		return nil
	}
	return []Finding{f}
}

func heldBack(_ context.Context, d *diagnosis) []Finding {
	if d.pod == nil || len(d.pod.Spec.SchedulingGates) == 0 || !d.waits() {
		return nil
	}
	var names []string
	for _, gate := range d.pod.Spec.SchedulingGates {
		names = append(names, gate.Name)
	}
	return []Finding{{
		Cause: "scheduling-gated", Object: d.podObject(), Field: "spec.schedulingGates",
		Text:    fmt.Sprintf("the scheduler does not look at the pod until somebody removes its scheduling gates: %s", strings.Join(names, ", ")),
		Command: d.kubectl("get pod %s -o jsonpath='{.spec.schedulingGates}'", d.pod.Name),
	}}
}

func claimMissing(_ context.Context, d *diagnosis) (findings []Finding) {
	for i, c := range d.claims {
		if c.claim != nil || c.name == "" {
			continue
		}
		f := Finding{
			Cause: "claim-missing", Object: d.podObject(), Field: fmt.Sprintf("spec.resourceClaims[%d].resourceClaimName", i),
			Text:    fmt.Sprintf("there is no ResourceClaim %s in namespace %s", c.name, d.pod.Namespace),
			Command: d.kubectl("get resourceclaims"),
		}
		switch {
		case c.entry == nil:
			f.Field = "status.extendedResourceClaimStatus"
			f.Text += ": the scheduler made it for extended resources, and somebody deleted it"
		case c.entry.ResourceClaimName == nil:
			f.Field = "status.resourceClaimStatuses"
			f.Text += ": it was made from a template, and somebody deleted it"
		}
		findings = append(findings, f)
	}
	return findings
}

// fromTemplate calls a function for each claim that has still to be made.
func (d *diagnosis) fromTemplate(do func(i int, name string, t *view.Template) []Finding) (findings []Finding) {
	for i, c := range d.claims {
		if c.entry == nil || c.name != "" || c.entry.ResourceClaimTemplateName == nil {
			continue
		}
		name := *c.entry.ResourceClaimTemplateName
		findings = append(findings, do(i, name, d.s.Template(d.pod.Namespace, name))...)
	}
	return findings
}

func templateMissing(_ context.Context, d *diagnosis) []Finding {
	return d.fromTemplate(func(i int, name string, t *view.Template) []Finding {
		if t != nil {
			return nil
		}
		return []Finding{{
			Cause: "template-missing", Object: d.podObject(), Field: fmt.Sprintf("spec.resourceClaims[%d].resourceClaimTemplateName", i),
			Text:    fmt.Sprintf("there is no ResourceClaimTemplate %s in namespace %s", name, d.pod.Namespace),
			Command: d.kubectl("get resourceclaimtemplates"),
		}}
	})
}

// refusedClaim is about what the controller says: the API server refused the claim that it wanted to make.
func refusedClaim(_ context.Context, d *diagnosis) []Finding {
	return d.fromTemplate(func(_ int, name string, t *view.Template) []Finding {
		if t == nil {
			return nil
		}
		for _, e := range d.events {
			if e.Reason != "FailedResourceClaimCreation" {
				continue
			}
			f := Finding{
				Object: d.podObject(), Field: "events: " + e.Reason, Text: "the controller could not make the claim: " + e.Message,
				Command: d.kubectl("describe resourceclaimtemplate %s", name),
			}
			switch {
			case strings.Contains(e.Message, "exceeded quota"):
				f.Cause, f.Command = "quota", d.kubectl("describe resourcequota")
			case strings.Contains(e.Message, "dminAccess") || strings.Contains(e.Message, "admin access"):
				return []Finding{d.noLabel(name, e.Message)}
			case strings.Contains(e.Message, "is forbidden"):
				f.Cause = "permission-missing"
			case strings.Contains(e.Message, "feature gate"):
				f.Cause = "gate-off"
			default:
				f.Cause = "claim-not-made"
			}
			return []Finding{f}
		}
		return nil
	})
}

func (d *diagnosis) hasAdminLabel(namespace string) bool {
	return access.HasAdminLabel(d.s.NamespaceLabels(namespace))
}

func (d *diagnosis) noLabel(template, message string) Finding {
	f := Finding{
		Cause: "admin-label-missing", Object: "namespace/" + d.pod.Namespace, Field: "metadata.labels",
		Text:    fmt.Sprintf("ResourceClaimTemplate %s asks for admin access, and the namespace is not labelled for that: an administrator has to do it", template),
		Command: fmt.Sprintf("kubectl label namespace %s %s=true", d.pod.Namespace, access.AdminLabels[0]),
	}
	if message != "" {
		f.Details = []string{"the controller says: " + message}
	}
	return f
}

func labelMissing(_ context.Context, d *diagnosis) []Finding {
	return d.fromTemplate(func(_ int, name string, t *view.Template) []Finding {
		if t == nil || len(d.found) > 0 || len(d.s.Namespaces) == 0 || d.hasAdminLabel(d.pod.Namespace) {
			return nil
		}
		for _, r := range t.Spec.Spec.Devices.Requests {
			if r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false) {
				return []Finding{d.noLabel(name, "")}
			}
		}
		return nil
	})
}

// quotaFull is for the time before the controller has tried, and after its event is gone.
func quotaFull(_ context.Context, d *diagnosis) []Finding {
	return d.fromTemplate(func(_ int, name string, t *view.Template) []Finding {
		if t == nil || len(d.found) > 0 {
			return nil
		}
		wanted := map[string]int64{"count/resourceclaims.resource.k8s.io": 1}
		for _, r := range t.Spec.Spec.Devices.Requests {
			if r.Exactly != nil && r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				wanted[r.Exactly.DeviceClassName+".deviceclass.resource.k8s.io/devices"] += r.Exactly.Count
			}
		}
		for _, quota := range d.s.Quotas {
			for resource, n := range wanted {
				hard, limited := quota.Status.Hard[corev1.ResourceName(resource)]
				used := quota.Status.Used[corev1.ResourceName(resource)]
				if limited && used.Value()+n > hard.Value() {
					return []Finding{{
						Cause: "quota", Object: "resourcequota/" + quota.Name, Field: "status.used",
						Text:    fmt.Sprintf("a claim from ResourceClaimTemplate %s takes %d of %s, and %s of %s are used", name, n, resource, used.String(), hard.String()),
						Command: d.kubectl("describe resourcequota %s", quota.Name),
					}}
				}
			}
		}
		return nil
	})
}

func claimNotMade(_ context.Context, d *diagnosis) []Finding {
	return d.fromTemplate(func(_ int, name string, t *view.Template) []Finding {
		if t == nil || len(d.found) > 0 || d.s.Now.Sub(d.pod.CreationTimestamp.Time) < patience {
			return nil
		}
		return []Finding{{
			Cause: "claim-not-made", Object: d.podObject(), Field: "status.resourceClaimStatuses",
			Text:    fmt.Sprintf("kube-controller-manager has not made a claim from ResourceClaimTemplate %s, and no event says why: does it run, with the gate DynamicResourceAllocation?", name),
			Command: "kubectl -n kube-system get lease kube-controller-manager",
		}}
	})
}

func claimOfAnother(_ context.Context, d *diagnosis) (findings []Finding) {
	for _, c := range d.claims {
		if c.claim == nil || !c.owned || c.claim.Annotations[generatedForAnnotation] != "" {
			continue
		}
		if err := resourceclaim.IsForPod(d.pod, c.claim.ResourceClaim, true); err != nil {
			findings = append(findings, Finding{
				Cause: "claim-of-another-pod", Object: claimObject(c.claim), Field: "metadata.ownerReferences",
				Text:    fmt.Sprintf("the claim has the name of one that is made for this pod, but belongs to something else: %v", err),
				Command: d.kubectl("get resourceclaim %s -o jsonpath='{.metadata.ownerReferences}'", c.claim.Name),
			})
		}
	}
	return findings
}

// generatedForAnnotation marks a claim that the controller of the carry generated for several pods.
const generatedForAnnotation = "resource.kubernetes.io/generated-for"

func claimDeleted(_ context.Context, d *diagnosis) (findings []Finding) {
	for _, c := range d.claims {
		if c.claim == nil || c.claim.DeletionTimestamp == nil {
			continue
		}
		f := Finding{
			Cause: "claim-deleted", Object: claimObject(c.claim), Field: "metadata.deletionTimestamp",
			Text:    "the claim is being deleted: no new pod can use it",
			Command: d.kubectl("get resourceclaim %s -o jsonpath='{.status.reservedFor}'", c.claim.Name),
		}
		if users := d.users(c.claim); len(users) > 0 {
			f.Text += fmt.Sprintf(", and it stays as long as %s", few(users))
		} else if len(c.claim.Finalizers) > 0 {
			f.Field = "metadata.finalizers"
			f.Text += fmt.Sprintf(", and it waits for its finalizers: %s", strings.Join(c.claim.Finalizers, ", "))
		}
		findings = append(findings, f)
	}
	return findings
}

// users are those in the list of a claim, and the pods that use it because a workload is in the list.
func (d *diagnosis) users(claim *view.Claim) []string {
	if d.look != nil {
		d.look(claim)
	}
	var users []string
	for _, ref := range claim.Status.ReservedFor {
		text := view.Consumer(ref)
		if d.gone[ref.UID] {
			text += ", which is gone"
		}
		if pod := d.s.Pod(ref.UID); pod != nil && view.IsPod(ref) {
			text += d.podState(pod)
		}
		users = append(users, text)
	}
	for _, pod := range d.s.PodsOf(claim) {
		if pod.Spec.NodeName != "" && !claim.IsReserved(pod) && claim.ForAnyPod {
			users = append(users, "pod/"+pod.Name+d.podState(pod))
		}
	}
	return users
}

func (d *diagnosis) podState(pod *corev1.Pod) string {
	text := ""
	if pod.Spec.NodeName != "" {
		text += " on " + pod.Spec.NodeName
		if node := d.s.Node(pod.Spec.NodeName); d.s.Sees(view.Nodes) && node == nil {
			text += ", which is gone"
		} else if node != nil && !isReady(node) {
			text += ", which is not ready"
		}
	}
	switch {
	case view.IsDone(pod):
		text += ", which has ended"
	case pod.DeletionTimestamp != nil:
		text += ", which is being deleted"
	}
	return text
}

func nodeBroken(_ context.Context, d *diagnosis) []Finding {
	if d.pod == nil || d.pod.Spec.NodeName == "" {
		return nil
	}
	name := d.pod.Spec.NodeName
	node := d.s.Node(name)
	switch {
	case node == nil:
		return []Finding{{
			Cause: "node-gone", Object: d.podObject(), Field: "spec.nodeName", Text: fmt.Sprintf("the pod is on node %s, which does not exist", name),
			Command: d.kubectl("delete pod %s", d.pod.Name),
		}}
	case !isReady(node):
		return []Finding{{
			Cause: "node-not-ready", Object: "node/" + name, Field: "status.conditions[Ready]", Text: fmt.Sprintf("the pod is on node %s, whose kubelet does not answer or is not ready", name),
			Command: "kubectl describe node " + name,
		}}
	}
	return nil
}

func isKubeletRefusal(e *corev1.Event) bool {
	return e.Reason == "FailedPrepareDynamicResources" || e.Reason == "ResourceClaimNotUsable" || e.Reason == "FailedAttachNetworkDevice"
}

// kubeletSays reads the events of a pod on a node. The latest one counts.
func kubeletSays(_ context.Context, d *diagnosis) []Finding {
	if d.pod == nil || d.pod.Spec.NodeName == "" {
		return nil
	}
	i := slices.IndexFunc(d.events, isKubeletRefusal)
	if i < 0 {
		return nil
	}
	e, node := d.events[i], d.pod.Spec.NodeName
	f := Finding{Object: d.podObject(), Field: "events: " + e.Reason, Details: []string{"the event says: " + e.Message}}
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(e.Message, part) })
	}
	switch {
	case e.Reason == "ResourceClaimNotUsable":
		f.Cause, f.Text = "claim-not-usable", "the claim was released, or is allocated for other nodes, after the pod had been assigned to its node"
		f.Command = d.kubectl("delete pod %s", d.pod.Name)
	case has("disabled on this node"):
		f.Cause, f.Text = "gate-off", fmt.Sprintf("the kubelet of %s refuses the pod: a feature gate is off there", node)
		f.Command = fmt.Sprintf("kubectl get --raw /api/v1/nodes/%s/proxy/configz", node)
	case has("is not registered", "not found in the list of registered"):
		f.Cause, f.Text = "driver-not-on-node", fmt.Sprintf("the DRA driver is not registered with the kubelet of %s: does its plugin run there?", node)
		f.Command = fmt.Sprintf("kubectl get pods -A --field-selector spec.nodeName=%s", node)
	case has("not allocated", "not reserved", "isn't reserved", "not allowed to use", "was not created for", "is not owner", "not created for"):
		f.Cause, f.Text = "kubelet-refused", fmt.Sprintf("the kubelet of %s refuses the claim", node)
		f.Command = d.kubectl("get resourceclaims -o wide")
	default:
		f.Cause, f.Text = "driver-error", fmt.Sprintf("the driver on %s failed to prepare the devices", node)
		f.Command = d.kubectl("describe pod %s", d.pod.Name)
	}
	return []Finding{f}
}

// driverSays reads what drivers report about the devices.
func driverSays(_ context.Context, d *diagnosis) (findings []Finding) {
	if d.pod == nil || d.pod.Spec.NodeName == "" || d.pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	for _, c := range d.claims {
		if c.claim == nil {
			continue
		}
		for i, device := range c.claim.Status.Devices {
			for _, condition := range device.Conditions {
				if condition.Type == "Ready" && condition.Status == metav1.ConditionFalse {
					findings = append(findings, Finding{
						Cause: "driver-error", Object: claimObject(c.claim), Field: fmt.Sprintf("status.devices[%d].conditions[Ready]", i),
						Text:    fmt.Sprintf("driver %s reports that device %s is not ready: %s: %s", device.Driver, device.Device, condition.Reason, condition.Message),
						Command: d.kubectl("describe resourceclaim %s", c.claim.Name),
					})
				}
			}
		}
	}
	return findings
}

// notAllocated is about pods on a node whose claims are not allocated: a claim was released since, or somebody else
// than a scheduler has put the pod there.
func notAllocated(_ context.Context, d *diagnosis) []Finding {
	if d.pod == nil || d.pod.Spec.NodeName == "" || len(d.unallocated()) == 0 {
		return nil
	}
	claim := d.unallocated()[0]
	if d.wasBound() {
		return []Finding{{
			Cause: "claim-not-usable", Object: claimObject(claim), Field: "status.allocation",
			Text:    fmt.Sprintf("the claim was released after the pod had been assigned to %s, so the pod cannot start", d.pod.Spec.NodeName),
			Command: d.kubectl("delete pod %s", d.pod.Name),
		}}
	}
	return []Finding{{
		Cause: "never-scheduled", Object: d.podObject(), Field: "spec.nodeName",
		Text:    fmt.Sprintf("the pod was put on %s without the scheduler, and only the scheduler allocates claims: %s is not allocated", d.pod.Spec.NodeName, claim.Name),
		Details: []string{"Use a nodeSelector with kubernetes.io/hostname in place of nodeName."},
		Command: d.kubectl("delete pod %s", d.pod.Name),
	}}
}

// wasBound returns true if a scheduler has put the pod on its node: the creator of the pod did not write that field, or
// there is an event which only such pods get.
func (d *diagnosis) wasBound() bool {
	writes := func(entry metav1.ManagedFieldsEntry) bool {
		return entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:nodeName"`)
	}
	return len(d.pod.ManagedFields) > 0 && !slices.ContainsFunc(d.pod.ManagedFields, writes) ||
		slices.ContainsFunc(d.events, func(e *corev1.Event) bool { return e.Reason == "Scheduled" || e.Reason == "ResourceClaimNotUsable" })
}

// applied is what the user wrote, as kubectl apply remembers it.
const applied = "kubectl.kubernetes.io/last-applied-configuration"

// gateOff is about fields that the API server dropped, and about claims that were allocated while the gate was
// off in the scheduler. What the user wrote is known only if it was with kubectl apply.
func gateOff(_ context.Context, d *diagnosis) (findings []Finding) {
	for _, c := range d.claims {
		if c.claim == nil {
			continue
		}
		written := c.claim.Annotations[applied]
		if c.claim.ReservedFor == nil && strings.Contains(written, `"reservedFor":`) && isFull(c.claim) {
			findings = append(findings, Finding{
				Cause: "gate-off", Object: claimObject(c.claim), Field: "spec.reservedFor",
				Text:    "spec.reservedFor was written, and kube-apiserver dropped it: its gate DRAReservedForWorkloads is off, or it is one of upstream",
				Command: d.kubectl("delete resourceclaim %s", c.claim.Name),
				Details: []string{"Turn the gate on, then create the claim again."},
			})
		}
		if c.claim.ReservedFor != nil && c.claim.Status.Allocation != nil && !c.claim.ForAnyPod && isFull(c.claim) {
			findings = append(findings, Finding{
				Cause: "gate-off", Object: claimObject(c.claim), Field: "status.allocation.reservedForAnyPod",
				Text:    "the claim was allocated while the gate DRAReservedForWorkloads was off in kube-scheduler, so it is reserved per pod until it is deallocated, and it is full",
				Command: d.kubectl("get pods"),
			})
		}
	}
	if c := d.scheduledCondition(); c != nil && strings.Contains(c.Message, "feature is disabled") {
		findings = append(findings, Finding{
			Cause: "gate-off", Object: d.podObject(), Field: "status.conditions[PodScheduled]",
			Text: "the scheduler says that a feature gate is off: " + c.Message, Command: d.kubectl("describe pod %s", d.pod.Name),
		})
	}
	return findings
}

// adminDropped is about claims that want a device of their own now, because the API server dropped a field.
func adminDropped(_ context.Context, d *diagnosis) (findings []Finding) {
	for _, claim := range d.unallocated() {
		if strings.Contains(claim.Annotations[applied], `"adminAccess":true`) && !slices.ContainsFunc(requestsOf(claim), isAdmin) {
			findings = append(findings, Finding{
				Cause: "gate-off", Object: claimObject(claim), Field: "spec.devices.requests[].exactly.adminAccess",
				Text:    "adminAccess was written, and kube-apiserver dropped it: its gate DRAAdminAccess is off",
				Details: []string{"Turn the gate on, then create the claim again."},
				Command: d.kubectl("delete resourceclaim %s", claim.Name),
			})
		}
	}
	return findings
}

func isFull(claim *view.Claim) bool {
	return len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize
}

func claimFull(_ context.Context, d *diagnosis) (findings []Finding) {
	if !d.waits() {
		return nil
	}
	for _, c := range d.claims {
		if c.claim == nil || !isFull(c.claim) || c.claim.ForAnyPod || c.claim.IsReserved(d.pod) {
			continue
		}
		findings = append(findings, Finding{
			Cause: "claim-full", Object: claimObject(c.claim), Field: "status.reservedFor",
			Text:    fmt.Sprintf("the claim is reserved for %d pods, and has no room for more", len(c.claim.Status.ReservedFor)),
			Details: []string{"A claim with spec.reservedFor has no such limit, where the gate DRAReservedForWorkloads is on."},
			Command: d.kubectl("get resourceclaim %s -o jsonpath='{.status.reservedFor[*].name}'", c.claim.Name),
		})
	}
	return findings
}

// reservedForOther is about spec.reservedFor. The scheduler knows whom a pod belongs to, and says so.
func reservedForOther(_ context.Context, d *diagnosis) (findings []Finding) {
	if !d.waits() {
		return nil
	}
	message := ""
	if c := d.scheduledCondition(); c != nil {
		message = c.Message
	}
	for _, c := range d.claims {
		if c.claim == nil || c.claim.ReservedFor == nil {
			continue
		}
		w := c.claim.ReservedFor
		if strings.Contains(message, "not allowed to check whether") {
			findings = append(findings, Finding{
				Cause: "permission-missing", Object: claimObject(c.claim), Field: "spec.reservedFor",
				Text:    fmt.Sprintf("the scheduler may not look at the owners of the pod, so it cannot tell whether the pod belongs to %s", w),
				Details: []string{"the scheduler says: " + message},
				Command: "kubectl get clusterroles -l rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller=true",
			})
			continue
		}
		if c.claim.ForAnyPod && len(c.claim.Status.ReservedFor) > 0 || d.belongsTo(*w) || !d.s.Sees(view.Controllers) {
			continue
		}
		findings = append(findings, Finding{
			Cause: "reserved-for-another-workload", Object: claimObject(c.claim), Field: "spec.reservedFor",
			Text:    fmt.Sprintf("the claim is for the pods of %s, and the pod does not belong to it. Others may use the claim once a pod of %s was scheduled", w, w),
			Command: d.kubectl("get pod %s -o jsonpath='{.metadata.ownerReferences}'", d.pod.Name),
		})
	}
	return findings
}

// belongsTo follows the controllers of the pod.
func (d *diagnosis) belongsTo(w view.Workload) bool {
	var o metav1.Object = d.pod
	for range 10 {
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			return false
		}
		// The kind is not the resource, but the same name in the same group is convincing.
		group, _, versioned := strings.Cut(owner.APIVersion, "/")
		if !versioned {
			group = ""
		}
		if group == w.APIGroup && owner.Name == w.Name && strings.HasPrefix(strings.ToLower(owner.Kind), strings.TrimRight(w.Resource, "es")) && (w.UID == "" || w.UID == owner.UID) {
			return true
		}
		next := d.s.Controller(owner.UID)
		if next == nil {
			return false
		}
		o = next
	}
	return false
}

func classMissing(_ context.Context, d *diagnosis) (findings []Finding) {
	for _, claim := range d.unallocated() {
		for _, r := range requestsOf(claim) {
			if r.DeviceClassName == "" || d.s.Class(r.DeviceClassName) != nil {
				continue
			}
			findings = append(findings, Finding{
				Cause: "class-missing", Object: claimObject(claim), Field: r.field + ".deviceClassName",
				Text: fmt.Sprintf("there is no DeviceClass %s", r.DeviceClassName), Command: "kubectl get deviceclasses",
			})
		}
	}
	return findings
}

// allocationBroken is about devices that the claim of a workload has, and that cannot be used any more. For other
// claims, the scheduler does not look at devices which they have.
func allocationBroken(_ context.Context, d *diagnosis) (findings []Finding) {
	if d.pod != nil && !d.waits() {
		return nil
	}
	devices := map[view.ID]*view.Device{}
	for _, device := range d.s.Devices() {
		devices[device.ID] = device
	}
	for _, c := range d.claims {
		if c.claim == nil || c.claim.Status.Allocation == nil || !c.claim.ForAnyPod {
			continue
		}
		for i, result := range c.claim.Status.Allocation.Devices.Results {
			id := view.ID{Driver: result.Driver, Pool: result.Pool, Device: result.Device}
			field := fmt.Sprintf("status.allocation.devices.results[%d]", i)
			device := devices[id]
			if device == nil {
				findings = append(findings, Finding{
					Cause: "device-gone", Object: claimObject(c.claim), Field: field,
					Text:    fmt.Sprintf("the claim has device %s, which no ResourceSlice lists any more", id),
					Command: fmt.Sprintf("kubectl get resourceslices --field-selector spec.driver=%s", id.Driver),
				})
				continue
			}
			m := match{request: request{ExactDeviceRequest: resourcev1.ExactDeviceRequest{Tolerations: result.Tolerations}}}
			if taint := m.tainted(device); taint != nil {
				findings = append(findings, d.taintFinding(fmt.Sprintf("the claim has device %s, which has the taint %s", id, taintText(taint)), device, taint))
			}
		}
	}
	return findings
}

func taintText(t *view.Taint) string {
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}

func (d *diagnosis) taintFinding(text string, device *view.Device, taint *view.Taint) Finding {
	f := Finding{
		Cause: "device-tainted", Text: text, Object: "resourceslice/" + device.Slice.Name, Field: fmt.Sprintf("spec.devices[%s].taints", device.Name),
		Command: fmt.Sprintf("kubectl get resourceslice %s -o yaml", device.Slice.Name),
	}
	if taint.Rule != "" {
		f.Object, f.Field, f.Command = "devicetaintrule/"+taint.Rule, "spec.taint", "kubectl get devicetaintrule "+taint.Rule+" -o yaml"
	}
	return f
}

// allocatedElsewhere is about a claim whose devices are where the pod cannot go.
func allocatedElsewhere(_ context.Context, d *diagnosis) (findings []Finding) {
	if !d.waits() {
		return nil
	}
	for _, c := range d.claims {
		if c.claim == nil || c.claim.Status.Allocation == nil || c.claim.Status.Allocation.NodeSelector == nil {
			continue
		}
		var names, reasons []string
		other, notReady := false, false
		for _, node := range d.s.Nodes {
			if !matchesNode(node, c.claim.Status.Allocation.NodeSelector) {
				continue
			}
			reason := d.unfit(node)
			if reason == "" {
				other = true
				break
			}
			notReady = notReady || !isReady(node)
			names = append(names, node.Name)
			reasons = append(reasons, fmt.Sprintf("node %s: %s", node.Name, reason))
		}
		switch {
		case other:
		case len(names) == 0:
			findings = append(findings, Finding{
				Cause: "node-gone", Object: claimObject(c.claim), Field: "status.allocation.nodeSelector",
				Text:    "the claim is allocated for nodes that do not exist any more",
				Details: d.users(c.claim), Command: d.kubectl("describe resourceclaim %s", c.claim.Name),
			})
		default:
			f := Finding{
				Cause: "node-unfit", Object: claimObject(c.claim), Field: "status.allocation.nodeSelector",
				Text:    fmt.Sprintf("the claim is allocated on %s, where the pod cannot go", few(names)),
				Details: reasons[:min(len(reasons), maxDetails)], Command: d.kubectl("get pods -o wide"),
			}
			if notReady && len(names) == 1 {
				f.Cause, f.Object, f.Field, f.Command = "node-not-ready", "node/"+names[0], "status.conditions[Ready]", "kubectl describe node "+names[0]
			}
			findings = append(findings, f)
		}
	}
	return findings
}

// schedulerSays is what is left: the scheduler has another reason, or none.
func schedulerSays(_ context.Context, d *diagnosis) []Finding {
	if !d.waits() {
		return nil
	}
	c := d.scheduledCondition()
	if c == nil {
		if len(d.found) > 0 || d.s.Now.Sub(d.pod.CreationTimestamp.Time) < patience {
			return nil
		}
		return []Finding{{
			Cause: "scheduler-silent", Object: d.podObject(), Field: "spec.schedulerName",
			Text:    fmt.Sprintf("no scheduler has looked at the pod: does %q run?", d.pod.Spec.SchedulerName),
			Command: "kubectl -n kube-system get leases",
		}}
	}
	var details []string
	if d.possible {
		details = []string{"There are devices for its claims, so something else keeps it."}
	}
	return []Finding{{
		Details: details,
		Cause:   "scheduler-says", Object: d.podObject(), Field: "status.conditions[PodScheduled]",
		Text: "the scheduler says: " + c.Message, Command: d.kubectl("describe pod %s", d.pod.Name),
	}}
}

// claimWithoutPod is about a claim that is asked for, when no pod waits for it.
func claimWithoutPod(_ context.Context, d *diagnosis) []Finding {
	if d.pod != nil || len(d.claims) == 0 {
		return nil
	}
	claim := d.claims[0].claim
	f := Finding{Object: claimObject(claim), Command: d.kubectl("describe resourceclaim %s", claim.Name)}
	pods := d.s.PodsOf(claim)
	switch {
	case claim.Status.Allocation == nil:
		f.Cause, f.Field = "claim-unused", "status.allocation"
		f.Text = "no pod refers to the claim: it gets devices when its first pod is scheduled"
	case len(claim.Status.ReservedFor) == 0 && len(pods) == 0:
		f.Cause, f.Field = "claim-idle", "status.reservedFor"
		f.Text = "the claim has devices, nobody uses them, and it is reserved for nobody"
		f.Command = d.kubectl("delete resourceclaim %s", claim.Name)
	case len(pods) == 0 && !slices.ContainsFunc(claim.Status.ReservedFor, view.IsPod):
		f.Cause, f.Field = "claim-idle", "status.reservedFor"
		f.Text = fmt.Sprintf("the claim has devices for %s, which has no pod that uses them", few(d.users(claim)))
	case slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourcev1.ResourceClaimConsumerReference) bool {
		pod := d.s.Pod(ref.UID)
		return view.IsPod(ref) && pod != nil && !view.IsDone(pod) && pod.DeletionTimestamp == nil
	}) || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }):
		f.Cause, f.Field = "claim-in-use", "status.reservedFor"
		f.Text = fmt.Sprintf("the claim is allocated and in use by %s", few(d.users(claim)))
	default:
		f.Cause, f.Field = "deallocation-pending", "status.reservedFor"
		f.Text = fmt.Sprintf("the claim keeps its devices until these are gone: %s", few(d.users(claim)))
	}
	return []Finding{f}
}
