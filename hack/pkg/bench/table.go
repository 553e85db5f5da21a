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
	"strconv"
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

// thousands writes a number for people.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Table shows all results in Markdown. A speed is the median of several runs, with the
// lowest and the highest one. A ratio is the median of those in each round of runs.
func (results Results) Table() string {
	var b strings.Builder
	b.WriteString("| workload | tree | claims | pods | nodes | pods/s | to no claim | created → bound p50 / p99, s | API calls per pod | claim writes (attempted) | claim bytes | CPU s | MiB |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range results {
		claims := "1"
		_, withClaim := withoutClaim[r.Case]
		switch {
		case r.Groups > 0 && r.Case != NoClaimInGroups:
			claims = thousands(r.Groups)
		case !withClaim && r.Case != SharedClaimFull:
			claims = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | ", r.Case, r.tree(), claims, thousands(r.Pods), thousands(r.Nodes))
		m := r.Median()
		if m == nil {
			fmt.Fprintf(&b, "%s | | | | | | | |\n", strings.ReplaceAll(firstLine(r.Error), "|", "/"))
			continue
		}
		if m.Scheduled == 0 {
			b.WriteString("– | – | – | ")
		} else {
			fmt.Fprintf(&b, "%.1f", m.PodsPerSecond)
			if low, high := r.Spread(); len(r.Reports) > 1 {
				fmt.Fprintf(&b, " (%.0f–%.0f)", low, high)
			}
			if x, ok := ratio(r, results.base(r.Run)); ok {
				fmt.Fprintf(&b, " | %.3g | ", x)
			} else {
				b.WriteString(" | – | ")
			}
			fmt.Fprintf(&b, "%.2f / %.2f | ", m.P50Seconds, m.P99Seconds)
		}
		fmt.Fprintf(&b, "%.2f | ", m.CallsPerPod)
		if claims == "–" {
			b.WriteString("– | – | ")
		} else {
			fmt.Fprintf(&b, "%d (%d) | %s | ", m.ClaimWrites, m.ClaimWritesAttempted, thousands(m.ClaimBytes))
		}
		fmt.Fprintf(&b, "%.2f | %s |\n", m.CPUSeconds, thousands(m.MaxMemoryMiB))
	}
	return b.String()
}
