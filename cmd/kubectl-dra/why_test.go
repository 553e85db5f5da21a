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

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/doctor"
	"kubernetes-dra/cmd/kubectl-dra/pkg/fakeapi"
	whyverb "kubernetes-dra/cmd/kubectl-dra/pkg/why"
)

// newServer has the nodes of a small cluster and the objects of a case.
func newServer(t *testing.T, version string, c *cases.Case) *fakeapi.Server {
	t.Helper()
	// The configuration of whoever runs the tests does not matter.
	t.Setenv("KUBECONFIG", "/dev/null")
	t.Setenv("HOME", t.TempDir())
	server := fakeapi.New(t, version)
	for _, name := range []string{"sim-0000", "sim-0001", "sim-0002", "real"} {
		node := map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/hostname": name}},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		}
		if name != "real" {
			node["spec"] = map[string]any{"taints": []any{map[string]any{"key": "kwok.x-k8s.io/node", "effect": "NoSchedule"}}}
		}
		add(t, server, node)
	}
	add(t, server, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "test"}})
	if c != nil {
		server.Add(t, stepsOf(t, c, version)...)
	}
	return server
}

func stepsOf(t *testing.T, c *cases.Case, version string) []cases.Object {
	t.Helper()
	steps, err := c.Steps("test", version, false)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func add(t *testing.T, server *fakeapi.Server, objects ...map[string]any) {
	t.Helper()
	c := cases.Case{ID: "test", Objects: objects}
	steps, err := c.Steps("test", server.Version, false)
	if err != nil {
		t.Fatal(err)
	}
	server.Add(t, steps...)
}

// dra runs a command line. What is written to standard error is returned, too.
func dra(t *testing.T, server *fakeapi.Server, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	command.SetArgs(append(args, "--server="+server.URL, "--namespace=test"))
	err = command.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}

func mustDRA(t *testing.T, server *fakeapi.Server, args ...string) string {
	t.Helper()
	stdout, stderr, err := dra(t, server, args...)
	if err != nil {
		t.Fatalf("kubectl dra %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

type whyAnswer struct {
	Items []struct {
		Object string
		Causes []struct{ Cause, Text, Object, Field, Command string }
		Unseen map[string]struct{ LeftOut []string }
	}
}

func askWhy(t *testing.T, server *fakeapi.Server, args ...string) whyAnswer {
	t.Helper()
	var answer whyAnswer
	out := mustDRA(t, server, append([]string{"why", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return answer
}

func loadCases(t *testing.T) []*cases.Case {
	t.Helper()
	list, err := cases.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// firstCause is the one that stands first in the answer about one object.
func (a whyAnswer) firstCause() string {
	if len(a.Items) != 1 || len(a.Items[0].Causes) == 0 {
		return ""
	}
	return a.Items[0].Causes[0].Cause
}

// newUpstream is newServer without the fields of the carry: upstream's API server drops them.
func newUpstream(t *testing.T, version string, c *cases.Case) *fakeapi.Server {
	t.Helper()
	server := newServer(t, version, nil)
	steps := stepsOf(t, c, version)
	for _, step := range steps {
		for _, path := range cases.CarryFields {
			unstructured.RemoveNestedField(step.Object, path...)
		}
	}
	server.Add(t, steps...)
	return server
}

func TestCases(t *testing.T) {
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		for _, c := range loadCases(t) {
			t.Run(version+"/"+c.ID, func(t *testing.T) {
				if version == "v1beta1" && c.Since != "" {
					t.Skipf("the API has that since %s", c.Since)
				}
				server := newServer(t, version, c)
				answer := askWhy(t, server, c.About)
				if got := answer.firstCause(); got != c.Cause {
					t.Errorf("want %s first, got %s", c.Cause, mustDRA(t, server, "why", c.About))
				}
				if !c.Carry {
					upstream := newUpstream(t, version, c)
					if got := askWhy(t, upstream, c.About).firstCause(); got != c.Cause {
						t.Errorf("without the carry, want %s first, got %s", c.Cause, mustDRA(t, upstream, "why", c.About))
					}
				}
				for _, cause := range answer.Items[0].Causes {
					if cause.Text == "" || cause.Object == "" || cause.Field == "" {
						t.Errorf("a cause has to say what is wrong, and where that stands: %+v", cause)
					}
				}
				if writes := server.Writes(); len(writes) > 0 {
					t.Errorf("it wrote: %q", writes)
				}
			})
		}
	}
}

// TestUnseen checks that a missing permission never leads to a cause that is not there with the permission.
func TestUnseen(t *testing.T) {
	resources := []string{"pods", "resourceclaims", "resourceclaimtemplates", "deviceclasses", "resourceslices", "nodes", "namespaces", "resourcequotas", "events", "devicetaintrules"}
	for _, c := range loadCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			server := newServer(t, "v1", c)
			var seen []string
			for _, cause := range askWhy(t, server, c.About).Items[0].Causes {
				seen = append(seen, cause.Cause)
			}
			for _, resource := range append(resources, "resourceclaims in other namespaces") {
				server.Forbidden = []string{resource}
				out, _, err := dra(t, server, "why", "-o", "json", c.About)
				if err != nil {
					if strings.HasPrefix(c.About, strings.TrimPrefix(resource, "resource")[:3]) {
						continue
					}
					t.Fatalf("without %s: %v", resource, err)
				}
				var answer whyAnswer
				if err := json.Unmarshal([]byte(out), &answer); err != nil {
					t.Fatal(err)
				}
				for _, cause := range answer.Items[0].Causes {
					// What the scheduler says, what no pod does and that nothing is found are weaker words for the same.
					if !slices.Contains(append(seen, "scheduler-says", "scheduler-silent"), cause.Cause) {
						t.Errorf("without %s it says %s (%s), and with it %q", resource, cause.Cause, cause.Text, seen)
					}
				}
				if answer.firstCause() == c.Cause {
					continue
				}
				var left []string
				for _, gap := range answer.Items[0].Unseen {
					left = append(left, gap.LeftOut...)
				}
				if !slices.Contains(left, c.Cause) {
					t.Errorf("without %s it does not find %s, and does not say that it did not look for it: %q", resource, c.Cause, left)
				}
			}
		})
	}
}

// TestWhyAll is about the pods that are listed without a name, also where claims may not be read.
func TestWhyAll(t *testing.T) {
	for _, c := range loadCases(t) {
		if c.ID != "extended-resource-in-use" && c.ID != "claim-in-use" && c.ID != "no-claims" {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			server := newServer(t, "v1", c)
			add(t, server, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "waits"}, "spec": map[string]any{
				"resourceClaims": []any{map[string]any{"name": "gpu", "resourceClaimName": "none"}},
			}})
			objects := func() (names []string) {
				for _, item := range askWhy(t, server, "-A").Items {
					names = append(names, item.Object)
				}
				return names
			}
			want := []string{"pod/waits"}
			if c.ID == "extended-resource-in-use" {
				want = []string{"pod/train", "pod/waits"}
			}
			if got := objects(); !slices.Equal(got, want) {
				t.Errorf("want %q, got %q", want, got)
			}
			server.Forbidden = []string{"resourceclaims"}
			if got := objects(); !slices.Equal(got, want) {
				t.Errorf("without resourceclaims: want %q, got %q", want, got)
			}
		})
	}
}

// TestDocumented checks that each id has a row in the documents, and that causes have cases.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/kubectl-dra.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range append(whyverb.IDs(), doctor.IDs()...) {
		if !strings.Contains(string(data), "\n| `"+id+"` |") {
			t.Errorf("docs/kubectl-dra.md has no row for %s", id)
		}
	}
	var covered []string
	for _, c := range loadCases(t) {
		if covered = append(covered, c.Cause); !slices.Contains(whyverb.IDs(), c.Cause) {
			t.Errorf("case %s has the unknown cause %s", c.ID, c.Cause)
		}
	}
	for _, id := range whyverb.IDs() {
		if !slices.Contains(covered, id) {
			t.Errorf("no case has the cause %s", id)
		}
	}
}
