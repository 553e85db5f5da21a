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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/downgrade"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
	"kubernetes-dra/cmd/kubectl-dra/pkg/why"
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

// defaultPatience is enough for a slow machine.
const defaultPatience = 90 * time.Second

// NewRunner finds out what cluster it is. Progress is written to a terminal only. The caller sets Prefix.
func NewRunner(ctx context.Context, config *genericclioptions.ConfigFlags, errOut io.Writer) (*Runner, error) {
	reader, err := view.NewReader(config, errOut)
	if err != nil {
		return nil, err
	}
	r := &Runner{Patience: defaultPatience, Nodes: sets.New[string]()}
	r.Cluster.Version = reader.Version
	if r.Cluster.Dynamic, err = dynamic.NewForConfig(reader.Config); err != nil {
		return nil, err
	}
	if r.Cluster.Mapper, err = config.ToRESTMapper(); err != nil {
		return nil, err
	}
	discovery := reader.Kube.Discovery()
	info, err := discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask for the version of the API server: %w", err)
	}
	if r.Version, err = version.ParseGeneric(info.GitVersion); err != nil {
		return nil, fmt.Errorf("version of the API server: %w", err)
	}
	if r.Carry, err = downgrade.HasCarry(discovery.OpenAPIV3(), schema.GroupVersion{Group: "resource.k8s.io", Version: reader.Version}); err != nil {
		return nil, fmt.Errorf("look for spec.reservedFor: %w", err)
	}
	nodes, err := reader.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes.Items {
		r.Nodes.Insert(node.Name)
	}
	r.Why = func(ctx context.Context, namespace string, args ...string) (string, error) {
		return Verb(ctx, why.NewCommand, config, namespace, args...)
	}
	return r, nil
}

// Verb runs a verb of kubectl dra in a namespace, and returns what it prints.
func Verb(ctx context.Context, verb func(*genericclioptions.ConfigFlags, genericiooptions.IOStreams) *cobra.Command, config *genericclioptions.ConfigFlags, namespace string, args ...string) (string, error) {
	var out bytes.Buffer
	command := verb(inNamespace(config, namespace), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.ExecuteContext(ctx)
	return out.String(), err
}

// inNamespace returns flags for the same cluster and user, which nobody else changes.
func inNamespace(c *genericclioptions.ConfigFlags, namespace string) *genericclioptions.ConfigFlags {
	return &genericclioptions.ConfigFlags{
		Namespace: &namespace, CacheDir: c.CacheDir, KubeConfig: c.KubeConfig, ClusterName: c.ClusterName, AuthInfoName: c.AuthInfoName,
		Context: c.Context, APIServer: c.APIServer, TLSServerName: c.TLSServerName, Insecure: c.Insecure, CertFile: c.CertFile,
		KeyFile: c.KeyFile, CAFile: c.CAFile, BearerToken: c.BearerToken, Impersonate: c.Impersonate, ImpersonateUID: c.ImpersonateUID,
		ImpersonateGroup: c.ImpersonateGroup, ImpersonateUserExtra: c.ImpersonateUserExtra, Username: c.Username, Password: c.Password,
		Timeout: c.Timeout, DisableCompression: c.DisableCompression, WrapConfigFn: c.WrapConfigFn,
	}
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
		if strings.Contains(string(text), `"`+node+`"`) && !r.Nodes.Has(node) {
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
		if err := c.Clean(cleanCtx, r.Cluster, namespace); err != nil {
			if result.Error != "" {
				result.Error += "; "
			}
			result.Error += fmt.Sprintf("clean up: %v", err)
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

// checkFree returns an error if an object of the case exists already: it belongs to somebody. What is in the namespace of
// the case cannot exist, because that namespace does not.
func (r *Runner) checkFree(ctx context.Context, c *cases.Case, namespace string) error {
	steps, err := c.Steps(namespace, r.Cluster.Version, true)
	if err != nil {
		return err
	}
	steps = append(steps, cases.NewNamespace(namespace))
	for _, step := range steps {
		client, namespaced, err := r.Cluster.Client(step.Unstructured)
		if err != nil {
			return err
		}
		if namespaced && step.GetNamespace() == namespace {
			continue
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
