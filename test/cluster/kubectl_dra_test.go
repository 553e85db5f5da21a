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
	"io"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/doctor"
	"kubernetes-dra/cmd/kubectl-dra/pkg/trycases"
)

// TestKubectlDRA seeds the faults of all cases at the same time, each in a namespace of its own, and asks
// "kubectl dra why" about each.
func TestKubectlDRA(t *testing.T) {
	e := newEnv(t)
	list, err := cases.Load(filepath.Join(repo, "cmd", "kubectl-dra", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig = ptr.To(shared.Kubeconfig())
	e.eventually("doctor raises no alarm in a cluster where nothing is wrong", func() error {
		out, err := trycases.Verb(e.ctx, doctor.NewCommand, config, "", "--fail-on=warning")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		t.Logf("kubectl dra doctor\n%s", out)
		return nil
	})
	runner, err := trycases.NewRunner(e.ctx, config, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	runner.Prefix = e.namespace + "-"
	var wrong []string
	seeded := 0
	runner.Run(e.ctx, list, 8, func(r trycases.Result) {
		if r.Skipped != "" {
			t.Logf("%s is not seeded: %s", r.Case, r.Skipped)
			return
		}
		seeded++
		if r.IsWrong() {
			wrong = append(wrong, r.Case)
			t.Logf("%s: want %s first, got %s %s", r.Case, r.Want, r.Got, r.Error)
		}
		t.Logf("kubectl dra why %s, case %s:\n%s", r.About, r.Case, r.Text)
	})
	t.Logf("%d of %d cases have the right cause first; not %q", seeded-len(wrong), seeded, wrong)
	// 28 of 30.
	if seeded == 0 || len(wrong)*15 > seeded {
		t.Errorf("too many wrong causes: %q", wrong)
	}
}
