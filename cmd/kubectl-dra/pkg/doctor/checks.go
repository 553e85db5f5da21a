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

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/internal/access"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// checkup looks for one thing.
type checkup struct {
	id, level string
	needs     []view.Resource
	find      func(context.Context, *examination) []Finding
	// settles is true if a finding may be a moment in the life of a healthy cluster.
	settles bool
}

// checks are all of them. The ids do not change.
var checks = []checkup{
	{"claim-idle", levelWarning, []view.Resource{view.Claims}, idleClaims, true},
	{"reserved-for-nobody", levelWarning, []view.Resource{view.Claims, view.PodNames}, goneConsumers, true},
	{"claim-stuck", levelWarning, []view.Resource{view.Claims}, stuckClaims, false},
	{"device-gone", levelWarning, []view.Resource{view.Claims, view.Slices}, goneDevices, true},
	{"driver-dead", levelWarning, []view.Resource{view.Slices, view.Nodes}, deadDrivers, true},
	{"pool-incomplete", levelWarning, []view.Resource{view.Slices}, incompletePools, true},
	{"driver-refuses-workloads", levelError, []view.Resource{view.Claims}, refusingDrivers, false},
	{"driver-locked-out", levelWarning, []view.Resource{view.Roles}, lockedOut, false},
	{"admin-label-unguarded", levelWarning, []view.Resource{view.Namespaces, view.Roles, view.Policies}, unguardedLabels, false},
	{"policy-missing", levelInfo, []view.Resource{view.Slices, view.Policies}, missingPolicies, false},
	{"old-api", levelWarning, []view.Resource{view.Claims, view.Classes, view.Slices}, oldClients, false},
	{"versions-differ", levelWarning, []view.Resource{view.Nodes}, mixedVersions, false},
	{"gates-differ", levelError, []view.Resource{gatesOfAPIServer, gatesOfKubelets}, mixedGates, false},
}

// patience is how long others may take for what usually takes a moment.
const patience = 5 * time.Minute

func claimName(c *view.Claim) string { return "resourceclaim/" + c.Namespace + "/" + c.Name }

// idleClaims keep devices, and nobody is allowed to use them.
func idleClaims(_ context.Context, e *examination) (findings []Finding) {
	for _, c := range e.s.Claims {
		since := c.Since()
		if !c.IsAllocated() || len(c.Status.ReservedFor) > 0 || c.DeletionTimestamp != nil || since != nil && e.s.Now.Sub(since.Time) < patience {
			continue
		}
		findings = append(findings, Finding{
			Object: claimName(c), Text: fmt.Sprintf("it keeps %s for nobody", devices(c)), Command: fmt.Sprintf("kubectl -n %s delete resourceclaim %s", c.Namespace, c.Name),
		})
	}
	return findings
}

func devices(c *view.Claim) string {
	if n := len(c.Status.Allocation.Devices.Results); n != 1 {
		return fmt.Sprintf("%d devices", n)
	}
	return "one device"
}

// maxLooks is how many workloads are looked up one by one.
const maxLooks = 200

// goneConsumers are in lists of claims and do not exist.
func goneConsumers(ctx context.Context, e *examination) (findings []Finding) {
	known := map[types.UID]bool{}
	for _, c := range e.s.Claims {
		for _, ref := range c.Status.ReservedFor {
			exists, seen := known[ref.UID]
			switch {
			case seen:
			case view.IsPod(ref):
				exists = e.s.PodUIDs[ref.UID]
			case len(known) < maxLooks:
				exists = e.reader.ReadWorkload(ctx, e.s, c.Namespace, view.Workload{APIGroup: ref.APIGroup, Resource: ref.Resource, Name: ref.Name, UID: ref.UID})
				known[ref.UID] = exists
			default:
				exists = true
				e.s.Gaps[moreWorkloads] = fmt.Sprintf("%d were looked up", maxLooks)
			}
			if !exists {
				findings = append(findings, Finding{
					Object: claimName(c), Text: fmt.Sprintf("it is reserved for %s, which does not exist: does kube-controller-manager run?", view.Consumer(ref)),
					Command: fmt.Sprintf("kubectl -n %s describe resourceclaim %s", c.Namespace, c.Name),
				})
			}
		}
	}
	return findings
}

func stuckClaims(_ context.Context, e *examination) (findings []Finding) {
	for _, c := range e.s.Claims {
		if c.DeletionTimestamp == nil || e.s.Now.Sub(c.DeletionTimestamp.Time) < patience {
			continue
		}
		findings = append(findings, Finding{
			Object: claimName(c), Text: "it has been being deleted for more than five minutes", Command: fmt.Sprintf("kubectl dra why -n %s claim/%s", c.Namespace, c.Name),
		})
	}
	return findings
}

func goneDevices(_ context.Context, e *examination) (findings []Finding) {
	published := sets.New[view.ID]()
	for _, slice := range e.s.Slices {
		// While a driver replaces the slices of a pool, some devices are in old ones only.
		for _, d := range slice.Spec.Devices {
			published.Insert(view.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: d.Name})
		}
	}
	for _, c := range e.s.Claims {
		if !c.IsAllocated() {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if id := (view.ID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}); !published.Has(id) {
				findings = append(findings, Finding{
					Object: claimName(c), Text: fmt.Sprintf("it has device %s, which no ResourceSlice lists", id),
					Command: fmt.Sprintf("kubectl get resourceslices --field-selector spec.driver=%s", r.Driver),
				})
			}
		}
	}
	return findings
}

// deadDrivers have slices of nodes that are gone or do not answer.
func deadDrivers(_ context.Context, e *examination) (findings []Finding) {
	for _, slice := range e.s.Slices {
		name := ptr.Deref(slice.Spec.NodeName, "")
		if name == "" {
			continue
		}
		f := Finding{Object: "resourceslice/" + slice.Name, Command: "kubectl get node " + name}
		node := e.s.Node(name)
		if node == nil {
			f.Text = fmt.Sprintf("driver %s published it for node %s, which does not exist", slice.Spec.Driver, name)
			findings = append(findings, f)
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && e.s.Now.Sub(c.LastTransitionTime.Time) > patience {
				f.Text = fmt.Sprintf("driver %s published it for node %s, which is not ready", slice.Spec.Driver, name)
				findings = append(findings, f)
			}
		}
	}
	return findings
}

func incompletePools(_ context.Context, e *examination) (findings []Finding) {
	for _, pool := range e.s.IncompletePools() {
		findings = append(findings, Finding{
			Object: "pool/" + pool.Driver + "/" + pool.Name, Text: fmt.Sprintf("%d of %d ResourceSlices are there: the scheduler waits for the others", pool.Found, pool.Want),
			Command: fmt.Sprintf("kubectl get resourceslices --field-selector spec.driver=%s", pool.Driver),
		})
	}
	return findings
}

// refuse are drivers that expect pods in status.reservedFor. docs/drivers.md says how that was found out.
var refuse = sets.New("dra.net", "sriovnetwork.k8snetworkplumbingwg.io")

func refusingDrivers(_ context.Context, e *examination) (findings []Finding) {
	for _, c := range e.s.Claims {
		if !c.IsAllocated() || !slices.ContainsFunc(c.Status.ReservedFor, func(ref resourcev1.ResourceClaimConsumerReference) bool { return !view.IsPod(ref) }) {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if refuse.Has(r.Driver) {
				findings = append(findings, Finding{
					Object: claimName(c), Text: fmt.Sprintf("it is reserved for something else than a pod, and driver %s expects pods: pods fail, or start without the device", r.Driver),
					Command: fmt.Sprintf("kubectl -n %s describe resourceclaim %s", c.Namespace, c.Name),
				})
				break
			}
		}
	}
	return findings
}

// rulesOf are the rules of each service account, by namespace/name, and those of everybody else by kind and name.
func (e *examination) rulesOf(accounts bool) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	add := func(subjects []rbacv1.Subject, role []rbacv1.PolicyRule) {
		for _, subject := range subjects {
			isAccount := subject.Kind == rbacv1.ServiceAccountKind
			if isAccount != accounts {
				continue
			}
			name := subject.Kind + " " + subject.Name
			if isAccount {
				name = subject.Namespace + "/" + subject.Name
			}
			rules[name] = append(rules[name], role...)
		}
	}
	clusterRoles := map[string][]rbacv1.PolicyRule{}
	for _, role := range e.s.Roles.ClusterRoles {
		// The API server keeps its own roles up to date.
		if role.Name == clusterAdmin || role.Labels["kubernetes.io/bootstrapping"] == "" {
			clusterRoles[role.Name] = role.Rules
		}
	}
	for _, binding := range e.s.Roles.ClusterRoleBindings {
		add(binding.Subjects, clusterRoles[binding.RoleRef.Name])
	}
	return rules
}

// clusterAdmin is the role that may do everything.
const clusterAdmin = "cluster-admin"

func mayDoEverything(rules []rbacv1.PolicyRule) bool {
	ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	return ok
}

func covers(rules []rbacv1.PolicyRule, resource string, verbs ...string) bool {
	group := access.Group
	if resource == "namespaces" {
		group = ""
	}
	return slices.ContainsFunc(verbs, func(verb string) bool {
		ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}})
		return ok
	})
}

// lockedOut are service accounts that may write the status of claims, but have none of the permissions that the
// API server asks of drivers and controllers since 1.36.
func lockedOut(_ context.Context, e *examination) (findings []Finding) {
	all := e.rulesOf(true)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !covers(all[name], "resourceclaims/status", "update", "patch") {
			continue
		}
		// A rule for one driver has its name.
		rules := slices.Clone(all[name])
		for i := range rules {
			rules[i].ResourceNames = nil
		}
		own := append(access.ForDriver("update", "", "", false).Verbs, access.ForDriver("patch", "", "", false).Verbs...)
		if covers(rules, "resourceclaims/driver", own...) || covers(rules, "resourceclaims/binding", "update", "patch") {
			continue
		}
		text := "it may write the status of claims, and lacks the rules that kube-apiserver asks for"
		if on, known := e.facts.gates["DRAResourceClaimGranularStatusAuthorization"]; known && !on {
			text = "it may write the status of claims, and lacks the rules that kube-apiserver asks for with DRAResourceClaimGranularStatusAuthorization, which is on by default since 1.36"
		}
		findings = append(findings, Finding{
			Object: "serviceaccount/" + name, Text: text,
			Command: fmt.Sprintf("kubectl dra doctor access --service-account %s --driver NAME", name),
		})
	}
	return findings
}

const guardPolicy = "dra-admin-access-guard"

// unguardedLabels matters only where somebody uses admin access.
func unguardedLabels(_ context.Context, e *examination) (findings []Finding) {
	if slices.Contains(e.s.PolicyNames, guardPolicy) {
		return nil
	}
	var labelled []string
	for _, n := range e.s.Namespaces {
		if access.HasAdminLabel(n.Labels) {
			labelled = append(labelled, n.Name)
		}
	}
	if len(labelled) == 0 {
		return nil
	}
	var who []string
	for _, accounts := range []bool{true, false} {
		all := e.rulesOf(accounts)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			// No policy stops those.
			if covers(all[name], "namespaces", "update", "patch") && !mayDoEverything(all[name]) {
				who = append(who, name)
			}
		}
	}
	if len(who) == 0 {
		return nil
	}
	return []Finding{{
		Object: "namespace/" + labelled[0], Text: fmt.Sprintf("it is labelled for admin access, and these may label others: %s. There is no ValidatingAdmissionPolicy %s", strings.Join(who[:min(len(who), 5)], ", "), guardPolicy),
		Command: "kubectl apply -f examples/adminaccess/guard.yaml",
	}}
}

func missingPolicies(_ context.Context, e *examination) []Finding {
	local := slices.ContainsFunc(e.s.Slices, func(s *resourcev1.ResourceSlice) bool { return s.Spec.NodeName != nil })
	if !local || slices.Contains(e.s.PolicyNames, "dra-node-driver-slices") {
		return nil
	}
	return []Finding{{
		Object: "validatingadmissionpolicies", Text: "no policy binds the drivers of nodes to their nodes: whoever takes over one node can take the devices of others",
		Command: "kubectl apply -k examples/devicestatus/node-policy-audit",
	}}
}

// recently is how long ago a write with an old version counts.
const recently = 24 * time.Hour

// oldClients write with versions of the API that go away.
func oldClients(_ context.Context, e *examination) (findings []Finding) {
	if e.reader.Version != "v1" {
		return nil
	}
	clients := map[string]string{}
	look := func(object string, entries []metav1.ManagedFieldsEntry) {
		for _, entry := range entries {
			if strings.HasPrefix(entry.APIVersion, "resource.k8s.io/") && entry.APIVersion != "resource.k8s.io/v1" && entry.Time != nil && e.s.Now.Sub(entry.Time.Time) < recently {
				clients[entry.Manager+" writes with "+entry.APIVersion] = object
			}
		}
	}
	for _, c := range e.s.Claims {
		look(claimName(c), c.ManagedFields)
	}
	for _, c := range e.s.Classes {
		look("deviceclass/"+c.Name, c.ManagedFields)
	}
	for _, s := range e.s.Slices {
		look("resourceslice/"+s.Name, s.ManagedFields)
	}
	for _, client := range slices.Sorted(maps.Keys(clients)) {
		findings = append(findings, Finding{
			Object: clients[client], Text: client + ", which goes away: update it",
			Command: "kubectl get --raw /metrics | grep apiserver_requested_deprecated_apis",
		})
	}
	if len(findings) > 0 {
		return findings
	}
	for _, used := range e.facts.deprecated {
		findings = append(findings, Finding{
			Object: used, Text: "somebody has used this version of the API since kube-apiserver started, and it goes away",
			Command: "kubectl get --raw /metrics | grep apiserver_requested_deprecated_apis",
		})
	}
	return findings
}

func mixedVersions(_ context.Context, e *examination) (findings []Finding) {
	server, err := version.ParseGeneric(e.facts.version)
	if err != nil {
		return nil
	}
	kubelets := map[string][]string{}
	for _, node := range e.s.Nodes {
		kubelets[node.Status.NodeInfo.KubeletVersion] = append(kubelets[node.Status.NodeInfo.KubeletVersion], node.Name)
	}
	for _, text := range slices.Sorted(maps.Keys(kubelets)) {
		// Simulated nodes have a word there.
		kubelet, err := version.ParseGeneric(text)
		if err != nil {
			continue
		}
		reason := ""
		switch {
		case server.WithPatch(0).LessThan(kubelet.WithPatch(0)):
			reason = "newer than"
		case kubelet.Minor()+3 < server.Minor():
			reason = "more than three minor releases older than"
		case isCarry(text) != isCarry(e.facts.version):
			reason = "not of the same patch set as"
		default:
			continue
		}
		names := kubelets[text]
		findings = append(findings, Finding{
			Object: "node/" + names[0], Text: fmt.Sprintf("%d nodes have kubelet %s, which is %s kube-apiserver %s", len(names), text, reason, e.facts.version),
			Command: "kubectl get nodes",
		})
	}
	return findings
}

func isCarry(v string) bool { return strings.Contains(v, "+dra.") }

// gates are those which have to be the same in kube-apiserver and the kubelets.
var gates = []string{"DRAReservedForWorkloads"}

func mixedGates(_ context.Context, e *examination) (findings []Finding) {
	for _, gate := range gates {
		on, known := e.facts.gates[gate]
		if !known || !on {
			continue
		}
		var without []string
		for node, gates := range e.facts.kubelets {
			on, explicit := gates[gate]
			if !explicit {
				on = gates["AllAlpha"]
			}
			if !on {
				without = append(without, node)
			}
		}
		if len(without) > 0 {
			slices.Sort(without)
			findings = append(findings, Finding{
				Object: "node/" + without[0], Text: fmt.Sprintf("gate %s is on in kube-apiserver, and off in the kubelets of %d of %d nodes that were asked: they refuse pods of such claims", gate, len(without), len(e.facts.kubelets)),
				Command: fmt.Sprintf("kubectl get --raw /api/v1/nodes/%s/proxy/configz", without[0]),
			})
		}
	}
	return findings
}
