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

package mixed

import (
	"slices"
	"strings"
	"testing"
)

// changes counts the components which differ.
func changes(a, b Gates) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func TestWalk(t *testing.T) {
	walk := Walk()
	everywhere := Gates{on, on, on, on}
	if walk[0] != everywhere {
		t.Errorf("it begins with %s", walk[0])
	}
	for i, gates := range walk {
		if slices.Contains(walk[:i], gates) {
			t.Errorf("twice: %s", gates)
		}
		if next := append(walk, everywhere)[i+1]; changes(gates, next) != 1 {
			t.Errorf("more than one component changes from %s to %s", gates, next)
		}
	}
	if len(walk) != len(Table) {
		t.Errorf("%d combinations, the table has %d", len(walk), len(Table))
	}
}

func TestTable(t *testing.T) {
	for _, row := range Table {
		if !slices.Contains(Walk(), row.Gates) {
			t.Errorf("nobody walks to %s", row.Gates)
		}
	}
	backwards := slices.Clone(Table)
	slices.Reverse(backwards)
	if !slices.Equal(Sorted(backwards), Table) {
		t.Error("the table is not in its own order")
	}
}

func TestMarkdown(t *testing.T) {
	got := strings.Split(Markdown([]Row{
		{Gates{off, on, on, off}, PerPod, Refused, Refused},
		{Gates{on, on, on, on}, Works, Works, Works},
	}), "\n")
	want := []string{
		"| kube-apiserver | kube-scheduler | kube-controller-manager | kubelet | new claim | claim from before | the same, `spec.nodeName` set |",
		"|---|---|---|---|---|---|---|",
		"| on | on | on | on | works | works | works |",
		"| off | on | on | off | per pod, up to 256 | refused by the kubelet | refused by the kubelet |",
		"",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
