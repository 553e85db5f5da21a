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

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// it is a spec in a report.
func it(state types.SpecState, message string, texts ...string) types.SpecReport {
	last := len(texts) - 1
	return types.SpecReport{
		ContainerHierarchyTexts: texts[:last],
		LeafNodeText:            texts[last],
		LeafNodeType:            types.NodeTypeIt,
		State:                   state,
		NumAttempts:             1,
		Failure:                 types.Failure{Message: message},
	}
}

func specs(names ...string) []Spec {
	var list []Spec
	for _, name := range names {
		list = append(list, Spec{Name: name})
	}
	return list
}

func TestListed(t *testing.T) {
	labelled := it(types.SpecStatePassed, "", "[DRA]", "kubelet", "works")
	labelled.ContainerHierarchyLabels = [][]string{{"DRA"}, {"Slow", "DRA"}}
	labelled.LeafNodeLabels = []string{"FeatureGate:A"}
	reports := []types.Report{{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStatePassed},
		it(types.SpecStateSkipped, "", "[sig-network]", "has no label"),
		labelled,
		// Upstream has some twice.
		labelled,
		it(types.SpecStatePassed, "", "[DRA]", "control plane", "works"),
	}}}
	got := listed(reports)
	want := []Spec{
		{Name: "[DRA] control plane works"},
		{Name: "[DRA] kubelet works", Labels: []string{"DRA", "FeatureGate:A", "Slow"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestKeptOut(t *testing.T) {
	on := func(gate string) bool { return gate == "On" }
	for label, want := range map[string]string{
		"Slow":                              "",
		"Feature:DynamicResourceAllocation": "",
		"Feature:OffByDefault":              "",
		"FeatureGate:On":                    "",
		"Feature:On":                        "",
		"FeatureGate:Off":                   "needs Off, which is not on",
		"Feature:SomethingElse":             "needs SomethingElse, which is not on",
		"Flaky":                             "upstream says that it is flaky",
	} {
		if got := (Spec{Labels: []string{"DRA", label}}).keptOut(on, "", 2); got != want {
			t.Errorf("%s: got %q, want %q", label, got, want)
		}
	}

	all := func(string) bool { return true }
	greedy := Spec{Labels: []string{"DRA", "FeatureGate:DRANodeAllocatableResources", "Serial"}}
	if got := greedy.keptOut(all, "", minCPUs-1); !strings.Contains(got, "CPUs") {
		t.Errorf("on a small node: got %q", got)
	}
	newer := Spec{Labels: []string{"DRA", "KubeletMinVersion:1.35"}}
	for kubelet, want := range map[string]string{"": "", "1.34": "needs a kubelet of 1.35", "1.35": ""} {
		if got := newer.keptOut(all, kubelet, minCPUs); got != want {
			t.Errorf("kubelet %q: got %q, want %q", kubelet, got, want)
		}
	}
	if got := greedy.keptOut(all, "", minCPUs); got != "" {
		t.Errorf("on a large node: got %q", got)
	}
}

func TestParts(t *testing.T) {
	specs := []Spec{{Name: "[DRA] a (b)"}, {Name: "[DRA] out"}, {Name: "[DRA] " + greedy}}
	out := map[string]string{"[DRA] out": "flaky"}
	const kept, slices = `= \[DRA\] out$`, `= \[DRA\] ResourceSlice Controller creates slices$`
	for name, test := range map[string]struct {
		only  string
		specs []Spec
		want  []part
	}{
		"all":   {"", specs, []part{{"", 8, 1, []string{"--skip" + kept, "--skip" + slices}}, {"alone-", 1, 1, []string{"--focus" + slices}}}},
		"some":  {"a (b)", specs[:1], []part{{"", 8, 1, []string{`--focus=a \(b\)`}}}},
		"alone": {"slices", specs[2:], []part{{"alone-", 1, 1, []string{"--focus" + slices}}}},
		"none":  {"out", specs[1:2], []part{}},
	} {
		r := &Run{Procs: 8, Only: test.only}
		if got := r.parts(test.specs, out); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestParseKind(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		want    Config
	}{
		"fields": {
			content: `
kind: Cluster
runtimeConfig:
  "resource.k8s.io/v1beta1": "true"
  "resource.k8s.io/v1alpha3": "true"
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  apiVersion: kubeadm.k8s.io/v1beta4
  apiServer:
    extraArgs:
    - name: v
      value: "5"
featureGates:
  A: true
`,
			want: Config{Gates: map[string]bool{"A": true, "B": true}, RuntimeConfig: "resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true"},
		},
		"patches": {
			content: `
kind: Cluster
nodes:
- role: control-plane
  kubeadmConfigPatches:
  - |
    kind: ClusterConfiguration
    scheduler:
      extraArgs:
        v: "5"
    apiServer:
      extraArgs:
        runtime-config: "resource.k8s.io/v1beta1=true"
- role: worker
`,
			want: Config{Gates: map[string]bool{"B": true}, RuntimeConfig: "resource.k8s.io/v1beta1=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Suite{Tree: t.TempDir()}
			dir := filepath.Join(s.Tree, "test", "e2e", "dra")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "kind.yaml"), []byte(test.content), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := s.Config([]Spec{{Labels: []string{"FeatureGate:B", "Feature:OffByDefault"}}})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got %+v, want %+v", *got, test.want)
			}
		})
	}
	if _, err := parseKind([]byte("featureGates: [")); err == nil {
		t.Error("no error for something else")
	}
	// Conformance is that of a cluster as it comes, whatever its specs have as labels.
	s := &Suite{Tree: t.TempDir(), Conformance: true}
	got, err := s.Config([]Spec{{Labels: []string{"FeatureGate:B"}}})
	if err != nil || len(got.Gates) > 0 || got.RuntimeConfig != "" {
		t.Errorf("conformance is configured with %+v, %v", got, err)
	}
}

func TestParseGates(t *testing.T) {
	help := parseHelp(`
      --feature-gates mapStringBool   A set of key=value pairs. Options are:
                 kube:DRAAdminAccess=true|false (ALPHA - default=false)
                 Older=true|false (BETA - default=true)
      --other=true|false is not one
`)
	if want := map[string]bool{"DRAAdminAccess": true, "Older": true}; !reflect.DeepEqual(help, want) {
		t.Errorf("help: got %v, want %v", help, want)
	}
	metrics := parseMetrics(`# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="A",stage="ALPHA"} 0
kubernetes_feature_enabled{name="B",stage=""} 1
other{name="C",stage=""} 1
`)
	if want := map[string]bool{"A": false, "B": true}; !reflect.DeepEqual(metrics, want) {
		t.Errorf("metrics: got %v, want %v", metrics, want)
	}
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	manifest := `
kind: DaemonSet
      containers:
      - image: registry.k8s.io/e2e-test-images/sample-device-plugin:1.7
        name: plugin
      - name: other
        image: "registry.k8s.io/sig-storage/hostpathplugin:v1.0.0" # Replaced.
      - image: {{.template}}/x:1
`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("image: a/b:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	manifests, err := imagesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := imageNames("a line of something else\nregistry.k8s.io/pause:3.10\nregistry.k8s.io:80/agnhost:2\nregistry.k8s.io/agnhost:3\nregistry.k8s.io/agnhost:3\nno-tag/x\n" + manifests)
	want := map[string][]string{
		"agnhost":              {"registry.k8s.io:80/agnhost:2", "registry.k8s.io/agnhost:3"},
		"hostpathplugin":       {"registry.k8s.io/sig-storage/hostpathplugin:v1.0.0"},
		"pause":                {"registry.k8s.io/pause:3.10"},
		"sample-device-plugin": {"registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRead(t *testing.T) {
	failed := it(types.SpecStateFailed, "timed out\nlong dump", "[DRA]", "fails")
	failed.Failure.FailureNodeLocation = types.CodeLocation{FileName: "dra.go", LineNumber: 7}
	failed.Failure.Location = failed.Failure.FailureNodeLocation
	again := it(types.SpecStatePassed, "", "[DRA]", "passes at last")
	again.NumAttempts = 2
	panicked := it(types.SpecStatePanicked, "test panicked", "[DRA]", "panics")
	panicked.Failure.ForwardedPanic = "nil pointer"
	reports := []types.Report{{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStatePassed},
		it(types.SpecStatePassed, "", "[DRA]", "passes"),
		again,
		failed,
		panicked,
		it(types.SpecStateSkipped, "2 ready nodes required, only have 1", "[DRA]", "wants nodes"),
		it(types.SpecStateSkipped, "", "[DRA]", "is filtered out"),
		it(types.SpecStateSkipped, "", "[DRA]", "has no time"),
		it(types.SpecStatePending, "", "[DRA]", "is pending"),
		it(types.SpecStatePassed, "", "[DRA]", "is there twice"),
		it(types.SpecStateTimedout, "too late", "[DRA]", "is there twice"),
		it(types.SpecStateSkipped, "", "[sig-network]", "is about something else"),
	}}}
	selected := specs("[DRA] passes", "[DRA] passes at last", "[DRA] fails", "[DRA] panics", "[DRA] wants nodes", "[DRA] is filtered out",
		"[DRA] has no time", "[DRA] is pending", "[DRA] is there twice", "[DRA] is missing")
	r := &Result{Name: "patched", Version: "v1.36.3", Tree: "tree", Only: "DRA", Nodes: 3}
	if err := r.read(reports, selected, map[string]string{"[DRA] is filtered out": "needs A, which is not on"}); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Outcome
		reason string
	}
	got := map[string]outcome{}
	for _, s := range r.Specs {
		got[s.Name] = outcome{s.Outcome, firstLine(s.Reason)}
	}
	want := map[string]outcome{
		"[DRA] passes":          {Passed, ""},
		"[DRA] passes at last":  {Passed, ""},
		"[DRA] fails":           {Failed, "failed at dra.go:7: timed out"},
		"[DRA] panics":          {Failed, "panicked at :0: test panicked nil pointer"},
		"[DRA] wants nodes":     {Skipped, "2 ready nodes required, only have 1"},
		"[DRA] is filtered out": {Skipped, "needs A, which is not on"},
		"[DRA] has no time":     {Failed, "it did not run"},
		"[DRA] is pending":      {Skipped, "upstream switched it off"},
		"[DRA] is there twice":  {Failed, "timedout at :0: too late"},
		"[DRA] is missing":      {Failed, "the report does not mention it"},
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: got %+v, want %+v", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d specs, want %d", len(got), len(want))
	}

	file := filepath.Join(t.TempDir(), "result.json")
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	if loaded, err := Load(file); err != nil || !reflect.DeepEqual(loaded, r) {
		t.Errorf("saved %+v, loaded %+v, %v", r, loaded, err)
	}

	summary := Summary(r)
	for _, line := range []string{
		"patched      v1.36.3                2       5        3",
		"skipped, patched (3):",
		"     1  needs A, which is not on",
		"passed when run again, patched (1):\n  [DRA] passes at last",
		"failed, patched (5):",
		"  [DRA] fails\n      failed at dra.go:7: timed out\n",
	} {
		if !strings.Contains(summary, line+"\n") && !strings.Contains(summary, line) {
			t.Errorf("the summary lacks %q:\n%s", line, summary)
		}
	}
}

func TestReadNothing(t *testing.T) {
	setUp := types.SpecReport{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStateFailed, Failure: types.Failure{Message: "no nodes"}}
	for name, test := range map[string]struct {
		spec types.SpecReport
		want string
	}{
		"set-up fails": {setUp, "SynchronizedBeforeSuite of the suite failed: no nodes"},
		"none ran":     {it(types.SpecStateSkipped, "", "[DRA]", "works"), "no spec ran"},
	} {
		err := new(Result).read([]types.Report{{SpecReports: types.SpecReports{test.spec}}}, specs("[DRA] works"), nil)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}

	// Nothing was to run.
	result := new(Result)
	if err := result.read([]types.Report{{}}, specs("[DRA] works"), map[string]string{"[DRA] works": "needs a gate"}); err != nil || result.Count(Skipped) != 1 {
		t.Errorf("all kept out: got %v, %+v", err, result)
	}
}

func TestCompare(t *testing.T) {
	result := func(name string, outcomes ...any) *Result {
		r := &Result{Name: name}
		for i := 0; i < len(outcomes); i += 2 {
			r.Specs = append(r.Specs, SpecResult{Spec: Spec{Name: outcomes[i].(string)}, Outcome: outcomes[i+1].(Outcome)})
		}
		return r
	}
	patched := result("patched", "both pass", Passed, "both fail", Failed, "worse", Failed, "better", Passed, "other", Skipped, "was skipped", Failed, "new", Failed)
	unpatched := result("unpatched", "both pass", Passed, "both fail", Failed, "worse", Passed, "better", Failed, "other", Passed, "was skipped", Skipped)
	patched.Specs[0].Attempts, patched.Specs[1].Attempts, unpatched.Specs[0].Attempts = 2, 2, 1
	got := Compare(patched, unpatched)
	want := Difference{
		Worse:  []string{"new", "was skipped", "worse"},
		Better: []string{"better"},
		Other:  []string{"other: skipped, unpatched passed"},
		Again:  []string{"both pass"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if text := Compare(patched, patched).String(); !strings.Contains(text, "no spec has another outcome") {
		t.Errorf("got %q", text)
	}
	if text := got.String(); !strings.Contains(text, "failed with the patches only (3):\n  new\n") {
		t.Errorf("got %q", text)
	}
}

func TestGrouped(t *testing.T) {
	got := grouped(map[string]int{"b": 2, "c": 12, "a": 2})
	if want := []string{"  12  c", "   2  a", "   2  b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCopyOutput(t *testing.T) {
	// As ginkgo -v --no-color writes it.
	const output = `Running Suite: Kubernetes e2e suite
------------------------------
SSSSS• [12.5 seconds]
[sig-node] [DRA] works
------------------------------
S [SKIPPED] [0.1 seconds]
[sig-node] [DRA] wants nodes
------------------------------
• [FAILED] [3.0 seconds]
[sig-node] [DRA] fails [It] here
------------------------------
  STEP: • is nothing
• [1.0 seconds]
`
	var b strings.Builder
	done := 0
	var failed []string
	err := copyOutput(&b, strings.NewReader(output), func(text string, failure bool) {
		if failure {
			failed = append(failed, text)
		} else {
			done++
		}
	})
	if err != nil || b.String() != output {
		t.Errorf("copied %q, %v", b.String(), err)
	}
	if want := []string{"[sig-node] [DRA] fails [It] here"}; done != 4 || !slices.Equal(failed, want) {
		t.Errorf("got %d specs, and failures %q", done, failed)
	}
	broken := errors.New("disk full")
	if err := copyOutput(failingWriter{broken}, strings.NewReader(output), func(string, bool) {}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type failingWriter struct{ error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.error }

// TestAllowStatus has drivers that know of the permission, and one that does not.
func TestAllowStatus(t *testing.T) {
	for rules, want := range map[string]int{
		"resources: [resourceclaims/driver]": 0,
		"resources: [resourceclaims]":        1,
	} {
		s := &Suite{Tree: t.TempDir(), Log: t.Logf}
		file := filepath.Join(s.Tree, filepath.FromSlash(driverRole))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
		client := fake.NewClientset()
		if err := s.allowStatus(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bindings, err := client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(roles.Items) != want || len(bindings.Items) != want {
			t.Errorf("%s: %d roles, %d bindings", rules, len(roles.Items), len(bindings.Items))
		}
	}
	if err := (&Suite{Tree: t.TempDir()}).allowStatus(t.Context(), nil); err == nil {
		t.Error("no error without the driver")
	}
}
