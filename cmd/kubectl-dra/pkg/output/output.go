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

// Package output prints what the verbs of kubectl dra found, as kubectl does.
package output

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"kubernetes-dra/cmd/internal/terminal"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// Flags are those of kubectl that say how to print.
type Flags struct {
	print *genericclioptions.PrintFlags
	// NoHeaders leaves out the headers of tables.
	NoHeaders bool
}

// New adds the flags to a command. What is printed has no name, so there is no -o name.
func New(command *cobra.Command) *Flags {
	f := &Flags{print: genericclioptions.NewPrintFlags("")}
	f.print.NamePrintFlags = nil
	f.print.AddFlags(command)
	flag := command.Flags().Lookup("output")
	flag.Usage = fmt.Sprintf("Output format. One of: (%s). The default is a table.", strings.Join(f.formats(), ", "))
	command.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "Print no headers of tables.")
	// It fails only if there is no such flag.
	_ = command.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return f.formats(), cobra.ShellCompDirectiveNoFileComp
	})
	return f
}

func (f *Flags) formats() []string {
	formats := append(f.print.AllowedFormats(), "wide")
	slices.Sort(formats)
	return formats
}

// IsText returns true if people read the output.
func (f *Flags) IsText() bool { return *f.print.OutputFormat == "" || f.IsWide() }

// IsWide returns true if the table has all columns.
func (f *Flags) IsWide() bool { return *f.print.OutputFormat == "wide" }

// Table makes one: columns that start with "+" are for -o wide. What is in it comes from others and is cleaned.
func Table(columns ...string) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range columns {
		short, wide := strings.CutPrefix(name, "+")
		column := metav1.TableColumnDefinition{Name: short, Type: "string"}
		if wide {
			column.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, column)
	}
	return t
}

// AddRow adds a row to a table.
func AddRow(t *metav1.Table, cells ...string) {
	row := metav1.TableRow{}
	for _, cell := range cells {
		row.Cells = append(row.Cells, terminal.Clean(cell))
	}
	t.Rows = append(t.Rows, row)
}

// PrintTable prints a table for people.
func (f *Flags) PrintTable(w io.Writer, t *metav1.Table) error {
	options := printers.PrintOptions{Wide: f.IsWide(), NoHeaders: f.NoHeaders}
	// The printer writes cell by cell, which took a third of the time of a large table.
	buffer := bufio.NewWriter(w)
	if err := printers.NewTablePrinter(options).PrintObj(t, buffer); err != nil {
		return err
	}
	return buffer.Flush()
}

// PrintObject prints the same for programs. Fields are those of the JSON form of the object.
func (f *Flags) PrintObject(w io.Writer, kind string, object any) error {
	printer, err := f.print.ToPrinter()
	if err != nil {
		return err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return err
	}
	u.SetAPIVersion("dra.carry/v1")
	u.SetKind(kind)
	return printer.PrintObj(u, w)
}

// Check returns an error if the format does not exist, before anything is read.
func (f *Flags) Check() error {
	if f.IsText() {
		return nil
	}
	_, err := f.print.ToPrinter()
	return err
}

// Gap is about something that could not be read.
type Gap struct {
	Reason string `json:"reason"`
	// LeftOut are ids of what was not looked for because of that.
	LeftOut []string `json:"leftOut,omitempty"`
}

// With adds ids.
func (g Gap) With(reason string, ids ...string) Gap {
	g.Reason, g.LeftOut = reason, append(g.LeftOut, ids...)
	slices.Sort(g.LeftOut)
	g.LeftOut = slices.Compact(g.LeftOut)
	return g
}

// Gaps are those of a snapshot.
func Gaps(s *view.Snapshot) map[view.Resource]Gap {
	gaps := map[view.Resource]Gap{}
	for r, reason := range s.Gaps {
		gaps[r] = Gap{Reason: reason}
	}
	if s.OneNamespace {
		gaps[view.OtherClaims] = Gap{Reason: view.Forbidden}
	}
	return gaps
}

// Unseen says what could not be read, and what was left out because of that.
func Unseen(gaps map[view.Resource]Gap) string {
	var b strings.Builder
	for _, r := range slices.Sorted(maps.Keys(gaps)) {
		fmt.Fprintf(&b, "could not see %s (%s)", r, terminal.Clean(gaps[r].Reason))
		if left := gaps[r].LeftOut; len(left) > 0 {
			fmt.Fprintf(&b, ", left out: %s", strings.Join(left, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}
