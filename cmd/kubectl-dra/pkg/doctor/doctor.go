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

// Package doctor looks for what is wrong, or will be, in a cluster with devices in claims.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

const long = `Look for what is wrong with devices in claims, or will be: claims that keep devices for nobody, ResourceSlices of
dead drivers, permissions that are missing, versions and gates that differ.

Nothing is changed. What you may not read is said, together with the checks that were left out because of it.

The exit code is 1 if there is a finding of the level of --fail-on, or a worse one. docs/kubectl-dra.md has a section
about each check.`

const example = `  # Look at the cluster
  kubectl dra doctor

  # In a pipeline
  kubectl dra doctor --fail-on=warning -o json

  # Which rules does a driver lack?
  kubectl dra doctor access --service-account example-driver/plugin --driver driver.example.com`

// Levels of findings.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelInfo    = "info"
)

// Finding is something that an administrator should look at.
type Finding struct {
	// Check is an id that does not change, and the anchor of a section in docs/kubectl-dra.md.
	Check   string `json:"check"`
	Level   string `json:"level"`
	Object  string `json:"object"`
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

type options struct {
	config  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	output  *output.Flags
	failOn  string
}

// NewCommand returns the command. Its namespace is the one of --namespace, not that of the context.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "doctor [--fail-on=error|warning|never]",
		Short:   "Look for what is wrong with devices in claims",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	o.output = output.New(command)
	command.Flags().StringVar(&o.failOn, "fail-on", levelError, "Level of a finding from which on the exit code is 1: error, warning or never.")
	command.AddCommand(newAccessCommand(config, streams))
	return command
}

func (o *options) run(ctx context.Context) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if !slices.Contains([]string{levelError, levelWarning, "never"}, o.failOn) {
		return fmt.Errorf("--fail-on %q: use error, warning or never", o.failOn)
	}
	reader, err := view.NewReader(o.config, o.streams.ErrOut)
	if err != nil {
		return err
	}
	e, err := o.examine(ctx, reader)
	if err != nil {
		return err
	}
	if err := o.print(e); err != nil {
		return err
	}
	return o.verdict(e.findings)
}

// verdict is an error if there is something that the user wants to fail on.
func (o *options) verdict(findings []Finding) error {
	n := 0
	for _, f := range findings {
		if o.failOn != "never" && f.Level == levelError || o.failOn == levelWarning && f.Level == levelWarning {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New("there is one finding")
	}
	return fmt.Errorf("there are %d findings", n)
}

func (o *options) print(e *examination) error {
	if !o.output.IsText() {
		object := map[string]any{"items": e.findings, "checks": e.done}
		if len(e.unseen) > 0 {
			object["unseen"] = e.unseen
		}
		return o.output.PrintObject(o.streams.Out, "Doctor", object)
	}
	if len(e.findings) == 0 {
		fmt.Fprintf(o.streams.Out, "%d checks found nothing.\n", len(e.done))
	} else {
		table := output.Table("Level", "Check", "Object", "What", "+Command")
		for _, f := range e.findings {
			output.AddRow(table, f.Level, f.Check, f.Object, f.Text, f.Command)
		}
		if err := o.output.PrintTable(o.streams.Out, table); err != nil {
			return err
		}
	}
	fmt.Fprint(o.streams.ErrOut, output.Unseen(e.unseen))
	return nil
}

// IDs are those of all checks.
func IDs() []string {
	var ids []string
	for _, c := range checks {
		ids = append(ids, c.id)
	}
	return ids
}

// examination is one run.
type examination struct {
	s      *view.Snapshot
	reader *view.Reader
	facts  facts

	findings []Finding
	done     []string
	unseen   map[view.Resource]output.Gap
}

// resources are what the checks need.
var resources = []view.Resource{view.PodNames, view.Claims, view.Classes, view.Slices, view.Nodes, view.Namespaces, view.Roles, view.Policies}

// SecondLook is when doctor looks again. What mends itself until then is no finding: objects are not read at the same
// moment, nodes come and go, and the carry frees devices five seconds after a claim was released.
var SecondLook = 8 * time.Second

func (o *options) examine(ctx context.Context, reader *view.Reader) (*examination, error) {
	e := &examination{reader: reader}
	if err := e.read(ctx, *o.config.Namespace, resources...); err != nil {
		return nil, err
	}
	if !e.s.Sees(view.Claims) {
		return nil, fmt.Errorf("list resourceclaims: %s", e.s.Gaps[view.Claims])
	}
	e.readFacts(ctx)
	e.unseen = output.Gaps(e.s)
	e.findings = e.find(ctx, checks)
	if err := o.lookAgain(ctx, e); err != nil {
		return nil, err
	}
	order := []string{levelError, levelWarning, levelInfo}
	slices.SortStableFunc(e.findings, func(a, b Finding) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) })
	return e, nil
}

// read takes a snapshot.
func (e *examination) read(ctx context.Context, namespace string, resources ...view.Resource) (err error) {
	if e.s, err = e.reader.ReadScoped(ctx, namespace, resources...); err == nil && e.s.Namespace != "" {
		// The pods of other namespaces were not read.
		e.s.Claims = slices.DeleteFunc(e.s.Claims, func(c *view.Claim) bool { return c.Namespace != e.s.Namespace })
	}
	return err
}

// find does those checks for which enough was read.
func (e *examination) find(ctx context.Context, checks []checkup) []Finding {
	findings := []Finding{}
	for _, c := range checks {
		e.done = slices.DeleteFunc(e.done, func(id string) bool { return id == c.id })
		if !e.s.Sees(c.needs...) {
			for _, r := range c.needs {
				if !e.s.Sees(r) {
					e.unseen[r] = e.unseen[r].With(e.s.Gaps[r], c.id)
				}
			}
			continue
		}
		e.done = append(e.done, c.id)
		before := maps.Clone(e.s.Gaps)
		for _, f := range c.find(ctx, e) {
			f.Check, f.Level = c.id, c.level
			findings = append(findings, f)
		}
		for r, reason := range e.s.Gaps {
			if _, known := before[r]; !known {
				// The check looked at this itself, and did what it could.
				e.unseen[r] = e.unseen[r].With(reason, c.id)
			}
		}
	}
	return findings
}

// lookAgain keeps only findings that last.
func (o *options) lookAgain(ctx context.Context, e *examination) error {
	found := func(findings []Finding, id, object string) bool {
		return slices.ContainsFunc(findings, func(f Finding) bool { return f.Check == id && (f.Object == object || object == "") })
	}
	var again []checkup
	var needed []view.Resource
	for _, c := range checks {
		if c.settles && found(e.findings, c.id, "") {
			again, needed = append(again, c), append(needed, c.needs...)
		}
	}
	if len(again) == 0 {
		return nil
	}
	if printers.IsTerminal(o.streams.ErrOut) {
		fmt.Fprintf(o.streams.ErrOut, "Something may be wrong. Looking again in %s.\n", SecondLook)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(SecondLook):
	}
	slices.Sort(needed)
	if err := e.read(ctx, e.s.Namespace, slices.Compact(needed)...); err != nil {
		return fmt.Errorf("look again: %w", err)
	}
	now := e.find(ctx, again)
	e.findings = slices.DeleteFunc(e.findings, func(f Finding) bool {
		return slices.ContainsFunc(again, func(c checkup) bool { return c.id == f.Check }) && !found(now, f.Check, f.Object)
	})
	return nil
}
