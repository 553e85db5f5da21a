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
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestVersions checks that everybody shows the version of this repository's
// release, and understands it.
func TestVersions(t *testing.T) {
	e := newEnv(t)
	if _, err := version.ParseSemantic(stamp); err != nil {
		t.Fatal(err)
	}
	program := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(shared.Options.Bin, name), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}

	for _, name := range []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet} {
		if got := program(name, "--version"); got != "Kubernetes "+stamp {
			t.Errorf("%s --version: want %s, got %q", name, stamp, got)
		}
	}

	type info struct{ GitVersion, Major, Minor string }
	var versions struct{ ClientVersion, ServerVersion info }
	parseJSON(t, kubectl(t, "version", "-o=json"), &versions)
	_, minor, _ := strings.Cut(shared.Options.Release, ".")
	for name, got := range map[string]info{"client": versions.ClientVersion, "server": versions.ServerVersion} {
		if got.GitVersion != stamp || got.Major != "1" || strings.TrimSuffix(got.Minor, "+") != minor {
			t.Errorf("kubectl version: want %s of the %s, got %+v", stamp, name, got)
		}
	}

	if got := program("kubeadm", "version", "-o=short"); got != stamp {
		t.Errorf("kubeadm version: want %s, got %q", stamp, got)
	}
	// It parses the version to find the images that go with it. Theirs are
	// upstream's.
	images := program("kubeadm", "config", "images", "list", "--kubernetes-version="+stamp)
	if tag := strings.ReplaceAll(stamp, "+", "_"); !strings.Contains(images, "/kube-apiserver:"+tag) {
		t.Errorf("kubeadm does not understand version %s:\n%s", stamp, images)
	}

	if real, reason := shared.HasRealNode(); !real {
		t.Logf("there is no node with a kubelet (%s), so its version is not checked", reason)
		return
	}
	node, err := e.CoreV1().Nodes().Get(e.ctx, cluster.RealNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Status.NodeInfo.KubeletVersion; got != stamp {
		t.Errorf("kubelet on node %s: want %s, got %q", node.Name, stamp, got)
	}
}
