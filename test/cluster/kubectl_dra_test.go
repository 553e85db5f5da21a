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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/doctor"
	"kubernetes-dra/cmd/kubectl-dra/pkg/why"
	"kubernetes-dra/hack/pkg/cluster"
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
	mapper, err := config.ToRESTMapper()
	if err != nil {
		t.Fatal(err)
	}
	e.eventually("doctor raises no alarm in a cluster where nothing is wrong", func() error {
		out, err := e.dra(doctor.NewCommand, "", "--fail-on=warning")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		t.Logf("kubectl dra doctor\n%s", out)
		return nil
	})
	seeds := cases.Cluster{Dynamic: e.Dynamic, Mapper: mapper, Version: e.Version}
	patched := cluster.IsPatched(shared.Version)
	realNode, _ := shared.HasRealNode()
	var seeded []*cases.Case
	for _, c := range list {
		if reason := skipped(c, patched, realNode); reason != "" {
			t.Logf("%s is not seeded: %s", c.ID, reason)
			continue
		}
		seeded = append(seeded, c)
	}
	var (
		mutex sync.Mutex
		wrong []string
	)
	t.Cleanup(func() {
		for _, c := range seeded {
			if err := c.Clean(context.Background(), seeds, e.namespace+"-"+c.ID); err != nil {
				t.Errorf("clean up %s: %v", c.ID, err)
			}
		}
	})
	workqueue.ParallelizeUntil(e.ctx, 8, len(seeded), func(i int) {
		c := seeded[i]
		text, err := e.seedAndAsk(c, seeds, e.namespace+"-"+c.ID)
		mutex.Lock()
		defer mutex.Unlock()
		if err != nil {
			wrong = append(wrong, c.ID)
			t.Logf("%s: %v", c.ID, err)
		}
		t.Logf("kubectl dra why %s, case %s:\n%s", c.About, c.ID, text)
	})
	t.Logf("%d of %d cases have the right cause first; not %q", len(seeded)-len(wrong), len(seeded), wrong)
	// 28 of 30.
	if len(wrong)*15 > len(seeded) {
		t.Errorf("too many wrong causes: %q", wrong)
	}
}

// skipped says why a case cannot be seeded here.
func skipped(c *cases.Case, patched, realNode bool) string {
	if c.Skip != "" {
		return c.Skip
	}
	if c.RealNode && !realNode {
		return "it needs a node with a kubelet"
	}
	if c.Carry && !patched {
		return "it is about the carry"
	}
	if c.Since != "" && version.MustParseGeneric(shared.Version).LessThan(version.MustParseGeneric(c.Since)) {
		return "it needs " + c.Since
	}
	return ""
}

// seedAndAsk returns what why says at the end.
func (e *env) seedAndAsk(c *cases.Case, seeds cases.Cluster, namespace string) (string, error) {
	if err := c.Seed(e.ctx, seeds, namespace); err != nil {
		return "", err
	}
	var cause string
	var err error
	// Components take a while to do what they do, and to say what they do not do. The answer has to stay what it is.
	right := 0
	for deadline := time.Now().Add(90 * time.Second); right < 4 && time.Now().Before(deadline); time.Sleep(time.Second) {
		if cause, err = e.firstCause(namespace, c.About); err == nil && cause == c.Cause {
			right++
		} else {
			right = 0
		}
	}
	text, _ := e.why(namespace, c.About)
	if err == nil && cause != c.Cause {
		err = fmt.Errorf("want %s first, got %s", c.Cause, cause)
	}
	return text, err
}

func (e *env) firstCause(namespace, about string) (string, error) {
	out, err := e.why(namespace, about, "-o", "json")
	if err != nil {
		return "", err
	}
	var answer struct {
		Items []struct {
			Causes []struct{ Cause string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if len(answer.Items) == 0 || len(answer.Items[0].Causes) == 0 {
		return "", nil
	}
	return answer.Items[0].Causes[0].Cause, nil
}

// why runs kubectl dra why.
func (e *env) why(namespace string, args ...string) (string, error) {
	return e.dra(why.NewCommand, namespace, args...)
}

// dra runs a verb of kubectl dra.
func (e *env) dra(verb func(*genericclioptions.ConfigFlags, genericiooptions.IOStreams) *cobra.Command, namespace string, args ...string) (string, error) {
	var out bytes.Buffer
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig, config.Namespace = ptr.To(shared.Kubeconfig()), &namespace
	command := verb(config, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.ExecuteContext(e.ctx)
	return out.String(), err
}
