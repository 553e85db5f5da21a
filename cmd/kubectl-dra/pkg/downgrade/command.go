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

// Package downgrade prepares ResourceClaims for a release of upstream, which does not know what
// the carry stores in them.
package downgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"

	"kubernetes-dra/cmd/internal/terminal"
)

const long = `Prepare ResourceClaims for a release of upstream, which does not know what the carry stores in them.

Upstream drops spec.reservedFor and reservedForAnyPod. It does not see the pods of such a claim, and never removes
a workload from status.reservedFor. So this lists the pods in place of the workload where they fit, up to 256, and
says which pods have to end first. Claims that no pod uses become free.

It touches only what the scheduler or the controller of the carry wrote. The API server knows who wrote what: what
others listed or allocated is shown with their name, and stays.

Without --apply, nothing is changed. Turn DRAReservedForWorkloads off in kube-scheduler first: otherwise new pods list
the workload again. It can be interrupted and run again at any time.

The exit code is 1 if something is left to do by hand: pods have to end first or, with --apply, a claim of the carry
keeps what others wrote, or there is a ResourceClaimTemplate with spec.spec.reservedFor.`

const example = `  # Look at what would be done
  kubectl dra downgrade

  # Do it, in one namespace
  kubectl dra downgrade -n training --apply

  # Ask the API server whether it would accept all that
  kubectl dra downgrade --apply --dry-run=server

  # List the workloads again, where an API server of upstream has not dropped the fields
  kubectl dra downgrade --back --apply`

// options are what the user can set.
type options struct {
	config  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	output  string
	apply   bool
	dryRun  string
	back    bool
	// onUpstream permits changes where the API server is one of upstream.
	onUpstream bool
	// managers write for the carry under other names than those of its binaries.
	managers []string
	// refused is set if nothing is changed because the API server is one of upstream.
	refused bool
}

// progressInterval is how often a run says how far it is.
const progressInterval = 5 * time.Second

// NewCommand returns the command. The flags say how to reach the cluster. Its namespace is the
// one of --namespace, not that of the context: without it, it is about all namespaces.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "downgrade [--apply] [--back]",
		Short:   "Prepare ResourceClaims for a release of upstream",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.Context())
		},
	}
	command.Flags().BoolVar(&o.apply, "apply", false, "Change the claims. Without it, only say what would be done.")
	command.Flags().BoolVar(&o.back, "back", false, "Undo an earlier run where the fields are still stored.")
	command.Flags().StringVar(&o.dryRun, "dry-run", "none", "With --apply: none, client (the same as without --apply), or server, which checks the changes and does not store them.")
	command.Flags().BoolVar(&o.onUpstream, "on-upstream", false, "Change claims also if the API server is one of upstream. Without it, they are only shown then.")
	command.Flags().StringSliceVar(&o.managers, "manager", nil, "Field manager of a scheduler or controller of the carry whose binary has another name than kube-scheduler or kube-controller-manager.")
	command.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json or yaml. The default is a table.")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.output != "" && o.output != "json" && o.output != "yaml" {
		return fmt.Errorf("--output %q: use json or yaml, or leave it out for a table", o.output)
	}
	switch o.dryRun {
	case "none", "server":
	case "client":
		o.apply = false
	default:
		return fmt.Errorf("--dry-run %q: use none, client or server", o.dryRun)
	}
	r, err := o.connect()
	if err != nil {
		return err
	}
	if o.apply && !o.onUpstream {
		carry, err := HasCarry(r.kube.Discovery().OpenAPIV3(), r.resource.GroupVersion())
		if err != nil {
			return fmt.Errorf("find out whether the API server has the carry: %w", err)
		}
		if !carry {
			o.apply, r.apply, o.refused = false, false, true
		}
	}
	steps, err := r.do(ctx)
	var templates []template
	if !o.back {
		var listErr error
		templates, listErr = r.listTemplates(ctx)
		err = errors.Join(err, listErr)
	}
	// What was done has to be seen also after an error.
	return errors.Join(o.print(steps, templates), err, o.unfinished(steps, templates))
}

// connect finds out which version of the API there is.
func (o *options) connect() (*run, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// Thousands of claims may have to be changed. The API server limits what it cannot bear.
	config.QPS, config.Burst = 50, 100
	mapper, err := o.config.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"})
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%s serves no ResourceClaims: %w", config.Host, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", config.Host, err)
	}
	r := &run{
		resource: mapping.Resource, namespace: *o.config.Namespace, apply: o.apply, dryRun: o.dryRun == "server", back: o.back,
		managers: carryManagers.Clone().Insert(o.managers...), progress: o.progress(),
	}
	if r.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	r.dynamic, err = dynamic.NewForConfig(config)
	return r, err
}

// HasCarry returns true if the API server knows spec.reservedFor. Its gate may be off.
func HasCarry(client openapi.Client, version schema.GroupVersion) (bool, error) {
	paths, err := client.Paths()
	if err != nil {
		return false, err
	}
	name := "apis/" + version.String()
	path, found := paths[name]
	if !found {
		return false, fmt.Errorf("it publishes no schema of %s", name)
	}
	data, err := path.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return false, err
	}
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return false, fmt.Errorf("schema of %s: %w", name, err)
	}
	for name, schema := range document.Components.Schemas {
		if strings.HasSuffix(name, ".ResourceClaimSpec") {
			_, found := schema.Properties["reservedFor"]
			return found, nil
		}
	}
	return false, fmt.Errorf("the schema of %s has no ResourceClaimSpec", name)
}

// progress returns what says from time to time how far it is.
func (o *options) progress() func(done, all int) {
	next := time.Now().Add(progressInterval)
	return func(done, all int) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressInterval)
			fmt.Fprintf(o.streams.ErrOut, "%d of %d claims\n", done, all)
		}
	}
}

// unfinished is an error if the user has to do something.
func (o *options) unfinished(steps []step, templates []template) error {
	stops, kept, changes := 0, 0, 0
	for _, s := range steps {
		if s.action == actionStop {
			stops++
		}
		if s.byHand {
			kept++
		}
		if s.isChange() {
			changes++
		}
	}
	if o.refused && changes > 0 {
		return errors.New("nothing was changed: the API server is one of upstream, and its scheduler and controller may be about to use these claims. Add --on-upstream if the carry is gone for good")
	}
	var errs []error
	if stops > 0 {
		errs = append(errs, fmt.Errorf("%s: end those pods and run this again before you install a release of upstream", count(stops, "one claim has pods that cannot be listed", "%d claims have pods that cannot be listed")))
	}
	// A run that only reports has not tried to finish.
	if !o.apply || o.dryRun == "server" {
		return errors.Join(errs...)
	}
	if kept > 0 {
		errs = append(errs, fmt.Errorf("%s, and upstream never frees the devices: the column WHY names the writer. Let it remove that, or do so with kubectl edit --subresource=status. If it is a scheduler or controller of the carry, name it with --manager. Then run this again before you install a release of upstream", count(kept, "one claim keeps what somebody else wrote", "%d claims keep what somebody else wrote")))
	}
	if len(templates) > 0 {
		errs = append(errs, fmt.Errorf("%s before you install a release of upstream", count(len(templates), "one ResourceClaimTemplate has spec.spec.reservedFor: replace or delete it", "%d ResourceClaimTemplates have spec.spec.reservedFor: replace or delete them")))
	}
	return errors.Join(errs...)
}

func (o *options) print(steps []step, templates []template) error {
	if o.output != "" {
		printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.output)
		if err != nil {
			return err
		}
		return printer.PrintObj(object(steps, templates), o.streams.Out)
	}
	if err := o.printSteps(steps); err != nil {
		return err
	}
	if len(templates) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("\nA release of upstream generates a claim for each pod from these ResourceClaimTemplates, and needs devices for each. Replace or delete them:\n")
	for _, t := range templates {
		fmt.Fprintf(&text, "  %s/%s: one claim for each of %s\n", t.namespace, t.name, terminal.Line(t.consumers))
	}
	_, err := io.WriteString(o.streams.Out, text.String())
	return err
}

func (o *options) printSteps(steps []step) error {
	if len(steps) == 0 {
		what := "has anything that a release of upstream does not know"
		if o.back {
			what = "was changed by a downgrade"
		}
		_, err := fmt.Fprintf(o.streams.Out, "No ResourceClaim %s.\n", what)
		return err
	}
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table(steps), o.streams.Out); err != nil {
		return err
	}
	text := ""
	switch {
	case o.refused:
	case !o.apply:
		text = "\nNothing was changed. Use --apply to do this.\n"
	case o.dryRun == "server":
		text = "\nNothing was changed. The API server accepts this.\n"
	}
	_, err := io.WriteString(o.streams.Out, text)
	return err
}

func table(steps []step) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range []string{"Namespace", "Claim", "Reserved for", "Pods", "Action", "Why"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, s := range steps {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{s.namespace, s.name, terminal.Line(strings.Join(s.holds, ", ")), int64(s.users), string(s.action), terminal.Line(s.why)}})
	}
	return t
}

// object is the same for programs.
func object(steps []step, templates []template) runtime.Object {
	templateItems := []any{}
	for _, t := range templates {
		templateItems = append(templateItems, map[string]any{"namespace": t.namespace, "name": t.name, "consumers": t.consumers})
	}
	items := []any{}
	for _, s := range steps {
		holds := []any{}
		for _, what := range s.holds {
			holds = append(holds, what)
		}
		items = append(items, map[string]any{
			"namespace": s.namespace, "name": s.name, "reservedFor": holds, "pods": int64(s.users), "action": string(s.action), "why": s.why,
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "dra.carry/v1", "kind": "Downgrade", "claims": items, "templates": templateItems}}
}
