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
)

const long = `Prepare ResourceClaims for a release of upstream, which does not know what the carry stores in them.

Upstream drops spec.reservedFor and reservedForAnyPod. It does not see the pods of such a claim, and never removes
a workload from status.reservedFor. So this lists the pods in place of the workload where they fit, up to 256, and
says which pods have to end first.

Without --apply, nothing is changed. Turn DRAReservedForWorkloads off in kube-scheduler first: otherwise new pods list
the workload again. It can be interrupted and run again at any time. The exit code is 1 if something is left to do by hand.`

const example = `  # Look at what would be done
  kubectl dra downgrade

  # Do it, in one namespace
  kubectl dra downgrade -n training --apply

  # List the workloads again, where an API server of upstream has not dropped the fields
  kubectl dra downgrade --back --apply`

// options are what the user can set.
type options struct {
	config  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	output  string
	apply   bool
	back    bool
}

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
	command.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json or yaml. The default is a table.")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.output != "" && o.output != "json" && o.output != "yaml" {
		return fmt.Errorf("--output %q: use json or yaml, or leave it out for a table", o.output)
	}
	r, err := o.connect()
	if err != nil {
		return err
	}
	steps, err := r.do(ctx)
	var templates []template
	if !o.back {
		var listErr error
		templates, listErr = r.listTemplates(ctx)
		err = errors.Join(err, listErr)
	}
	// What was done has to be seen also after an error.
	return errors.Join(o.print(steps, templates), err, o.unfinished(steps))
}

// connect finds out which version of the API there is.
func (o *options) connect() (*run, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
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
	r := &run{resource: mapping.Resource, namespace: *o.config.Namespace, apply: o.apply, back: o.back, patience: time.Minute}
	if r.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	r.dynamic, err = dynamic.NewForConfig(config)
	return r, err
}

// unfinished is an error if the user has to do something.
func (o *options) unfinished(steps []step) error {
	stops := 0
	for _, s := range steps {
		if s.action == actionStop {
			stops++
		}
	}
	if stops == 0 {
		return nil
	}
	return fmt.Errorf("%s: end those pods and run this again before you install a release of upstream", count(stops, "one claim has pods that cannot be listed", "%d claims have pods that cannot be listed"))
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
		fmt.Fprintf(&text, "  %s/%s: one claim for each of %s\n", t.namespace, t.name, t.consumers)
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
	if o.apply {
		return nil
	}
	_, err := fmt.Fprintln(o.streams.Out, "\nNothing was changed. Use --apply to do this.")
	return err
}

func table(steps []step) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range []string{"Namespace", "Claim", "Reserved for", "Pods", "Action", "Why"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, s := range steps {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{s.namespace, s.name, strings.Join(s.holds, ", "), int64(s.users), string(s.action), s.why}})
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
