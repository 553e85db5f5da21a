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

package upstream

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"kubernetes-dra/hack/pkg/test/testrun"
)

func write(t *testing.T, content, mode string, elem ...string) string {
	t.Helper()
	name, perm := filepath.Join(elem...), os.FileMode(0o644)
	if mode == "x" {
		content, perm = "#!/bin/sh\n"+content, 0o755
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), perm); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRun has programs that stand in for ginkgo and kubectl.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	ours := it(types.SpecStatePassed, "", "ours", "FeatureGate:Ours")
	large := it(types.SpecStatePassed, "", greedy)
	reports, err := json.Marshal([]types.Report{{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStatePassed}, ours, large, it(types.SpecStateFailed, "no", "fails"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(reports), "", dir, "ran.json")
	write(t, `[{"SpecReports":[{"LeafNodeType":"BeforeSuite","State":"failed","Failure":{"Message":"no nodes"}}]}]`, "", dir, "broken.json")
	write(t, `echo "$@" >>"`+dir+`/calls"
for arg; do case $arg in
--output-dir=*) out=${arg#*=} ;;
--json-report=*) cp "`+dir+`/${REPORT:-ran}.json" "$out/${arg#*=}" ;;
esac; done
echo specs; exit 1
`, "x", dir, ginkgoProgram)
	kubectl := write(t, `case "$*" in
*metrics) echo 'kubernetes_feature_enabled{name="On",stage=""} 1'; echo 'kubernetes_feature_enabled{name="Ours",stage="ALPHA"} 1' ;;
*version) echo "{\"gitVersion\": \"$VERSION\"}" ;;
*) echo "$@" >>"`+dir+`/calls"; cat >>"`+dir+`/calls" ;;
esac
`, "x", dir, "kubectl")
	var out strings.Builder
	s := &Suite{Bin: dir, Log: t.Logf, Out: &out, specs: types.SpecReports{ours, large}}
	r := Run{Name: "patched", Kubectl: kubectl, Kubeconfig: "admin", Procs: 8, Nodes: 3, Logs: filepath.Join(dir, "logs")}
	run := func(version, report string) (*Result, string, error) {
		t.Helper()
		t.Setenv("VERSION", version)
		t.Setenv("REPORT", report)
		_ = os.Remove(filepath.Join(dir, "calls"))
		result, err := s.Run(t.Context(), r)
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return result, string(calls), err
	}

	result, calls, err := run("v1.35.9+dra.1", "")
	if err != nil || result.Version != "v1.35.9+dra.1" || result.Count(Passed) != 2 || result.Count(Failed) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	for _, want := range []string{"resourceclaims/driver", "--procs=8", "--skip=" + greedy + "$", "--procs=1", "--focus=" + greedy + "$", "--num-nodes=3"} {
		if !strings.Contains(calls, want) {
			t.Errorf("want %q in\n%s", want, calls)
		}
	}
	if out.String() != "specs\nspecs\n" {
		t.Errorf("the user sees %q", out.String())
	}
	// An older kubelet without the gate, and a release whose driver has its permission.
	r.Kubelet, r.Lacks, s.Only = "1.34", []string{"Ours"}, "ours"
	if result, calls, err = run("v1.36.1", ""); err != nil || len(result.Specs) != 1 || strings.Contains(calls, "driver") || strings.Contains(calls, "--procs=1") ||
		!strings.Contains(calls, "!(/^FeatureGate:Ours$/)") || !strings.Contains(calls, "--focus=ours") {
		t.Errorf("%+v, %v\n%s", result, err, calls)
	}
	if _, _, err := run("v1.36.1", "broken"); err == nil || !strings.Contains(err.Error(), "BeforeSuite of the suite failed: no nodes") {
		t.Errorf("the suite could not start: %v", err)
	}
	if _, _, err := run("v1.36.1", "missing"); err == nil || !strings.Contains(err.Error(), "report.log") {
		t.Errorf("no report: %v", err)
	}
}

func TestConfig(t *testing.T) {
	s := &Suite{Tree: t.TempDir(), specs: types.SpecReports{it(types.SpecStatePassed, "", "a", "FeatureGate:B", "Feature:OffByDefault")}}
	for want, content := range map[string]string{
		"resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true A B": "kind: Cluster\nruntimeConfig:\n  \"resource.k8s.io/v1alpha3\": \"true\"\n  \"resource.k8s.io/v1beta1\": \"true\"\nkubeadmConfigPatches:\n- |\n  apiVersion: kubeadm.k8s.io/v1beta4\nfeatureGates:\n  A: true\n",
		"resource.k8s.io/v1beta1=true B":                                 "nodes:\n- kubeadmConfigPatches:\n  - |\n    apiServer:\n        extraArgs:\n          runtime-config: \"resource.k8s.io/v1beta1=true\"\n          runtime-config: \"resource.k8s.io/v1beta1=true\"\n",
	} {
		write(t, content, "", s.Tree, "test/e2e/dra/kind.yaml")
		apis, gates, err := s.config()
		if got := strings.Join(append([]string{apis}, gates...), " "); err != nil || got != want {
			t.Errorf("want %q, got %q, %v", want, got, err)
		}
	}
	// Conformance is that of a cluster as it comes, whatever its specs have as labels.
	s.Conformance = true
	if apis, gates, err := s.config(); err != nil || len(gates) > 0 || apis != "" {
		t.Errorf("conformance is configured with %q, %v, %v", apis, gates, err)
	}
}

func TestGates(t *testing.T) {
	p := Programs{Bin: t.TempDir(), On: []string{"Ours"}}
	write(t, "echo '--feature-gates X  kube:Alpha=true|false (ALPHA - default=false)'; echo ' Older=true|false (BETA)'; echo '--other=true|false'\n", "x", p.Bin, "api")
	got, err := p.gates(t.Context(), "api", []string{"Alpha", "other", "Unknown"})
	if want := map[string]bool{"Alpha": true, "Ours": true}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("want %v, got %v, %v", want, got, err)
	}
	write(t, "echo\n", "x", p.Bin, "api")
	if _, err := p.gates(t.Context(), "api", nil); err == nil {
		t.Error("no error without gates")
	}
}

func TestImages(t *testing.T) {
	tree := t.TempDir()
	write(t, "- image: registry.k8s.io/e2e-test-images/sample-device-plugin:1.7\n  image: \"registry.k8s.io/sig-storage/hostpathplugin:v1.0.0\" # Replaced.\n- image: {{.template}}/x:1\n", "", tree, "test/e2e/testing-manifests/csi/a.yaml")
	write(t, "image: a/b:1\n", "", tree, "test/e2e/testing-manifests/README.md")
	manifests, err := manifestImages(tree)
	got := imageNames("a line of something else\nregistry.k8s.io/pause:3.10\nregistry.k8s.io:80/agnhost:2\nregistry.k8s.io/agnhost:3\nregistry.k8s.io/agnhost:3\nno-tag/x\n" + manifests)
	want := map[string][]string{
		"agnhost":              {"registry.k8s.io:80/agnhost:2", "registry.k8s.io/agnhost:3"},
		"hostpathplugin":       {"registry.k8s.io/sig-storage/hostpathplugin:v1.0.0"},
		"pause":                {"registry.k8s.io/pause:3.10"},
		"sample-device-plugin": {"registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want\n%v, got\n%v", err, want, got)
	}
	file := write(t, "configs[BusyBox] = Config{list.PromoterE2eRegistry, \"busybox\", \"1.37.0-2\"}\n", "", tree, "test/utils/image/manifest.go")
	images, err := nodeImages(tree)
	if want := []string{"registry.k8s.io/e2e-test-images/busybox:1.37.0-2", "registry.k8s.io/sig-storage/hostpathplugin:v1.0.0"}; err != nil || !slices.Equal(images[0].Names, want) {
		t.Errorf("%+v, %v", images, err)
	}
	write(t, "", "", file)
	if _, err := nodeImages(tree); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no busybox: %v", err)
	}
}

// TestPrograms runs programs that print their arguments.
func TestPrograms(t *testing.T) {
	p := Programs{Bin: t.TempDir(), On: []string{"B", "A"}}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"} {
		write(t, "echo \"$@\"\n", "x", p.Bin, name)
	}
	run := func(p Programs, name string) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "programs")
		if err := p.writeTo(dir); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(dir, name), "--feature-gates=X=false").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	const plain = "--feature-gates=X=false"
	for name, want := range map[string]string{"kubelet": plain + " --feature-gates=A=true,B=true", "kube-apiserver": plain + " --feature-gates=A=true,B=true", "kubectl": plain, "kube-proxy": plain} {
		if got := run(p, name); got != want {
			t.Errorf("%s: want %q, got %q", name, want, got)
		}
		if got := run(Programs{Bin: p.Bin}, name); got != plain {
			t.Errorf("%s without gates: got %q", name, got)
		}
	}
	if err := os.Remove(filepath.Join(p.Bin, "kubelet")); err != nil {
		t.Fatal(err)
	}
	if err := p.writeTo(t.TempDir()); err == nil || !strings.Contains(err.Error(), "kubelet is not built") {
		t.Errorf("a program is missing: %v", err)
	}
}

func TestFromTest(t *testing.T) {
	for _, test := range []struct {
		test testrun.Test
		want Spec
	}{
		{testrun.Test{Status: "fail", Output: []string{"=== RUN   T", "    a_test.go:1: it broke ", "--- FAIL: T (0.00s)"}}, Spec{Outcome: Failed, Reason: "a_test.go:1: it broke"}},
		{testrun.Test{Status: "skip", Output: []string{"    a_test.go:2: not here "}}, Spec{Outcome: Skipped, Reason: "a_test.go:2: not here"}},
		{testrun.Test{Status: "pass", Output: []string{"text"}}, Spec{Outcome: Passed}},
		{testrun.Test{Output: []string{"text"}}, Spec{Outcome: Failed, Reason: "it did not end"}},
		{testrun.Test{Status: "fail"}, Spec{Outcome: Failed, Reason: "it does not say why"}},
	} {
		if got := fromTest(test.test); got != test.want {
			t.Errorf("want %+v, got %+v", test.want, got)
		}
	}
}

// TestNewest asks for a version as upstream's tests do, with the file in their package.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	content, err := os.ReadFile(filepath.Join("testdata", "newest_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, "module e2edra\n", "", dir, "go.mod")
	write(t, string(content), "", dir, "newest_test.go")
	write(t, `package e2edra

import (
	"io"
	"net/http"
	"testing"
)

func TestIt(t *testing.T) {
	resp, err := http.DefaultClient.Get("https://dl.k8s.io/release/stable-1.36.txt")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "v1.36.4" || resp.StatusCode != http.StatusOK {
		t.Error(string(body), err)
	}
	if _, err := http.DefaultClient.Get("http://127.0.0.1:1/release/stable-1.36.txt"); err == nil {
		t.Error("it answers for others")
	}
}
`, "", dir, "it_test.go")
	cmd := exec.Command("go", "test", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "NEWEST_URL=https://dl.k8s.io/release/stable-1.36.txt", "NEWEST_VERSION=v1.36.4")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSystemd does with a unit what the node suite does with its kubelet, which here writes its arguments
// to a file, and waits.
func TestSystemd(t *testing.T) {
	b := Bare{Output: t.TempDir(), Logs: filepath.Join(t.TempDir(), "e2e-node")}
	if err := b.prepare("run"); err != nil {
		t.Fatal(err)
	}
	dir := b.dir("run")
	log, started := filepath.Join(dir, "kubelet.log"), filepath.Join(dir, "started")
	program := write(t, "printf '%s\\n' \"$@\" >>'"+started+"'\necho running >&2\nexec sleep 1000\n", "x", dir, "kubelet")
	try := func(name string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "shims", name), args...)
		cmd.Env = append(os.Environ(), "NODE_UNITS="+filepath.Join(dir, "units"))
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	run := func(want, name string, args ...string) {
		t.Helper()
		if out, err := try(name, args...); err != nil || out != want {
			t.Fatalf("%s %v: want %q, got %q, %v", name, args, want, out, err)
		}
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		for range 100 {
			if condition() {
				return
			}
			_ = exec.Command("sleep", "0.1").Run()
		}
		t.Fatalf("%s: not after ten seconds", what)
	}
	contains := func(file, want string) func() bool {
		return func() bool { content, err := os.ReadFile(file); return err == nil && string(content) == want }
	}
	const unit, arguments = "kubelet-1.service loaded active running", "--a=b c\nit's $5 and 10%\n"
	run("a", "sudo", "-E", "echo", "a")
	run("systemd 252", "systemd-run", "--version")
	run("", "systemd-run", "-p", "Delegate=true", "-p", "StandardError=append:"+log, "--unit=kubelet-1.service", "--slice=runtime.slice", "--remain-after-exit",
		program, "--a=b c", "it's $$5 and 10%%")
	t.Cleanup(func() { run("", "systemctl", "stop", "kubelet-1.service") })
	run(unit, "systemctl", "list-units", "*kubelet*", "--state=running")
	eventually("started with the arguments", contains(started, arguments))
	// The suite calls it by its name without the end.
	run("", "systemctl", "reset-failed", "kubelet-1")
	run("", "systemctl", "kill", "kubelet-1")
	eventually("killed", func() bool {
		out, err := try("systemctl", "list-units", "*kubelet*", "--state=running")
		return err == nil && out == ""
	})
	run("kubelet-1.service loaded failed failed", "systemctl", "list-units", "*kubelet*")
	// After it has ended, and while it runs.
	run("", "systemctl", "restart", "kubelet-1")
	eventually("restarted with the arguments", contains(started, arguments+arguments))
	run("", "systemctl", "restart", "kubelet-1")
	eventually("restarted again", contains(started, arguments+arguments+arguments))
	eventually("the output of all is in the log", contains(log, "running\nrunning\nrunning\n"))
	if out, err := try("systemctl", "mask", "kubelet-1"); err == nil {
		t.Errorf("what it does not know: %s", out)
	}
}
