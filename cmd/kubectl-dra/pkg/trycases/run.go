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

// Package trycases seeds the faults of cases in a cluster, and compares what "kubectl dra why" says about them with
// what the cases expect.
package trycases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/workqueue"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
)

// Result is what became of a case.
type Result struct {
	Case string `json:"case"`
	// About is what why was asked.
	About string `json:"about,omitempty"`
	// Want is the cause that has to come first, Got the one that does.
	Want string `json:"want"`
	Got  string `json:"got,omitempty"`
	// Skipped says why the case was not seeded, Error what went wrong.
	Skipped string `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
	// Text is all that why said at the end.
	Text string `json:"text,omitempty"`
}

// IsWrong returns true if the case was seeded, and has another cause first.
func (r Result) IsWrong() bool { return r.Skipped == "" && (r.Error != "" || r.Got != r.Want) }

// Runner seeds cases.
type Runner struct {
	Cluster cases.Cluster
	// Why runs "kubectl dra why" with some arguments.
	Why func(ctx context.Context, namespace string, args ...string) (string, error)
	// Version is that of the API server. Carry is true if it is one of ours.
	Version *version.Version
	Carry   bool
	// Nodes are those of the cluster.
	Nodes sets.Set[string]
	// Prefix is that of the namespaces, one for each case.
	Prefix string
	// Patience is how long the right cause may take to come first. Components take a while to do what they do, and
	// to say what they do not do.
	Patience time.Duration
}

// nodesOfCases are those which cases need, and do not create.
var nodesOfCases = map[string]string{"sim-0000": "a simulated node sim-0000", "real": "a node real, with a kubelet"}

// Skipped says why a case cannot be seeded here, empty if it can.
func (r *Runner) Skipped(c *cases.Case) (string, error) {
	switch {
	case c.Skip != "":
		return c.Skip, nil
	case c.Carry && !r.Carry:
		return "it is about the carry", nil
	case c.Since != "" && r.Version.LessThan(version.MustParseGeneric(c.Since)):
		return "it needs " + c.Since, nil
	}
	steps, err := c.Steps(r.Prefix+c.ID, r.Cluster.Version, true)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return "", err
	}
	for node, what := range nodesOfCases {
		needed := strings.Contains(string(text), `"`+node+`"`) || c.RealNode && node == "real"
		if needed && !r.Nodes.Has(node) {
			return "it needs " + what, nil
		}
	}
	return "", nil
}

// Run seeds the cases, several at the same time, and removes them again. The results have the order of the cases.
func (r *Runner) Run(ctx context.Context, list []*cases.Case, parallel int, done func(Result)) []Result {
	results := make([]Result, len(list))
	var mutex sync.Mutex
	workqueue.ParallelizeUntil(ctx, parallel, len(list), func(i int) {
		results[i] = r.try(ctx, list[i])
		mutex.Lock()
		defer mutex.Unlock()
		done(results[i])
	})
	for i, result := range results {
		if result.Case == "" {
			results[i] = Result{Case: list[i].ID, Want: list[i].Cause, Skipped: "interrupted"}
		}
	}
	return results
}

func (r *Runner) try(ctx context.Context, c *cases.Case) (result Result) {
	result = Result{Case: c.ID, About: c.About, Want: c.Cause}
	fail := func(err error) Result {
		result.Error = err.Error()
		return result
	}
	var err error
	if result.Skipped, err = r.Skipped(c); err != nil {
		return fail(err)
	}
	if result.Skipped != "" {
		return result
	}
	namespace := r.Prefix + c.ID
	if err := r.checkFree(ctx, c, namespace); err != nil {
		return fail(err)
	}
	defer func() {
		// Also after an interrupt.
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := c.Clean(cleanCtx, r.Cluster, namespace); err != nil && result.Error == "" {
			result.Error = fmt.Sprintf("clean up: %v", err)
		}
	}()
	if err := c.Seed(ctx, r.Cluster, namespace); err != nil {
		return fail(err)
	}
	// The answer has to stay what it is.
	right := 0
	for deadline := time.Now().Add(r.Patience); right < 4 && time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Second) {
		if result.Got, err = r.firstCause(ctx, namespace, c.About); err == nil && result.Got == c.Cause {
			right++
		} else {
			right = 0
		}
	}
	if err != nil {
		return fail(err)
	}
	result.Text, err = r.Why(ctx, namespace, c.About)
	if err != nil {
		return fail(err)
	}
	return result
}

// checkFree returns an error if an object of the case exists already: it belongs to somebody.
func (r *Runner) checkFree(ctx context.Context, c *cases.Case, namespace string) error {
	steps, err := c.Steps(namespace, r.Cluster.Version, true)
	if err != nil {
		return err
	}
	steps = append(steps, cases.NewNamespace(namespace))
	for _, step := range steps {
		if step.GetNamespace() != "" {
			continue
		}
		client, err := r.Cluster.Client(step.Unstructured)
		if err != nil {
			return err
		}
		switch _, err := client.Get(ctx, step.GetName(), metav1.GetOptions{}); {
		case err == nil:
			return fmt.Errorf("%s %s exists already: it was left alone, and the case was not seeded; remove it if an earlier run left it behind", step.GetKind(), step.GetName())
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}

func (r *Runner) firstCause(ctx context.Context, namespace, about string) (string, error) {
	out, err := r.Why(ctx, namespace, about, "-o", "json")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
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
