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

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// withoutClaim is the case with the same pods, but for the claim.
var withoutClaim = map[string]string{
	SharedClaim:              NoClaim,
	SharedClaimForWorkload:   NoClaim,
	Release:                  NoClaim,
	SharedClaimOneNode:       NoClaimOneNode,
	SharedClaimRack:          NoClaimRack,
	SharedClaimsForWorkloads: NoClaimInGroups,
	SharedClaimsForPodGroups: NoClaimInGroups,
}

// Results are those of a plan.
type Results []*Result

// find returns the result of a run, nil if it is not part of the results.
func (results Results) find(want Run) *Result {
	want.Repeat, want.Timeout = 0, 0
	for _, r := range results {
		have := r.Run
		have.Repeat, have.Timeout = 0, 0
		if have == want {
			return r
		}
	}
	return nil
}

// base returns what the pods of a run do without a claim. Where that was measured in one
// tree only, it is that one: without claims, none of our code runs.
func (results Results) base(r Run) *Result {
	name, ok := withoutClaim[r.Case]
	if !ok {
		return nil
	}
	r.Case, r.Gate = name, false
	if name == NoClaimInGroups && r.Groups == 1 {
		r.Case, r.Groups = NoClaim, 0
	}
	if base := results.find(r); base != nil {
		return base
	}
	r.Patched = !r.Patched
	return results.find(r)
}

// ratio is the throughput of one result beside another one: the median of the ratios in each round.
// The speed of a machine that is shared with others changes by more than what is measured, but
// less within a round.
func ratio(have, base *Result) (float64, bool) {
	if have == nil || base == nil {
		return 0, false
	}
	var ratios []float64
	for i := range min(len(have.Reports), len(base.Reports)) {
		if base.Reports[i].PodsPerSecond > 0 {
			ratios = append(ratios, have.Reports[i].PodsPerSecond/base.Reports[i].PodsPerSecond)
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	slices.Sort(ratios)
	return ratios[(len(ratios)-1)/2], true
}

// podGroup returns upstream's way for the same number of pods.
func (results Results) podGroup(r Run) *Result {
	r.Patched = false
	switch r.Case {
	case SharedClaimForWorkload:
		r.Case, r.Groups = SharedClaimsForPodGroups, 1
	case SharedClaimsForWorkloads:
		r.Case = SharedClaimsForPodGroups
	case ReleaseWorkloads:
		r.Case = ReleasePodGroups
	default:
		return nil
	}
	return results.find(r)
}

// goals are the rows of a table.
type goals struct{ strings.Builder }

func (g *goals) row(what, unpatched, goal, have string, met bool) {
	if g.Len() == 0 {
		g.WriteString("| | unpatched | goal | measured | |\n|---|---|---|---|---|\n")
	}
	verdict := "**missed**"
	if met {
		verdict = "met"
	}
	fmt.Fprintf(g, "| %s | %s | %s | %s | %s |\n", what, unpatched, goal, have, verdict)
}

// atLeast is a row for a ratio, if there is one.
func (g *goals) atLeast(what, unpatched string, goal float64, have, base *Result) {
	if x, ok := ratio(have, base); ok {
		g.row(what, unpatched, fmt.Sprintf("≥ %g", goal), fmt.Sprintf("%.2f", x), x >= goal)
	}
}

// ratioGoal is how fast the pods of a shared claim are to be beside pods without one.
func ratioGoal(r Run) float64 {
	switch {
	case r.Pods <= 240:
		return 0.93
	case r.Pods < 10000:
		return 0.95
	}
	return 0.97
}

// Limits for what does not depend on the number of pods.
const (
	goalWrites     = 2
	goalClaimBytes = 2048
	goalMemory     = 1.1
)

// Goals compares the results with what was to be achieved. What was not measured
// is not in the table.
func (results Results) Goals() string {
	var g goals
	for _, r := range results {
		if m := r.Median(); m != nil && r.Patched {
			results.goals(&g, r, m)
		}
	}
	return g.String()
}

func (results Results) goals(g *goals, r *Result, m *Report) {
	base, size := results.base(r.Run), r.size()
	unpatchedRun := r.Run
	unpatchedRun.Patched = false
	unpatched := results.find(unpatchedRun)
	switch r.Case {
	case SharedClaimForWorkload, SharedClaimsForWorkloads:
		g.atLeast("`spec.reservedFor` beside no claim: "+size, "–", ratioGoal(r.Run), r, base)
		podGroup := results.podGroup(r.Run)
		if x, ok := ratio(r, podGroup); ok {
			g.row("`spec.reservedFor` beside a PodGroup: "+size, fmt.Sprintf("%.1f pods/s", podGroup.Median().PodsPerSecond), "> 1", fmt.Sprintf("%.2f (%.1f pods/s)", x, m.PodsPerSecond), x > 1)
		}
		claims := max(1, r.Groups)
		g.row("writes to a claim until all pods are bound: "+size, "–", fmt.Sprintf("≤ %d", goalWrites), fmt.Sprintf("%.3g", float64(m.ClaimWrites)/float64(claims)), m.ClaimWrites <= goalWrites*claims)
		g.row("size of a claim: "+size, "–", fmt.Sprintf("≤ %d bytes", goalClaimBytes), fmt.Sprintf("%s bytes", thousands(m.ClaimBytes)), m.ClaimBytes <= goalClaimBytes)
		if base := base.Median(); base != nil && base.MaxMemoryMiB > 0 && r.Pods >= 10000 {
			x := float64(m.MaxMemoryMiB) / float64(base.MaxMemoryMiB)
			g.row("memory beside no claim: "+size, "–", fmt.Sprintf("≤ %g", goalMemory), fmt.Sprintf("%.2f", x), x <= goalMemory)
		}
	case SharedClaim:
		before := "not measured"
		if x, ok := ratio(unpatched, results.base(unpatchedRun)); ok {
			before = fmt.Sprintf("%.4f", x)
		}
		if r.Pods == 240 {
			g.atLeast("without `spec.reservedFor`, beside no claim: "+size, before, 0.7, r, base)
		}
	case SharedClaimOneNode:
		g.atLeast("claim on one node, beside a node selector: "+size, "–", 0.95, r, base)
	case SharedClaimRack:
		g.atLeast("claim on 50 nodes with a label, beside a node selector: "+size, "–", 0.95, r, base)
	case ClaimTemplate, Claim:
		what := "gate off, "
		if r.Gate {
			what = "gate on, "
			unpatchedRun.Gate = false
			unpatched = results.find(unpatchedRun)
		}
		g.atLeast(what+r.Case, "1", 0.98, r, unpatched)
	case SharedClaimFull:
		burned, ok := m.Burned()
		if !ok {
			break
		}
		before := "not measured"
		if x, ok := unpatched.Median().Burned(); ok {
			before = fmt.Sprintf("%.2f cores", x)
		}
		g.row(fmt.Sprintf("CPU burned by %d pods past the limit", m.Pods-m.Scheduled), before, "none", fmt.Sprintf("%.2f cores", burned), burned < 0.05)
	case Release:
		have, met := "not within 15 s", false
		if m.FreeAfterSeconds != nil {
			have, met = fmt.Sprintf("%.1f s", *m.FreeAfterSeconds), *m.FreeAfterSeconds <= 10
		}
		g.row("last pod gone → devices free", "–", "≤ 10 s", have, met)
	case ReleaseWorkloads:
		results.releaseGoals(g, r, m)
	}
}

// releaseGoals are those for claims whose workloads end.
func (results Results) releaseGoals(g *goals, r *Result, m *Report) {
	before := results.podGroup(r.Run).Median()
	calls, times := "not measured", "not measured"
	if before != nil && before.CallsPerRelease != nil {
		calls = fmt.Sprintf("PodGroup: %.1f", *before.CallsPerRelease)
	}
	relative := func(m *Report) (float64, bool) {
		if m == nil || m.FreeAfterSeconds == nil || m.DeleteSeconds == nil || *m.DeleteSeconds == 0 {
			return 0, false
		}
		return (*m.DeleteSeconds + *m.FreeAfterSeconds) / *m.DeleteSeconds, true
	}
	if x, ok := relative(before); ok {
		times = fmt.Sprintf("PodGroup: %.2f", x)
	}
	if r.Groups <= 1 {
		if before != nil && before.FreeAfterSeconds != nil && m.FreeAfterSeconds != nil {
			g.row("last pod gone → devices free, beside a PodGroup", fmt.Sprintf("%.1f s", *before.FreeAfterSeconds), "≤ 10 s", fmt.Sprintf("%.1f s", *m.FreeAfterSeconds), *m.FreeAfterSeconds <= 10)
		}
		return
	}
	if m.CallsPerRelease != nil {
		g.row("API calls for each claim that is released: "+r.size(), calls, "≤ 5", fmt.Sprintf("%.1f", *m.CallsPerRelease), *m.CallsPerRelease <= 5)
	}
	x, ok := relative(m)
	have := fmt.Sprintf("%.2f", x)
	if !ok {
		have = "not within a minute"
	}
	g.row("first pod gone → all free, beside the deletion of the pods: "+r.size(), times, "≤ 2", have, ok && x <= 2)
}
