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

// Package why tells why a pod or a ResourceClaim waits.
package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"kubernetes-dra/cmd/internal/terminal"
	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

const long = `Tell why a pod or a ResourceClaim waits: the right cause first, each with the object and field that says so, and
a command that mends it or shows more.

Without a name, all pods of the namespace that have claims, or extended resources of a DeviceClass, and do not run are
looked at.

Nothing is changed. Whether devices can be allocated is found out with the allocator of the scheduler and its CEL
library. What you may not read is said, together with nothing that depends on it.`

const example = `  # Why does this pod wait?
  kubectl dra why train-0

  # Why is this claim not allocated, or not free?
  kubectl dra why claim/gpu

  # All pods that wait for devices
  kubectl dra why -A

  # Only the id of the first cause
  kubectl dra why train-0 -o jsonpath='{.items[0].causes[0].cause}'`

type options struct {
	config        *genericclioptions.ConfigFlags
	streams       genericiooptions.IOStreams
	output        *output.Flags
	allNamespaces bool
	selector      string
}

// NewCommand returns the command. The flags say how to reach the cluster.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "why [POD | pod/NAME | claim/NAME]...",
		Short:   "Tell why a pod or a ResourceClaim waits",
		Long:    long,
		Example: example,
		RunE:    func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) },
		ValidArgsFunction: func(command *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return o.complete(command.Context(), toComplete), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.output = output.New(command)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Look at the pods of all namespaces.")
	command.Flags().StringVarP(&o.selector, "selector", "l", "", "Selector (label query) of the pods.")
	return command
}

// answer is about one object.
type answer struct {
	Namespace string    `json:"namespace"`
	Object    string    `json:"object"`
	Causes    []Finding `json:"causes"`
	// Unseen are resources that could not be read, and the causes that were not looked for because of that.
	Unseen map[view.Resource]output.Gap `json:"unseen,omitempty"`
	// Pod is the one that waits for the claim which was asked about.
	Pod string `json:"pod,omitempty"`
}

// all are the resources that causes depend on.
var all = []view.Resource{
	view.Pods, view.Claims, view.Templates, view.Classes, view.Slices, view.TaintRules, view.Nodes, view.Namespaces, view.Quotas, view.Events,
}

func (o *options) run(ctx context.Context, args []string) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	if len(args) > 0 && (o.selector != "" || o.allNamespaces) {
		return errors.New("a name cannot be combined with --selector or --all-namespaces")
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("no namespace: %w", err)
	}
	if o.allNamespaces {
		namespace = ""
	}
	reader, err := view.NewReader(o.config, o.streams.ErrOut)
	if err != nil {
		return err
	}
	s, err := reader.Read(ctx, namespace, all...)
	if err != nil {
		return err
	}
	var diagnoses []*diagnosis
	if len(args) == 0 {
		diagnoses, err = o.waiting(ctx, reader, s, selector)
	} else {
		diagnoses, err = named(s, args)
	}
	if err != nil {
		return err
	}
	answers := make([]answer, 0, len(diagnoses))
	for _, d := range diagnoses {
		answers = append(answers, d.answer(ctx, reader))
	}
	return o.print(answers, len(args) > 0)
}

// waiting are all pods with claims that should run and do not.
func (o *options) waiting(ctx context.Context, reader *view.Reader, s *view.Snapshot, selector labels.Selector) ([]*diagnosis, error) {
	if !s.Sees(view.Pods) {
		return nil, fmt.Errorf("list pods: %s", s.Gaps[view.Pods])
	}
	var list []*diagnosis
	namespaces := map[string]bool{}
	for _, pod := range s.Pods {
		if pod.Status.Phase != corev1.PodPending || len(pod.Spec.ResourceClaims) == 0 && !usesExtended(pod) || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		d := newDiagnosis(s, pod)
		if len(pod.Spec.ResourceClaims) == 0 && !d.maybeExtended {
			continue
		}
		if s.Namespace == "" && s.Sees(view.Claims) && !namespaces[pod.Namespace] {
			namespaces[pod.Namespace] = true
			if err := reader.ReadOwn(ctx, s, pod.Namespace); err != nil {
				return nil, err
			}
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *diagnosis) int {
		return cmp.Or(strings.Compare(a.pod.Namespace, b.pod.Namespace), strings.Compare(a.pod.Name, b.pod.Name))
	})
	return list, nil
}

// named are the objects that the user asks for.
func named(s *view.Snapshot, args []string) ([]*diagnosis, error) {
	var list []*diagnosis
	for _, arg := range args {
		kind, name, found := strings.Cut(arg, "/")
		if !found {
			kind, name = "", arg
		}
		var d *diagnosis
		switch kind {
		case "pod", "pods", "po":
			d = ofPod(s, name)
		case "claim", "claims", "resourceclaim", "resourceclaims", "resourceclaims.resource.k8s.io":
			d = ofClaim(s, name)
		case "":
			if d = ofPod(s, name); d == nil {
				d = ofClaim(s, name)
			}
		default:
			return nil, fmt.Errorf("%q is neither a pod nor a claim: write pod/%s or claim/%s", arg, name, name)
		}
		if d == nil {
			for _, r := range []view.Resource{view.Pods, view.Claims} {
				if !s.Sees(r) {
					return nil, fmt.Errorf("%q was not found in namespace %q, and %s could not be read: %s", arg, s.Namespace, r, s.Gaps[r])
				}
			}
			return nil, fmt.Errorf("%q was not found: there is no such pod or ResourceClaim in namespace %q", arg, s.Namespace)
		}
		list = append(list, d)
	}
	return list, nil
}

func ofPod(s *view.Snapshot, name string) *diagnosis {
	for _, pod := range s.Pods {
		if pod.Name == name {
			return newDiagnosis(s, pod)
		}
	}
	return nil
}

// ofClaim is about the first pod that waits for the claim, or about the claim alone.
func ofClaim(s *view.Snapshot, name string) *diagnosis {
	claim := s.Claim(s.Namespace, name)
	if claim == nil {
		return nil
	}
	d := &diagnosis{s: s, claims: []podClaim{{name: name, claim: claim}}, asked: claim}
	for _, pod := range s.PodsOf(claim) {
		if pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
			d = newDiagnosis(s, pod)
			d.asked = claim
			break
		}
	}
	return d
}

func newDiagnosis(s *view.Snapshot, pod *corev1.Pod) *diagnosis {
	d := &diagnosis{s: s, pod: pod, events: currentEvents(s, pod)}
	for i := range pod.Spec.ResourceClaims {
		c := podClaim{entry: &pod.Spec.ResourceClaims[i]}
		name, owned, err := resourceclaim.Name(pod, c.entry)
		if err == nil && name == nil {
			// The controller says that the entry needs no claim.
			continue
		}
		if err == nil {
			c.name, c.owned, c.claim = *name, owned, s.Claim(pod.Namespace, *name)
		}
		d.claims = append(d.claims, c)
	}
	d.addExtended()
	return d
}

// currentEvents leaves out what the kubelet could not do before the containers of the pod were started. A pod with
// a refusal that is newer does not run as it should.
func currentEvents(s *view.Snapshot, pod *corev1.Pod) []*corev1.Event {
	var started time.Time
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil && c.State.Running.StartedAt.After(started) {
			started = c.State.Running.StartedAt.Time
		}
	}
	return slices.DeleteFunc(s.EventsOf(pod.UID), func(e *corev1.Event) bool {
		return !started.IsZero() && isKubeletRefusal(e) && !view.EventTime(e).After(started)
	})
}

// answer reads what only this object needs, and finds the causes.
func (d *diagnosis) answer(ctx context.Context, reader *view.Reader) answer {
	if d.pod != nil && slices.ContainsFunc(d.claims, func(c podClaim) bool { return c.claim != nil && c.claim.ReservedFor != nil }) {
		if owner := metav1.GetControllerOf(d.pod); owner != nil {
			reader.ReadControllers(ctx, d.s, d.pod.Namespace, []metav1.OwnerReference{*owner})
		}
	}
	d.look = func(claim *view.Claim) { d.lookAt(ctx, reader, claim) }
	findings, blind := diagnose(ctx, d)
	a := answer{Causes: findings, Unseen: blind}
	if a.Causes == nil {
		a.Causes = []Finding{}
	}
	if d.tooLarge {
		a.Unseen["whether there are devices"] = output.Gap{Reason: fmt.Sprintf("not worked out in %s", maxAllocation), LeftOut: allocationIDs}
	}
	if d.s.OneNamespace {
		a.Unseen[view.OtherClaims] = output.Gap{Reason: view.Forbidden, LeftOut: allocationIDs}
	}
	switch {
	case d.asked != nil:
		a.Namespace, a.Object = d.asked.Namespace, claimObject(d.asked)
		if d.pod != nil {
			a.Pod = d.pod.Name
		}
	default:
		a.Namespace, a.Object = d.pod.Namespace, d.podObject()
	}
	return a
}

// maxLooks is how many consumers of other claims are looked up for one answer.
const maxLooks = 50

// lookAt finds out whether the consumers of a claim still exist.
func (d *diagnosis) lookAt(ctx context.Context, reader *view.Reader, claim *view.Claim) {
	for _, ref := range claim.Status.ReservedFor {
		if _, known := d.gone[ref.UID]; known || d.s.Pod(ref.UID) != nil || len(d.gone) >= maxLooks {
			continue
		}
		if d.gone == nil {
			d.gone = map[types.UID]bool{}
		}
		if !view.IsPod(ref) {
			d.gone[ref.UID] = !reader.ReadWorkload(ctx, d.s, claim.Namespace, view.Workload{APIGroup: ref.APIGroup, Resource: ref.Resource, Name: ref.Name, UID: ref.UID})
			continue
		}
		pod, err := reader.Kube.CoreV1().Pods(claim.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		// Whatever else goes wrong, the pod may exist.
		d.gone[ref.UID] = apierrors.IsNotFound(err) || err == nil && pod.UID != ref.UID
		if err == nil && pod.UID == ref.UID {
			d.s.Pods = append(d.s.Pods, pod)
		}
	}
}

func (o *options) print(answers []answer, detailed bool) error {
	if !o.output.IsText() {
		return o.output.PrintObject(o.streams.Out, "Why", map[string]any{"items": answers})
	}
	if len(answers) == 0 {
		where := "any namespace"
		if !o.allNamespaces {
			where = "this namespace"
		}
		_, err := fmt.Fprintf(o.streams.ErrOut, "No pods with claims wait in %s.\n", where)
		return err
	}
	if detailed && !o.output.IsWide() {
		for i, a := range answers {
			if i > 0 {
				fmt.Fprintln(o.streams.Out)
			}
			if _, err := io.WriteString(o.streams.Out, a.text()); err != nil {
				return err
			}
		}
		return nil
	}
	columns := []string{"Object", "Cause", "Why", "+See", "+Field", "+Command"}
	if o.allNamespaces {
		columns = append([]string{"Namespace"}, columns...)
	}
	table := output.Table(columns...)
	unseen := map[view.Resource]output.Gap{}
	for _, a := range answers {
		first := Finding{Cause: "<unknown>"}
		if len(a.Causes) > 0 {
			first = a.Causes[0]
		}
		cells := []string{a.Object, first.Cause, first.Text, first.Object, first.Field, first.Command}
		if o.allNamespaces {
			cells = append([]string{a.Namespace}, cells...)
		}
		output.AddRow(table, cells...)
		maps.Copy(unseen, a.Unseen)
	}
	if err := o.output.PrintTable(o.streams.Out, table); err != nil {
		return err
	}
	if len(unseen) > 0 {
		fmt.Fprint(o.streams.ErrOut, output.Unseen(unseen))
	}
	return nil
}

// text is what people read about one object.
func (a answer) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in namespace %s", a.Object, a.Namespace)
	if a.Pod != "" {
		fmt.Fprintf(&b, ", for which pod/%s waits", a.Pod)
	}
	b.WriteString(":\n")
	for i, f := range a.Causes {
		fmt.Fprintf(&b, "\n%d. %s: %s\n", i+1, f.Cause, terminal.Clean(f.Text))
		for _, detail := range f.Details {
			fmt.Fprintf(&b, "     %s\n", terminal.Clean(detail))
		}
		fmt.Fprintf(&b, "   see: %s, %s\n", terminal.Clean(f.Object), terminal.Clean(f.Field))
		if f.Command != "" {
			fmt.Fprintf(&b, "   run: %s\n", terminal.Clean(f.Command))
		}
	}
	if len(a.Causes) == 0 {
		b.WriteString("\nNo cause was found.\n")
	}
	if len(a.Unseen) > 0 {
		b.WriteString("\n" + output.Unseen(a.Unseen))
	}
	return b.String()
}

// complete offers names of pods and claims.
func (o *options) complete(ctx context.Context, start string) []string {
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil
	}
	reader, err := view.NewReader(o.config, io.Discard)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := reader.Read(ctx, namespace, view.Pods, view.Claims)
	if err != nil {
		return nil
	}
	var names []string
	for _, pod := range s.Pods {
		if len(pod.Spec.ResourceClaims) > 0 {
			names = append(names, pod.Name)
		}
	}
	for _, claim := range s.Claims {
		if claim.Namespace == namespace {
			names = append(names, "claim/"+claim.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, start) })
}
