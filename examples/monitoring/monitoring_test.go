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

// Package monitoring has tests of the rules and of the dashboard.
package monitoring

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type rules struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Annotations         map[string]string
		}
	}
}

type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// read is for YAML and JSON.
func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestRules lets promtool evaluate the cases of the alerts.
func TestRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: Debian has it in the package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestCases checks that each alert has a case in which it fires, and one in which it does not.
func TestCases(t *testing.T) {
	var r rules
	read(t, "rules.yaml", &r)
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	read(t, "rules_test.yaml", &cases)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, a := range c.AlertRuleTest {
			fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
			rests[a.Alertname] = rests[a.Alertname] || len(a.ExpAlerts) == 0
		}
	}
	for _, rule := range r.Groups[0].Rules {
		if rule.Alert != "" && (!fires[rule.Alert] || !rests[rule.Alert] || rule.Annotations["summary"] == "") {
			t.Errorf("%s needs a summary, a case in which it fires, and one in which it does not", rule.Alert)
		}
	}
}

// upstream are metrics that upstream documents, or Prometheus itself.
var upstream = map[string]bool{"up": true, "apiserver_request_total": true, "device_taint_eviction_controller_pod_deletions_total": true}

// TestMetrics checks that each metric is recorded here, or documented.
func TestMetrics(t *testing.T) {
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	read(t, "rules.yaml", &r)
	var d dashboard
	read(t, "dashboard.json", &d)
	recorded := map[string]bool{}
	var all []string
	for _, rule := range r.Groups[0].Rules {
		recorded[rule.Record] = true
		all = append(all, rule.Expr)
		if rule.Alert != "" && !strings.Contains(string(docs), "| `"+rule.Alert+"` |") {
			t.Errorf("docs/operations.md has no row for %s", rule.Alert)
		}
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	metric := regexp.MustCompile(`\b(up|dra:[a-z0-9_:]+|[a-z]+(_[a-z]+)+)\b`)
	ignore := regexp.MustCompile(`\b[a-z][a-z_]*=~?"[^"]*"|(by|on) \([^)]*\)|max_over_time`)
	seen := 0
	for _, expr := range all {
		for _, name := range metric.FindAllString(ignore.ReplaceAllString(expr, " "), -1) {
			seen++
			name = strings.TrimSuffix(name, "_count")
			if !recorded[name] && !upstream[name] && !strings.Contains(string(docs), "`"+name+"`") {
				t.Errorf("%s is in no table of docs/operations.md: %s", name, expr)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d metrics were found in %q", seen, all)
	}
}
