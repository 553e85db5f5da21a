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

package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
)

const (
	// soakVariable is the environment variable that says for how long TestSoak runs. It is set by
	// "make test-faults".
	soakVariable = "SOAK"
	// soakJobs is how many Jobs with a claim each there are at once.
	soakJobs = 8
)

// usage is what a component has that must not grow with the number of claims that came and went.
type usage struct {
	memory                      int64
	goroutines, series, watches int
}

// TestSoak creates, shares and releases claims at full speed, and compares what the components need in
// the first part of that time with what they need at the end.
func TestSoak(t *testing.T) {
	text := os.Getenv(soakVariable)
	if text == "" {
		t.Skipf("%s is not set: \"make test-faults\" does that", soakVariable)
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", soakVariable, err)
	}
	onRealNode(t)
	w := &workloads{env: newEnv(t), on: true}
	w.class, w.realClass = w.pool("simulated", soakJobs, "simulated"), w.pool("real", 1, "real")

	var rounds atomic.Int64
	until := func(end time.Time) {
		var wg sync.WaitGroup
		for i := range soakJobs {
			wg.Go(func() {
				nodes := "simulated"
				if i == 0 {
					nodes = "real"
				}
				for !t.Failed() && time.Now().Before(end) {
					w.tryNew(fmt.Sprintf("job-%d", rounds.Add(1)), nodes)
				}
			})
		}
		wg.Wait()
	}
	// Caches fill, and each kind of request has been seen.
	start := time.Now()
	until(start.Add(duration / 5))
	before := w.usage()
	warm := rounds.Load()
	until(start.Add(duration))
	after := w.usage()

	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(out, "component\tMiB\tafter\tgoroutines\tafter\tseries\tafter\twatches\tafter\t")
	for _, component := range components {
		b, a := before[component], after[component]
		_, _ = fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", component, b.memory>>20, a.memory>>20, b.goroutines, a.goroutines, b.series, a.series, b.watches, a.watches)
		// A leak grows with the claims: there are several for each of these numbers.
		for what, pair := range map[string][2]int{"goroutines": {b.goroutines, a.goroutines}, "metric series": {b.series, a.series}, "watches": {b.watches, a.watches}} {
			if limit := pair[0] + pair[0]/10 + 20; pair[1] > limit {
				t.Errorf("%s: %d %s grew to %d", component, pair[0], what, pair[1])
			}
		}
		if a.memory > 2*b.memory {
			t.Errorf("%s: memory grew from %d to %d MiB", component, b.memory>>20, a.memory>>20)
		}
	}
	_ = out.Flush()
	t.Logf("%d claims before, %d claims in between\n%s", warm, rounds.Load()-warm, table.String())
}

// usage is that of all components with patches, once all that was created is gone.
func (w *workloads) usage() map[string]usage {
	w.Helper()
	all := map[string]usage{}
	for _, component := range components {
		memory, err := shared.Memory(component)
		if err != nil {
			w.Fatal(err)
		}
		text, err := shared.Metrics(w.ctx, component)
		if err != nil {
			w.Fatal(err)
		}
		u := usage{memory: memory}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			u.series++
			i := strings.LastIndexByte(line, ' ')
			switch name, value := line[:max(i, 0)], line[i+1:]; {
			case name == "go_goroutines":
				u.goroutines = w.number(value)
			case component == cluster.APIServer && strings.HasPrefix(name, "apiserver_longrunning_requests{") && strings.Contains(name, `verb="WATCH"`):
				u.watches += w.number(value)
			}
		}
		if u.goroutines == 0 || component == cluster.APIServer && u.watches == 0 {
			w.Fatalf("%s has no metrics for goroutines or watches", component)
		}
		all[component] = u
	}
	return all
}

// number is a value of a metric.
func (e *env) number(text string) int {
	e.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		e.Fatal(err)
	}
	return int(f)
}
