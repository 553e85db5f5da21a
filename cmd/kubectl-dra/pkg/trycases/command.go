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

package trycases

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
)

const long = `Seed the faults of cases in a cluster for tests, and compare what "kubectl dra why" says with what they expect.

DIR has the file common.yaml and a folder cases with a file for each case, as cmd/kubectl-dra/testdata. Each case
gets a namespace of its own. DeviceClasses, ResourceSlices and nodes that a case creates have its name. All of them
are removed again. A case is left out if one of them exists already.

Some cases need a simulated node sim-0000 or a node real with a kubelet, as "make up" has them. They are skipped
where there is none.

The exit code is 1 if a case has another cause first.`

const example = `  # All cases that come with the plugin
  kubectl dra try-cases cmd/kubectl-dra/testdata

  # Two of them, with all that why says
  kubectl dra try-cases cmd/kubectl-dra/testdata claim-full quota -o yaml`

type options struct {
	config   *genericclioptions.ConfigFlags
	streams  genericiooptions.IOStreams
	output   *output.Flags
	prefix   string
	patience time.Duration
	parallel int
}

// NewCommand returns the command. The flags say how to reach the cluster.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "try-cases DIR [CASE]...",
		Short:   "Seed faults in a cluster for tests, and ask why about each",
		Long:    long,
		Example: example,
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(command *cobra.Command, args []string) error { return o.run(command.Context(), args[0], args[1:]) },
	}
	o.output = output.New(command)
	command.Flags().StringVar(&o.prefix, "prefix", "dra-case-", "What the names of the namespaces begin with.")
	command.Flags().DurationVar(&o.patience, "patience", defaultPatience, "How long the right cause may take to come first.")
	command.Flags().IntVar(&o.parallel, "parallel", 8, "How many cases are seeded at the same time.")
	return command
}

func (o *options) run(ctx context.Context, dir string, names []string) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.parallel < 1 || o.patience <= 0 {
		return errors.New("--parallel and --patience have to be positive")
	}
	list, err := selectCases(dir, names)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	runner, err := NewRunner(ctx, o.config, o.streams.ErrOut)
	if err != nil {
		return err
	}
	runner.Prefix, runner.Patience = o.prefix, o.patience
	results := runner.Run(ctx, list, o.parallel, func(r Result) {
		fmt.Fprintf(o.streams.ErrOut, "%s: %s\n", r.Case, r.verdict())
	})
	if err := o.print(results); err != nil {
		return err
	}
	seeded, wrong := 0, 0
	for _, r := range results {
		if r.Skipped == "" {
			seeded++
		}
		if r.IsWrong() {
			wrong++
		}
	}
	if wrong > 0 || ctx.Err() != nil || seeded == 0 {
		return fmt.Errorf("%d of %d cases have the right cause first, %d were not seeded", seeded-wrong, seeded, len(list)-seeded)
	}
	return nil
}

// selectCases returns all cases of a folder, or those with the given names.
func selectCases(dir string, names []string) ([]*cases.Case, error) {
	list, err := cases.Load(dir)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s/cases has no case", dir)
	}
	if len(names) == 0 {
		return list, nil
	}
	var selected []*cases.Case
	for _, name := range names {
		i := slices.IndexFunc(list, func(c *cases.Case) bool { return c.ID == name })
		if i < 0 {
			return nil, fmt.Errorf("%s/cases has no case %q", dir, name)
		}
		selected = append(selected, list[i])
	}
	return selected, nil
}

// verdict says in a few words what became of a case.
func (r Result) verdict() string {
	switch {
	case r.Skipped != "":
		return "skipped: " + r.Skipped
	case r.Error != "":
		return "error: " + r.Error
	case r.IsWrong():
		return "wrong"
	}
	return "right"
}

func (o *options) print(results []Result) error {
	if !o.output.IsText() {
		return o.output.PrintObject(o.streams.Out, "Cases", map[string]any{"items": results})
	}
	table := output.Table("CASE", "WANT", "GOT", "RESULT")
	for _, r := range results {
		output.AddRow(table, r.Case, r.Want, r.Got, r.verdict())
	}
	return o.output.PrintTable(o.streams.Out, table)
}
