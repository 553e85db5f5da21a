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
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/aclements/go-moremath/stats"
)

// RecordFile has what docs/benchmark.md shows, and PictureFile is shown there.
const (
	RecordFile  = "docs/benchmark.json"
	PictureFile = "docs/benchmark.svg"
)

// Record is all that one call of "carry bench" found.
type Record struct {
	// Version is what was measured, Beside what it was compared with, and Machine where.
	Version string `json:"version"`
	Beside  string `json:"beside"`
	Machine string `json:"machine"`
	Date    string `json:"date"`

	Results     Results      `json:"results"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
}

// Results are those of a plan.
type Results []*Result

// Result is a run with its reports.
type Result struct {
	Run
	Reports []Report `json:"reports"`
	// Error says why there are fewer reports than there should be.
	Error string `json:"error,omitempty"`
}

// Report is what one run measured. The fields are described in the test
// package which writes it.
type Report struct {
	Name                 string   `json:"name"`
	Pods                 int      `json:"pods"`
	Scheduled            int      `json:"scheduled"`
	WallSeconds          float64  `json:"wallSeconds"`
	PodsPerSecond        float64  `json:"podsPerSecond"`
	P50Seconds           float64  `json:"p50Seconds"`
	P99Seconds           float64  `json:"p99Seconds"`
	CPUSeconds           float64  `json:"cpuSeconds"`
	CallsPerPod          float64  `json:"callsPerPod"`
	ClaimWrites          int      `json:"claimWrites"`
	ClaimWritesAttempted int      `json:"claimWritesAttempted"`
	ClaimConflicts       int      `json:"claimConflicts"`
	ClaimBytes           int      `json:"claimBytes"`
	MaxMemoryMiB         int      `json:"maxMemoryMiB"`
	RestCores            *float64 `json:"restCores,omitempty"`
	IdleCores            *float64 `json:"idleCores,omitempty"`
	FreeAfterSeconds     *float64 `json:"freeAfterSeconds,omitempty"`
	DeleteSeconds        *float64 `json:"deleteSeconds,omitempty"`
	CallsPerRelease      *float64 `json:"callsPerRelease,omitempty"`
}

// ParseRecord reads a record.
func ParseRecord(data []byte) (*Record, error) {
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", RecordFile, err)
	}
	if r.Version == "" || len(r.Results) == 0 {
		return nil, errors.New(RecordFile + " has no results: make bench SAVE=1 writes it")
	}
	return &r, nil
}

// JSON is the record for a file.
func (r *Record) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", " ")
	return append(data, '\n'), err
}

// Machine describes the computer that the figures come from.
func Machine() string {
	cpu := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(data), "model name"); ok {
			cpu = strings.Trim(firstLine(rest), "\t: ")
		}
	}
	var info syscall.Sysinfo_t
	_ = syscall.Sysinfo(&info)
	return fmt.Sprintf("%d CPUs (%s), %d GiB, %s, %s", runtime.NumCPU(), cpu, (info.Totalram*uint64(info.Unit)+(1<<29))>>30, runtime.GOOS, runtime.Version())
}

// find returns the result of a run, nil if it is not part of the results.
func (results Results) find(want Run) *Result {
	if i := slices.IndexFunc(results, func(r *Result) bool { return r.same(want) }); i >= 0 {
		return results[i]
	}
	return nil
}

// withoutClaim is the case with the same pods, but for the claim.
var withoutClaim = map[string]string{
	SharedClaim:              NoClaim,
	SharedClaimForWorkload:   NoClaim,
	SharedClaimOneNode:       NoClaimOneNode,
	SharedClaimRack:          NoClaimRack,
	SharedClaimsForWorkloads: NoClaimInGroups,
	SharedClaimsForPodGroups: NoClaimInGroups,
}

// base returns what the pods of a run do without a claim. Where that was measured in one
// tree only, it is that one: without claims, none of our code runs.
func (results Results) base(r Run) *Result {
	name := withoutClaim[r.Case]
	if r.Case = name; name == NoClaimInGroups && r.Groups == 1 {
		r.Case, r.Groups = NoClaim, 0
	}
	if base := results.find(r); base != nil {
		return base
	}
	r.Patched = !r.Patched
	return results.find(r)
}

// podGroup returns upstream's way for the same number of pods.
func (results Results) podGroup(r Run) *Result {
	r.Patched = false
	if r.Case = SharedClaimsForPodGroups; r.Groups == 0 {
		r.Groups = 1
	}
	return results.find(r)
}

// median returns the report with the median throughput, nil if there is none.
func (r *Result) median() *Report {
	if r == nil || len(r.Reports) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(r.Reports), func(a, b Report) int { return cmp.Compare(a.PodsPerSecond, b.PodsPerSecond) })
	return &sorted[(len(sorted)-1)/2]
}

// figure is the median of what the rounds have, and the interval in which it lies with a confidence
// of 95 %. With less than six rounds, that is infinite.
type figure struct{ median, low, high float64 }

// beside compares two results: what they have in each round. The speed of a machine that is shared
// with others changes by more than what is measured, but less within a round. It is 0 if there is
// nothing to compare.
func beside(have, base *Result, value func(Report) float64) figure {
	f := figure{0, math.Inf(-1), math.Inf(1)}
	if have == nil || base == nil {
		return f
	}
	var ratios []float64
	for i := range min(len(have.Reports), len(base.Reports)) {
		if divisor := value(base.Reports[i]); divisor > 0 {
			ratios = append(ratios, value(have.Reports[i])/divisor)
		}
	}
	if len(ratios) > 0 {
		f.median, f.low, f.high = stats.QuantileCI(len(ratios), 0.5, 0.95).SampleCI(stats.Sample{Xs: ratios})
	}
	return f
}

// ratio is the throughput of one result beside another one.
func ratio(have, base *Result) figure {
	return beside(have, base, func(r Report) float64 { return r.PodsPerSecond })
}

// cpuPerPod and latency are compared, too.
func cpuPerPod(r Report) float64 { return r.CPUSeconds / float64(max(1, r.Scheduled)) }

func latency(r Report) float64 { return r.P99Seconds }

func (f figure) isBounded() bool { return !math.IsInf(f.low, 0) && !math.IsInf(f.high, 0) }

func (f figure) String() string {
	if !f.isBounded() {
		return fmt.Sprintf("%.2f", f.median)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", f.median, f.low, f.high)
}

// atLeast says whether a goal is met: by the lower end of the interval, where there is one.
func (f figure) atLeast(goal float64) bool {
	if f.isBounded() {
		return f.low >= goal
	}
	return f.median >= goal
}

// atMost is the same for the upper end.
func (f figure) atMost(goal float64) bool {
	if f.isBounded() {
		return f.high <= goal
	}
	return f.median <= goal
}

// Goals for pods with spec.reservedFor, beside pods without a claim.
const (
	goalRatio   = 0.97
	goalCPU     = 1.03
	goalLatency = 1.1
	goalMemory  = 1.1
)

// Goals for their claims. Devices are to be free goalFree seconds after the last pod.
const (
	goalWrites = 2
	goalBytes  = 2048
	goalFree   = 1
)

// Markdown shows the record: speeds over sizes, and then what is one figure.
func (r *Record) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s beside %s, %s, on %s.\n", r.Version, r.Beside, r.Date, r.Machine)
	speeds, figures := r.Results.speeds(), r.Results.figures()
	if len(speeds) > 0 {
		b.WriteString("\n| pods of claims | PodGroup, pods/s | `spec.reservedFor`, pods/s | beside no claim | goal | CPU per pod | goal | p99, s |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
		b.WriteString(strings.Join(speeds, ""))
	}
	if len(figures) > 0 {
		b.WriteString("\n| | unpatched | patched | goal | |\n|---|---:|---:|---:|---|\n" + strings.Join(figures, ""))
	}
	if len(r.Comparisons) > 0 {
		b.WriteString("\n| requests or pods, per second | before | after | ratio | goal | |\n|---|---:|---:|---:|---:|---|\n")
	}
	for _, c := range r.Comparisons {
		fmt.Fprintf(&b, "| %s | %.3g | %.3g | %.3f | ≥ %g | %s |\n", c.What, c.Base, c.Measured, c.Ratio, c.Goal, verdict(c.Ratio >= c.Goal))
	}
	for _, result := range r.Results {
		if result.Error != "" && len(result.Reports) == 0 {
			fmt.Fprintf(&b, "\n%s failed: %s\n", result.Run, firstLine(result.Error))
		}
	}
	return b.String()
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// speeds are the rows for pods with spec.reservedFor, which is compared with pods without a claim.
func (results Results) speeds() []string {
	var rows []string
	for _, r := range results {
		m, base := r.median(), results.base(r.Run)
		if m == nil || base == nil || r.Case != SharedClaimForWorkload && r.Case != SharedClaimsForWorkloads {
			continue
		}
		group := "–"
		if g := results.podGroup(r.Run).median(); g != nil {
			group = fmt.Sprintf("%.0f", g.PodsPerSecond)
		}
		speed, cpu := ratio(r, base), beside(r, base, cpuPerPod)
		rows = append(rows, fmt.Sprintf("| %s | %s | %.0f | %s | ≥ %g, %s | %s | ≤ %g, %s | %.2f |\n", r.size(), group, m.PodsPerSecond,
			speed, goalRatio, verdict(speed.atLeast(goalRatio)), cpu, goalCPU, verdict(cpu.atMost(goalCPU)), m.P99Seconds))
	}
	return rows
}

// figures are the rows with all other goals, of what was measured.
func (results Results) figures() []string {
	var rows []string
	add := func(what, before, have, goal string, met bool) {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |\n", what, before, have, goal, verdict(met)))
	}
	atLeast := func(what, before string, x figure, goal float64) {
		if x.median > 0 {
			add(what, before, x.String(), fmt.Sprintf("≥ %g", goal), x.atLeast(goal))
		}
	}
	var writes, memory float64
	bytes := 0
	for _, r := range results {
		m, base := r.median(), results.base(r.Run)
		unpatchedRun := r.Run
		unpatchedRun.Patched, unpatchedRun.Gate = false, false
		unpatched := results.find(unpatchedRun)
		if m == nil || !r.Patched {
			continue
		}
		switch r.Case {
		case SharedClaimForWorkload, SharedClaimsForWorkloads:
			writes, bytes = max(writes, float64(m.ClaimWrites)/float64(max(1, r.Groups))), max(bytes, m.ClaimBytes)
			if base := base.median(); base != nil && base.MaxMemoryMiB > 0 && r.Pods >= 10000 {
				memory = max(memory, float64(m.MaxMemoryMiB)/float64(base.MaxMemoryMiB))
			}
			if x := beside(r, base, latency); x.median > 0 && r.Pods == 240 {
				add("created → bound, p99, beside no claim: "+r.size(), "–", x.String(), fmt.Sprintf("≤ %g", goalLatency), x.atMost(goalLatency))
			}
		case NoClaim:
			// None of our code runs for them.
			if x := ratio(r, unpatched); x.isBounded() && x.median > 0 {
				rows = append(rows, fmt.Sprintf("| noise: pods without a claim, patched beside unpatched: %s | – | %s | – | – |\n", r.size(), x))
			}
		case SharedClaim:
			if r.Pods == 240 {
				before := "–"
				if x := ratio(unpatched, results.base(unpatchedRun)); x.median > 0 {
					before = fmt.Sprintf("%.4f", x.median)
				}
				atLeast("without `spec.reservedFor`, beside no claim: "+r.size(), before, ratio(r, base), 0.95)
			}
		case SharedClaimOneNode:
			atLeast("claim on one node, beside a node selector: "+r.size(), "–", ratio(r, base), 0.95)
		case SharedClaimRack:
			atLeast("claim on 50 nodes, beside a node selector: "+r.size(), "–", ratio(r, base), 0.95)
		case ClaimTemplate, Claim:
			atLeast(fmt.Sprintf("%s, gate on: %t", r.Case, r.Gate), "1", ratio(r, unpatched), 0.98)
		case GeneratedClaims:
			other := func(name string, patched bool) *Result {
				run := r.Run
				run.Case, run.Patched = name, patched
				return results.find(run)
			}
			named := other(NamedClaims, true)
			atLeast("claims generated for Jobs, beside claims by name: "+r.size(), "–", ratio(r, named), 0.95)
			atLeast("claims generated for Jobs, beside a claim for each pod: "+r.size(), "–", ratio(r, other(ClaimPerPod, true)), 1.5)
			atLeast("claims generated for Jobs, beside those for PodGroups: "+r.size(), "–", ratio(r, other(PodGroupTemplate, false)), 1)
			if named := named.median(); named != nil {
				// Upstream writes the name into the status of each pod.
				more, goal := m.CallsPerPod-named.CallsPerPod, 1+4*float64(r.Groups)/float64(r.Pods)
				add("requests per pod for that, beside claims by name: "+r.size(), "–", fmt.Sprintf("%.3f", more), fmt.Sprintf("≤ %.3g", goal), more <= goal)
			}
		case SharedClaimFull:
			if x := burned(m); x != nil {
				add("CPU burned by pods past the limit, cores", number(burned(unpatched.median()), "%.2f"), number(x, "%.2f"), "0", *x < 0.05)
			}
		case Release:
			add("last pod gone → devices free, s", "–", number(m.FreeAfterSeconds, "%.1f"), fmt.Sprintf("≤ %d", goalFree), m.FreeAfterSeconds != nil && *m.FreeAfterSeconds <= goalFree)
		case ReleaseWorkloads:
			if x := m.CallsPerRelease; x != nil && r.Groups > 1 {
				add("API calls for each released claim: "+r.size(), "–", number(x, "%.1f"), "≤ 5", *x <= 5)
			}
		}
	}
	if bytes > 0 {
		add("writes to a claim until all its pods are bound", "–", fmt.Sprintf("%.3g", writes), fmt.Sprintf("≤ %d", goalWrites), writes <= goalWrites)
		add("bytes of a claim", "–", thousands(bytes), "≤ "+thousands(goalBytes), bytes <= goalBytes)
	}
	if memory > 0 {
		add("memory beside no claim, from 10,000 pods", "–", fmt.Sprintf("%.2f", memory), fmt.Sprintf("≤ %g", goalMemory), memory <= goalMemory)
	}
	return rows
}

// number shows what may not have been measured, or not have happened within a minute.
func number(x *float64, format string) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x)
}

// burned is how much CPU pods need that cannot be scheduled: the difference to the time before
// there were such pods.
func burned(m *Report) *float64 {
	if m == nil || m.RestCores == nil || m.IdleCores == nil {
		return nil
	}
	return new(max(0, *m.RestCores-*m.IdleCores))
}

// Picture shows the throughput beside pods without a claim, as bars in SVG.
func (results Results) Picture() string {
	const left, full, height = 190, 480, 18
	ways := []struct{ name, color, run string }{
		{"spec.reservedFor, patched", "#0969da", SharedClaimForWorkload},
		{"no spec.reservedFor, patched", "#1a7f37", SharedClaim},
		{"PodGroup, unpatched", "#bc4c00", SharedClaimsForPodGroups},
		{"no spec.reservedFor, unpatched", "#6e7781", SharedClaim},
	}
	var b strings.Builder
	y := 30
	bar := func(length float64, color, text string) {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n", left, y, length, height-4, color, left+length+6, y+11, text)
		y += height
	}
	for _, r := range results {
		if r.Case != SharedClaimForWorkload || r.median() == nil {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+11, r.size())
		for i, way := range ways {
			run := r.Run
			run.Case, run.Patched = way.run, i < 2
			if run.Case == SharedClaimsForPodGroups {
				run.Groups = 1
			}
			if x := ratio(results.find(run), results.base(run)).median; x > 0 {
				bar(min(x, 1.2)*full/1.2, way.color, fmt.Sprintf("%.2f", x))
			}
		}
		y += height / 2
	}
	for _, way := range ways {
		bar(24, way.color, way.name)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n"+
		`<title>Throughput beside pods without a claim</title><rect width="100%%" height="100%%" fill="white"/>`+"\n"+
		`<text x="%d" y="18">Throughput beside pods without a claim, which is 1</text>`+"\n%s</svg>\n", left+full+60, y+6, left, b.String())
}
