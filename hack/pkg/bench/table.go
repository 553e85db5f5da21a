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
	"os"
	"runtime"
	"strings"
	"syscall"
)

// Machine describes the computer that the figures come from.
func Machine() string {
	cpu := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	memory := ""
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		memory = fmt.Sprintf(", %d GiB", (info.Totalram*uint64(info.Unit)+(1<<29))>>30)
	}
	return fmt.Sprintf("%d CPUs (%s)%s, %s, %s", runtime.NumCPU(), cpu, memory, runtime.GOOS, runtime.Version())
}

// find returns the median report of a run, nil if it is not part of the results.
func find(results []*Result, c string, pods, nodes int, patched, gate bool) *Report {
	for _, r := range results {
		if r.Case == c && r.Pods == pods && r.Nodes == nodes && r.Patched == patched && r.Gate == gate {
			return r.Median()
		}
	}
	return nil
}

// ratio returns the throughput of a run compared with the same pods without claim.
func ratio(results []*Result, r *Result) (float64, bool) {
	have, base := r.Median(), find(results, NoClaim, r.Pods, r.Nodes, r.Patched, false)
	if have == nil || base == nil || base.PodsPerSecond == 0 {
		return 0, false
	}
	return have.PodsPerSecond / base.PodsPerSecond, true
}

// Table shows all results in Markdown.
func Table(results []*Result) string {
	var b strings.Builder
	b.WriteString("| workload | tree | pods | nodes | runs | pods/s | to no claim | p50 s | p99 s | calls/pod | claim writes (attempted) | claim bytes | CPU s | MiB |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range results {
		tree := "unpatched"
		if r.Patched {
			tree = "patched"
		}
		if r.Gate {
			tree += ", gate on"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | ", r.Case, tree, r.Pods, r.Nodes)
		m := r.Median()
		if m == nil {
			fmt.Fprintf(&b, "0 | %s | | | | | | | | |\n", strings.ReplaceAll(firstLine(r.Error), "|", "/"))
			continue
		}
		fmt.Fprintf(&b, "%d | ", len(r.Reports))
		if m.Scheduled == 0 {
			b.WriteString("– | – | – | – | ")
		} else {
			fmt.Fprintf(&b, "%.1f | ", m.PodsPerSecond)
			if x, ok := ratio(results, r); ok && r.Case != NoClaim {
				fmt.Fprintf(&b, "%.3g | ", x)
			} else {
				b.WriteString("– | ")
			}
			fmt.Fprintf(&b, "%.2f | %.2f | ", m.P50Seconds, m.P99Seconds)
		}
		fmt.Fprintf(&b, "%.2f | ", m.CallsPerPod)
		if r.Case == NoClaim || r.Case == ClaimTemplate {
			b.WriteString("– | – | ")
		} else {
			fmt.Fprintf(&b, "%d (%d) | %d | ", m.ClaimWrites, m.ClaimWritesAttempted, m.ClaimBytes)
		}
		fmt.Fprintf(&b, "%.2f | %d |\n", m.CPUSeconds, m.MaxMemoryMiB)
	}
	return b.String()
}

// Goals compares the results with what was to be achieved. What was not measured
// is not in the table.
func Goals(results []*Result) string {
	var b strings.Builder
	row := func(what, unpatched, goal, have string, met bool) {
		if b.Len() == 0 {
			b.WriteString("| | unpatched | goal | measured | |\n|---|---|---|---|---|\n")
		}
		verdict := "missed"
		if met {
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", what, unpatched, goal, have, verdict)
	}
	unpatchedRatio := func(pods int) string {
		for _, r := range results {
			if r.Case == SharedClaim && r.Pods == pods && !r.Patched {
				if x, ok := ratio(results, r); ok {
					return fmt.Sprintf("%.4f", x)
				}
			}
		}
		return "not measured"
	}
	unpatchedWrites, unpatchedBytes := "not measured", "not measured"
	for _, r := range results {
		// The last one is the largest.
		if m := r.Median(); m != nil && r.Case == SharedClaim && !r.Patched && m.Scheduled > 0 {
			unpatchedWrites = fmt.Sprintf("%.2f per pod", float64(m.ClaimWrites)/float64(m.Scheduled))
			unpatchedBytes = fmt.Sprintf("%d bytes with %d pods", m.ClaimBytes, m.Pods)
		}
	}
	for _, r := range results {
		m := r.Median()
		if m == nil || !r.Patched {
			continue
		}
		x, comparable := ratio(results, r)
		switch {
		case r.Case == SharedClaimForWorkload:
			size := fmt.Sprintf("%d pods, %d nodes", r.Pods, r.Nodes)
			if comparable {
				unpatched := "impossible"
				if r.Pods <= 256 {
					unpatched = unpatchedRatio(r.Pods)
				}
				row("shared claim with spec.reservedFor, ratio to no claim, "+size, unpatched, "≥ 0.9", fmt.Sprintf("%.2f", x), x >= 0.9)
			}
			row("writes to the claim until all pods are bound, "+size, unpatchedWrites, "≤ 3", fmt.Sprint(m.ClaimWrites), m.ClaimWrites <= 3)
			row("size of the claim, "+size, unpatchedBytes, "< 4 KiB", fmt.Sprintf("%d bytes", m.ClaimBytes), m.ClaimBytes < 4096)
		case r.Case == SharedClaim && comparable && r.Pods == 240:
			row("the same without spec.reservedFor, 240 pods", unpatchedRatio(r.Pods), "≥ 0.3", fmt.Sprintf("%.2f", x), x >= 0.3)
		case r.Case == SharedClaimFull:
			burned, ok := m.Burned()
			if !ok {
				break
			}
			unpatched := "not measured"
			if x, ok := find(results, r.Case, r.Pods, r.Nodes, false, false).Burned(); ok {
				unpatched = fmt.Sprintf("%.2f cores", x)
			}
			row(fmt.Sprintf("CPU burned by %d pods past the limit", m.Pods-m.Scheduled), unpatched, "none", fmt.Sprintf("%.2f cores", burned), burned < 0.05)
		case r.Case == Release:
			if m.FreeAfterSeconds != nil {
				row("last pod gone → devices free", "–", "≤ 10 s", fmt.Sprintf("%.1f s", *m.FreeAfterSeconds), *m.FreeAfterSeconds <= 10)
			} else {
				row("last pod gone → devices free", "–", "≤ 10 s", "not within 15 s", false)
			}
		case r.Case == ClaimTemplate && !r.Gate:
			if u := find(results, r.Case, r.Pods, r.Nodes, false, false); u != nil && u.PodsPerSecond > 0 {
				x := m.PodsPerSecond / u.PodsPerSecond
				row("gate off, "+ClaimTemplate, "1", "≥ 0.97", fmt.Sprintf("%.2f", x), x >= 0.97)
			}
		}
	}
	return b.String()
}
