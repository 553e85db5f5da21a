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

// Package mixed says what becomes of a Job whose pods share one claim while the
// gate of ReservedFor workloads is on in some components and off in others.
// docs/operations.md has it as a table, and TestMixedGates of test/cluster checks with real
// components that it is so.
package mixed

import (
	"fmt"
	"slices"
	"strings"
)

// Components are those which have the gate.
var Components = [4]string{"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet"}

// Gates says for each of the components whether the gate is on.
type Gates [len(Components)]bool

// String is the same as in the table.
func (g Gates) String() string {
	var list []string
	for i, component := range Components {
		list = append(list, component+" "+onOff(g[i]))
	}
	return strings.Join(list, ", ")
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Outcome is what a pod meets.
type Outcome string

const (
	// Works is for a pod which runs because the claim is reserved for its Job.
	Works Outcome = "works"
	// PerPod is for a pod which runs because it is listed in the claim, which
	// has room for 256.
	PerPod Outcome = "per pod, up to 256"
	// Refused is for a pod which the kubelet does not start, and whose Event
	// names the gate.
	Refused Outcome = "refused by the kubelet"
)

// Row is one combination of gates.
type Row struct {
	Gates Gates
	// New is for the pods of a Job which was created, with its claim, while the
	// gates were like that.
	New Outcome
	// Before is for one more pod of a Job whose claim was allocated while the
	// gate was on everywhere, and which runs since then.
	Before Outcome
	// BeforeOnNode is for a pod with that claim which never meets the
	// scheduler: its spec.nodeName was set when it was created.
	BeforeOnNode Outcome
}

const on, off = true, false

// Table are all combinations in the order of the table in docs/operations.md.
var Table = []Row{
	{Gates{on, on, on, on}, Works, Works, Works},
	{Gates{on, on, on, off}, Refused, Refused, Refused},
	{Gates{on, on, off, on}, Works, Works, Works},
	{Gates{on, on, off, off}, Refused, Refused, Refused},
	{Gates{on, off, on, on}, PerPod, PerPod, Works},
	{Gates{on, off, on, off}, PerPod, PerPod, Refused},
	{Gates{on, off, off, on}, PerPod, PerPod, Works},
	{Gates{on, off, off, off}, PerPod, PerPod, Refused},
	{Gates{off, on, on, on}, PerPod, Works, Works},
	{Gates{off, on, on, off}, PerPod, Refused, Refused},
	{Gates{off, on, off, on}, PerPod, Works, Works},
	{Gates{off, on, off, off}, PerPod, Refused, Refused},
	{Gates{off, off, on, on}, PerPod, PerPod, Works},
	{Gates{off, off, on, off}, PerPod, PerPod, Refused},
	{Gates{off, off, off, on}, PerPod, PerPod, Works},
	{Gates{off, off, off, off}, PerPod, PerPod, Refused},
}

// Walk goes through all combinations such that one component changes at a time.
// It begins with the gate on everywhere, and ends one change away from that.
// Components which take long to restart change seldom.
func Walk() []Gates {
	seldomLast := [len(Components)]int{1, 2, 3, 0}
	var walk []Gates
	for i := range 1 << len(Components) {
		// The reflected binary code.
		code := i ^ i>>1
		var gates Gates
		for bit, component := range seldomLast {
			gates[component] = code&(1<<bit) == 0
		}
		walk = append(walk, gates)
	}
	return walk
}

// Markdown is the table of such rows, in the order of the table in docs/operations.md.
func Markdown(rows []Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | new claim | claim from before | the same, `spec.nodeName` set |\n", strings.Join(Components[:], " | "))
	b.WriteString(strings.Repeat("|---", len(Components)+3) + "|\n")
	for _, row := range Sorted(rows) {
		for _, on := range row.Gates {
			fmt.Fprintf(&b, "| %s ", onOff(on))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.New, row.Before, row.BeforeOnNode)
	}
	return b.String()
}

// Sorted returns the rows in the order of the table in docs/operations.md.
func Sorted(rows []Row) []Row {
	return slices.SortedFunc(slices.Values(rows), func(a, b Row) int {
		for i := range a.Gates {
			if a.Gates[i] != b.Gates[i] {
				if a.Gates[i] {
					return -1
				}
				return 1
			}
		}
		return 0
	})
}
