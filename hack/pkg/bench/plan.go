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

// Package bench measures pods that share a claim, patched beside unpatched: with upstream's
// scheduler_perf and the workloads in the overlay, and with requests to an API server.
package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of the workloads' cases.
const (
	NoClaim                = "NoClaim"
	SharedClaim            = "SharedClaim"
	SharedClaimForWorkload = "SharedClaimForWorkload"
	SharedClaimFull        = "SharedClaimFull"
	Release                = "Release"
	NoClaimOneNode         = "NoClaimOneNode"
	SharedClaimOneNode     = "SharedClaimOneNode"
	NoClaimRack            = "NoClaimRack"
	SharedClaimRack        = "SharedClaimRack"

	// Those with groups are for releases in which pods know theirs.
	NoClaimInGroups          = "NoClaimInGroups"
	SharedClaimsForWorkloads = "SharedClaimsForWorkloads"
	SharedClaimsForPodGroups = "SharedClaimsForPodGroups"
	ReleaseWorkloads         = "ReleaseWorkloads"
	ReleasePodGroups         = "ReleasePodGroups"

	// In these, Jobs own the pods.
	NamedClaims      = "NamedClaims"
	GeneratedClaims  = "GeneratedClaims"
	ClaimPerPod      = "ClaimPerPod"
	PodGroupTemplate = "PodGroupTemplate"

	// These are upstream's.
	ClaimTemplate = "SchedulingWithResourceClaimTemplate"
	Claim         = "SchedulingWithResourceClaim"
)

// Run is one workload in one tree.
type Run struct {
	Case string `json:"case"`
	// Groups, Pods and Nodes select the workload. Groups is 0 for a case without any.
	Groups int `json:"groups,omitempty"`
	Pods   int `json:"pods"`
	Nodes  int `json:"nodes"`
	// Patched is true for the tree with our features.
	Patched bool `json:"patched"`
	// Gate is true if the feature gate is on although the workload does not ask for it.
	Gate bool `json:"gate,omitempty"`
	// Repeat is how often to run. The median counts.
	Repeat int `json:"-"`
	// Timeout for each of them.
	Timeout time.Duration `json:"-"`
}

// Trees in which a workload of a plan runs.
const (
	unpatched = iota
	patched
	gateOn
)

// row is a line of a plan.
type row struct {
	tree                        int
	name                        string
	groups, pods, nodes, repeat int
}

// full is everything. Runs of less than two seconds are repeated most, because other programs on
// the machine count for much; those of minutes, or that wait for a fixed time, are not. An interval
// of confidence takes six.
var full = []row{
	{unpatched, NoClaim, 0, 64, 100, 7},
	{unpatched, SharedClaim, 0, 64, 100, 1},
	{unpatched, NoClaim, 0, 240, 100, 15},
	{unpatched, SharedClaim, 0, 240, 100, 1},
	{patched, NoClaim, 0, 64, 100, 7},
	{patched, SharedClaim, 0, 64, 100, 7},
	{patched, NoClaim, 0, 240, 100, 15},
	{patched, SharedClaim, 0, 240, 100, 15},
	{patched, SharedClaimForWorkload, 0, 240, 100, 15},
	{unpatched, SharedClaimsForPodGroups, 1, 240, 100, 7},
	{patched, NoClaim, 0, 1000, 100, 9},
	{patched, SharedClaimForWorkload, 0, 1000, 100, 9},
	{unpatched, SharedClaimsForPodGroups, 1, 1000, 100, 3},
	{patched, NoClaim, 0, 5000, 100, 7},
	{patched, SharedClaimForWorkload, 0, 5000, 100, 7},
	{unpatched, SharedClaimsForPodGroups, 1, 5000, 100, 1},
	{patched, NoClaim, 0, 10000, 100, 7},
	{patched, SharedClaimForWorkload, 0, 10000, 100, 7},
	{unpatched, SharedClaimsForPodGroups, 1, 10000, 100, 1},
	{patched, NoClaim, 0, 1000, 500, 9},
	{patched, SharedClaimForWorkload, 0, 1000, 500, 9},
	{unpatched, SharedClaimsForPodGroups, 1, 1000, 500, 3},
	{patched, NoClaim, 0, 10000, 500, 7},
	{patched, SharedClaimForWorkload, 0, 10000, 500, 7},
	{unpatched, SharedClaimsForPodGroups, 1, 10000, 500, 1},
	{patched, NoClaim, 0, 10000, 5000, 6},
	{patched, SharedClaimForWorkload, 0, 10000, 5000, 6},
	{unpatched, SharedClaimsForPodGroups, 1, 10000, 5000, 1},
	{patched, NoClaim, 0, 50000, 5000, 1},
	{patched, SharedClaimForWorkload, 0, 50000, 5000, 1},
	{patched, NoClaimOneNode, 0, 100, 5000, 7},
	{patched, SharedClaimOneNode, 0, 100, 5000, 7},
	{patched, NoClaimRack, 0, 100, 5000, 7},
	{patched, SharedClaimRack, 0, 100, 5000, 7},
	{patched, Release, 0, 1000, 100, 3},
	{patched, NoClaimInGroups, 100, 5000, 50, 7},
	{patched, SharedClaimsForWorkloads, 100, 5000, 50, 7},
	{unpatched, SharedClaimsForPodGroups, 100, 5000, 50, 1},
	{patched, NamedClaims, 1, 10000, 100, 6},
	{patched, GeneratedClaims, 1, 10000, 100, 6},
	{unpatched, PodGroupTemplate, 1, 10000, 100, 1},
	{patched, NamedClaims, 100, 10000, 100, 6},
	{patched, GeneratedClaims, 100, 10000, 100, 6},
	{unpatched, PodGroupTemplate, 100, 10000, 100, 1},
	{patched, ClaimPerPod, 100, 10000, 100, 1},
	{patched, ReleaseWorkloads, 1, 1000, 100, 3},
	{unpatched, ReleasePodGroups, 1, 1000, 100, 3},
	{patched, ReleaseWorkloads, 1000, 10000, 100, 1},
	{unpatched, ReleasePodGroups, 1000, 10000, 100, 1},
	{unpatched, ClaimTemplate, 0, 2000, 200, 6},
	{patched, ClaimTemplate, 0, 2000, 200, 6},
	{unpatched, Claim, 0, 2000, 200, 6},
	{patched, Claim, 0, 2000, 200, 6},
	{gateOn, ClaimTemplate, 0, 2000, 200, 6},
	{unpatched, SharedClaimFull, 0, 100, 100, 1},
	{patched, SharedClaimFull, 0, 100, 100, 1},
}

// quick is what fits into five minutes. Unpatched, 240 pods of a claim take more than one.
var quick = []row{
	{unpatched, NoClaim, 0, 64, 100, 1},
	{unpatched, SharedClaim, 0, 64, 100, 1},
	{patched, NoClaim, 0, 240, 100, 1},
	{patched, SharedClaim, 0, 240, 100, 1},
	{patched, SharedClaimForWorkload, 0, 240, 100, 1},
	{patched, NoClaim, 0, 1000, 100, 1},
	{patched, SharedClaimForWorkload, 0, 1000, 100, 1},
	{patched, Release, 0, 1000, 100, 1},
	{unpatched, ClaimTemplate, 0, 2000, 200, 1},
	{patched, ClaimTemplate, 0, 2000, 200, 1},
}

// QuickPlan is what fits into five minutes.
func QuickPlan() []Run { return plan(quick, true, 3*time.Minute) }

// FullPlan is everything that a tree can run. Not each release has groups.
func FullPlan(groups bool) []Run { return plan(full, groups, 30*time.Minute) }

func plan(rows []row, groups bool, timeout time.Duration) []Run {
	var runs []Run
	for _, r := range rows {
		if r.groups == 0 || groups {
			runs = append(runs, Run{Case: r.name, Groups: r.groups, Pods: r.pods, Nodes: r.nodes,
				Patched: r.tree != unpatched, Gate: r.tree == gateOn, Repeat: r.repeat, Timeout: timeout})
		}
	}
	return runs
}

func (r Run) upstreams() bool { return r.Case == ClaimTemplate || r.Case == Claim }

// pattern selects the workload for -test.bench.
func (r Run) pattern() string {
	function, workload := "BenchmarkPerfScheduling", fmt.Sprintf("%dpods_%dnodes", r.Pods, r.Nodes)
	switch {
	case r.upstreams():
		function += "Upstream"
	case r.Groups > 0:
		function, workload = function+"Groups", fmt.Sprintf("%dgroups_%s", r.Groups, workload)
	}
	return fmt.Sprintf("^%s$/^%s$/^%s$", function, r.Case, workload)
}

// size is for people.
func (r Run) size() string {
	size := fmt.Sprintf("%s pods, %s nodes", thousands(r.Pods), thousands(r.Nodes))
	if r.Groups > 1 {
		size = fmt.Sprintf("%s claims, %s", thousands(r.Groups), size)
	}
	return size
}

func (r Run) String() string {
	tree := "unpatched"
	if r.Gate {
		tree = "patched, gate on"
	} else if r.Patched {
		tree = "patched"
	}
	return fmt.Sprintf("%s: %s (%s)", r.Case, r.size(), tree)
}

// same compares what a run is, not how it is made.
func (r Run) same(other Run) bool {
	r.Repeat, r.Timeout = other.Repeat, other.Timeout
	return r == other
}

// median of at least one value, the lower one of two.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// thousands writes a number for people.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
