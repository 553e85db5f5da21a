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

package check

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"kubernetes-dra/cmd/internal/terminal"
)

// Count is how many results have a verdict.
func Count(results []Result, verdict Verdict) int {
	n := 0
	for _, r := range results {
		if r.Verdict == verdict {
			n++
		}
	}
	return n
}

// Print writes the results for people.
func Print(out io.Writer, results []Result) error {
	table := &metav1.Table{}
	for _, name := range []string{"Check", "Verdict", "Took", "Asks"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, r := range results {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{r.ID, string(r.Verdict), Seconds(r.Took), r.Asks}})
	}
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, out); err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range results {
		for _, note := range r.Notes {
			fmt.Fprintf(&text, "\n%s: %s", r.ID, terminal.Line(note))
		}
		if r.Verdict == Skipped {
			fmt.Fprintf(&text, "\n%s is skipped: %s", r.ID, terminal.Line(r.Reason))
		}
	}
	for _, r := range results {
		if r.Verdict == Fail {
			fmt.Fprintf(&text, "\n\n%s FAILED: %s", r.ID, terminal.Line(r.Reason))
			for _, line := range r.Seen {
				fmt.Fprintf(&text, "\n  seen: %s", terminal.Line(line))
			}
			fmt.Fprintf(&text, "\n  what to do: %s", terminal.Line(r.Do))
		}
	}
	fmt.Fprintf(&text, "\n\n%d passed, %d failed, %d skipped\n", Count(results, Pass), Count(results, Fail), Count(results, Skipped))
	_, err := io.WriteString(out, strings.TrimLeft(text.String(), "\n"))
	return err
}

// Seconds is how long something took.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// Object is the same for programs.
func Object(driver string, results []Result) runtime.Object {
	items := []any{}
	for _, r := range results {
		item := map[string]any{"check": r.ID, "asks": r.Asks, "verdict": string(r.Verdict), "seconds": r.Took.Round(time.Millisecond).Seconds()}
		for key, text := range map[string]string{"reason": r.Reason, "do": r.Do} {
			if text != "" {
				item[key] = text
			}
		}
		for key, lines := range map[string][]string{"notes": r.Notes, "seen": r.Seen} {
			if len(lines) > 0 {
				var list []any
				for _, line := range lines {
					list = append(list, line)
				}
				item[key] = list
			}
		}
		items = append(items, item)
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "dra.carry/v1", "kind": "DriverCheck", "driver": driver, "results": items}}
}
