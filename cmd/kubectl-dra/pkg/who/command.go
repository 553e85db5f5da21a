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

package who

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

const long = `Tell who has which device, through which claim, as what, and since when.

Without an argument, all devices of the cluster are listed. An argument is the name of a node, a pool, a device, a claim
or a pod, or one of these with its kind: node/a, pool/b, device/c, claim/d, pod/e. A device can be written with
its pool and its driver: pool/device, driver/pool/device.

The list has the claims of all namespaces. With --namespace it has only those of one.`

const example = `  # All devices and who has them
  kubectl dra who

  # The devices of a node
  kubectl dra who node/worker-1

  # The devices that nobody has
  kubectl dra who --free

  # What a pod has
  kubectl dra who pod/train-0 -n training

  # See devices come and go
  kubectl dra who --watch`

type options struct {
	config   *genericclioptions.ConfigFlags
	streams  genericiooptions.IOStreams
	output   *output.Flags
	free     bool
	watch    bool
	selector string
}

// NewCommand returns the command. Its namespace is the one of --namespace, not that of the context: without it, it
// is about all namespaces.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "who [NODE | POOL | DEVICE | CLAIM | POD]",
		Short:   "Tell who has which device",
		Long:    long,
		Example: example,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) },
		ValidArgsFunction: func(command *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return o.complete(command.Context(), args, toComplete), cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.output = output.New(command)
	command.Flags().BoolVar(&o.free, "free", false, "List the devices that a claim could have now.")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "List the devices, then those whose holders change.")
	command.Flags().StringVarP(&o.selector, "selector", "l", "", "Selector (label query) of the claims.")
	return command
}

func (o *options) run(ctx context.Context, args []string) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.watch && !o.output.IsText() {
		return errors.New("--watch prints a table: leave --output out, or use wide")
	}
	f := &filter{free: o.free, namespace: *o.config.Namespace}
	var err error
	if f.selector, err = labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	reader, err := view.NewReader(o.config, o.streams.ErrOut)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		f.parse(args[0])
		if err := o.findPod(ctx, reader, f); err != nil {
			return err
		}
	}
	if o.watch {
		return o.follow(ctx, reader, f)
	}
	s, rows, err := o.read(ctx, reader, f)
	if err != nil {
		return err
	}
	if o.free && !knowsFree(s) {
		return errors.New("which devices are free cannot be told: it takes permission to list resourceclaims of all namespaces, and resourceslices")
	}
	if len(args) > 0 && len(rows) == 0 && !o.free {
		return o.notFound(args[0], f, s)
	}
	return o.print(s, rows)
}

// findPod reads which claims a pod has: claims do not tell the pods of a workload.
func (o *options) findPod(ctx context.Context, reader *view.Reader, f *filter) error {
	if f.kind != "" && f.kind != "pod" {
		return nil
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("no namespace: %w", err)
	}
	pod, err := reader.Kube.CoreV1().Pods(namespace).Get(ctx, f.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		// A claim may list it.
		return nil
	case err != nil:
		return fmt.Errorf("get pod %s/%s: %w", namespace, f.name, err)
	}
	f.claims = map[string]bool{}
	for _, name := range view.ClaimNames(pod) {
		f.claims[namespace+"/"+name] = true
	}
	return nil
}

func (o *options) notFound(arg string, f *filter, s *view.Snapshot) error {
	switch {
	case f.claims != nil:
		return fmt.Errorf("pod %q has no devices: kubectl dra why pod/%s says why", f.name, f.name)
	case !s.Sees(view.Claims, view.Slices):
		return fmt.Errorf("%q was not found, and not everything could be read: %s", arg, strings.TrimSpace(output.Unseen(output.Gaps(s))))
	}
	return fmt.Errorf("%q was not found: it is no node or pool with devices, no device, and no claim or pod that has one", arg)
}

func (o *options) read(ctx context.Context, reader *view.Reader, f *filter) (*view.Snapshot, []Row, error) {
	s, err := reader.ReadScoped(ctx, f.namespace, view.Claims, view.Slices, view.TaintRules)
	if err != nil {
		return nil, nil, err
	}
	return s, slices.DeleteFunc(Rows(s), func(row Row) bool { return !f.wants(row) }), nil
}

var columns = []string{"Node", "Pool", "Device", "Claim", "As", "Since", "+Driver", "+Request", "+Taints"}

func (o *options) table(rows []Row) *metav1.Table {
	columns := columns
	left := slices.ContainsFunc(rows, func(row Row) bool { return len(row.Left) > 0 })
	if left {
		columns = append(slices.Clone(columns), "Left")
	}
	t := output.Table(columns...)
	for _, row := range rows {
		cells := append([]string{row.Node, row.Pool, row.Device}, cellsOf(row)...)
		if left {
			cells = append(cells, leftText(row.Left))
		}
		output.AddRow(t, cells...)
	}
	return t
}

func cellsOf(row Row) []string {
	as, since, request := "<none>", "", ""
	if c := row.Claim; c != nil {
		request, as = c.Request, consumers(c.As)
		if c.AdminAccess {
			as += " (admin access)"
		}
		since = "<unknown>"
		if c.Since != nil {
			since = duration.HumanDuration(time.Since(c.Since.Time))
		}
	}
	return []string{row.Claim.name(), as, since, row.Driver, request, strings.Join(row.Taints, ",")}
}

// consumers are few in a table. A list can have 256.
func consumers(as []string) string {
	switch len(as) {
	case 0:
		return "<nobody>"
	case 1, 2, 3:
		return strings.Join(as, ",")
	}
	return fmt.Sprintf("%s + %d more", strings.Join(as[:2], ","), len(as)-2)
}

func (o *options) print(s *view.Snapshot, rows []Row) error {
	if !o.output.IsText() {
		if rows == nil {
			rows = []Row{}
		}
		object := map[string]any{"items": rows}
		if gaps := output.Gaps(s); len(gaps) > 0 {
			object["unseen"] = gaps
		}
		return o.output.PrintObject(o.streams.Out, "Who", object)
	}
	if len(rows) == 0 {
		fmt.Fprintln(o.streams.ErrOut, "No devices found.")
	} else if err := o.output.PrintTable(o.streams.Out, o.table(rows)); err != nil {
		return err
	}
	o.tellUnseen(s)
	return nil
}

func (o *options) tellUnseen(s *view.Snapshot) {
	fmt.Fprint(o.streams.ErrOut, output.Unseen(output.Gaps(s)))
	if s.OneNamespace {
		fmt.Fprintln(o.streams.ErrOut, "devices without a claim may be in use")
	}
}

// follow prints all rows, then those that change, until the context ends.
func (o *options) follow(ctx context.Context, reader *view.Reader, f *filter) error {
	before := map[string]bool{}
	for first := true; ; first = false {
		wait, err := reader.Changes(ctx, f.namespace)
		if err != nil {
			return err
		}
		s, rows, err := o.read(ctx, reader, f)
		if err != nil {
			return err
		}
		if first {
			o.tellUnseen(s)
		}
		var changed []Row
		for _, row := range rows {
			if !before[key(row)] {
				changed = append(changed, row)
			}
		}
		before = keys(rows)
		if len(changed) > 0 {
			if err := o.output.PrintTable(o.streams.Out, o.table(changed)); err != nil {
				return err
			}
			o.output.NoHeaders = true
		}
		if err := wait(); err != nil {
			return err
		}
	}
}

func keys(rows []Row) map[string]bool {
	set := map[string]bool{}
	for _, row := range rows {
		set[key(row)] = true
	}
	return set
}

func key(row Row) string {
	row.Left = nil
	text := fmt.Sprintf("%s/%s/%s %v", row.Driver, row.Pool, row.Device, row.Taints)
	if c := row.Claim; c != nil {
		text += fmt.Sprintf(" %s %v", c.name(), c.As)
	}
	return text
}

// complete offers nodes, pools and claims.
func (o *options) complete(ctx context.Context, args []string, start string) []string {
	if len(args) > 0 {
		return nil
	}
	reader, err := view.NewReader(o.config, io.Discard)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, rows, err := o.read(ctx, reader, &filter{})
	if err != nil {
		return nil
	}
	var names []string
	for _, row := range rows {
		names = append(names, "node/"+row.Node, "pool/"+row.Pool, "device/"+row.Device)
		if row.Claim != nil {
			names = append(names, "claim/"+row.Claim.Name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !strings.HasPrefix(name, start) || strings.Contains(name, "<") })
}
