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

package trycases

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
)

const testdata = "../../testdata"

// listKinds are those of all objects of the cases that get seeded here.
var listKinds = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "namespaces"}: "NamespaceList",
	{Version: "v1", Resource: "pods"}:       "PodList",
	serviceAccounts:                         "ServiceAccountList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}:  "DeviceClassList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}: "ResourceSliceList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}: "ResourceClaimList",
	priorityClasses: "PriorityClassList",
}

var (
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	priorityClasses = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}
)

// newRunner returns one for a cluster that has some objects and no components.
func newRunner(objects ...runtime.Object) (*Runner, *fake.FakeDynamicClient) {
	mapper := meta.NewDefaultRESTMapper(nil)
	core, resource := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}
	mapper.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(core.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	mapper.Add(priorityClasses.GroupVersion().WithKind("PriorityClass"), meta.RESTScopeRoot)
	for kind, scope := range map[string]meta.RESTScope{"DeviceClass": meta.RESTScopeRoot, "ResourceSlice": meta.RESTScopeRoot, "ResourceClaim": meta.RESTScopeNamespace} {
		mapper.Add(resource.WithKind(kind), scope)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds, objects...)
	return &Runner{
		Cluster: cases.Cluster{Dynamic: client, Mapper: mapper, Version: "v1"},
		Version: version.MustParseGeneric("v1.37.2"), Nodes: sets.New("worker"), Prefix: "try-", Patience: 10 * time.Second,
	}, client
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func load(t *testing.T, dir string, names ...string) []*cases.Case {
	t.Helper()
	list, err := selectCases(dir, names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestTry runs a case for each way in which it can end. Whatever it was, nothing remains of what was seeded.
func TestTry(t *testing.T) {
	account := object("v1", "ServiceAccount", "try-too-few-devices", "default")
	for name, test := range map[string]struct {
		objects []runtime.Object
		answer  string
		text    string
	}{
		"right": {objects: []runtime.Object{account}, answer: "too-few-devices", text: "right"},
		"wrong": {objects: []runtime.Object{account}, answer: "quota", text: "wrong"},
		"none":  {objects: []runtime.Object{account}, text: "wrong"},
		"class exists": {
			objects: []runtime.Object{account, object("resource.k8s.io/v1", "DeviceClass", "", "too-few-devices")},
			text:    "error: DeviceClass too-few-devices exists already: it was left alone, and the case was not seeded; remove it if an earlier run left it behind",
		},
		"namespace exists": {
			objects: []runtime.Object{account, object("v1", "Namespace", "", "try-too-few-devices")},
			text:    "error: Namespace try-too-few-devices exists already: it was left alone, and the case was not seeded; remove it if an earlier run left it behind",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runner, client := newRunner(test.objects...)
			runner.Patience = time.Second
			if test.text == "right" {
				runner.Patience = time.Minute
			}
			runner.Why = func(_ context.Context, namespace string, args ...string) (string, error) {
				if namespace != "try-too-few-devices" || args[0] != "pod/train" {
					t.Errorf("asked about %v in %s", args, namespace)
				}
				if test.answer == "" {
					return `{"items": []}`, nil
				}
				return `{"items": [{"causes": [{"cause": "` + test.answer + `"}]}]}`, nil
			}
			var seen []string
			results := runner.Run(context.Background(), load(t, testdata, "too-few-devices"), 2, func(r Result) { seen = append(seen, r.verdict()) })
			if len(results) != 1 || results[0].Got != test.answer || results[0].Want != "too-few-devices" || len(seen) != 1 || seen[0] != test.text {
				t.Errorf("want %q, got %q and %+v", test.text, seen, results)
			}
			if results[0].IsWrong() == (test.text == "right") {
				t.Errorf("wrong: %t", results[0].IsWrong())
			}
			existing := len(test.objects)
			for resource := range listKinds {
				items, err := client.Resource(resource).List(context.Background(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				existing -= len(items.Items)
			}
			if existing != 0 {
				t.Errorf("%d objects too few (negative: too many) remain", existing)
			}
		})
	}
}

// answers lets why give the right answer.
func answers(_ context.Context, _ string, _ ...string) (string, error) {
	return `{"items": [{"causes": [{"cause": "too-few-devices"}]}]}`, nil
}

// TestCleanUpFails covers a case that goes wrong, and whose objects cannot be removed. The user has to hear of both.
func TestCleanUpFails(t *testing.T) {
	for name, test := range map[string]struct {
		why  func(context.Context, string, ...string) (string, error)
		want []string
	}{
		"right": {why: answers, want: []string{"clean up: refused"}},
		"error": {why: func(context.Context, string, ...string) (string, error) { return "", errors.New("no answer") }, want: []string{"no answer", "; clean up: refused"}},
	} {
		runner, client := newRunner(object("v1", "ServiceAccount", "try-too-few-devices", "default"))
		runner.Patience, runner.Why = time.Second, test.why
		client.PrependReactor("delete", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("refused")
		})
		results := runner.Run(context.Background(), load(t, testdata, "too-few-devices"), 1, func(Result) {})
		for _, want := range test.want {
			if !strings.Contains(results[0].Error, want) || !results[0].IsWrong() {
				t.Errorf("%s: no %q in %+v", name, want, results[0])
			}
		}
	}
}

// TestOutside covers objects that are not in the namespace of the case. Those of others are left alone, and the case's
// own are removed.
func TestOutside(t *testing.T) {
	account := object("v1", "ServiceAccount", "try-too-few-devices", "default")
	outside := map[schema.GroupVersionResource]*unstructured.Unstructured{
		priorityClasses: object("scheduling.k8s.io/v1", "PriorityClass", "", "urgent"),
		serviceAccounts: object("v1", "ServiceAccount", "kube-system", "plugin"),
	}
	var all []map[string]any
	for resource, o := range outside {
		all = append(all, o.Object)
		theirs := o.DeepCopy()
		theirs.SetLabels(map[string]string{"owner": "somebody"})
		runner, client := newRunner(account, theirs.DeepCopy())
		runner.Patience, runner.Why = time.Second, answers
		c := load(t, testdata, "too-few-devices")[0]
		o.SetLabels(map[string]string{"owner": "case"})
		c.Objects = append(c.Objects, o.Object)
		results := runner.Run(context.Background(), []*cases.Case{c}, 1, func(Result) {})
		if want := o.GetKind() + " " + o.GetName() + " exists already"; !strings.Contains(results[0].Error, want) {
			t.Errorf("want %q, got %+v", want, results[0])
		}
		got, err := client.Resource(resource).Namespace(o.GetNamespace()).Get(context.Background(), o.GetName(), metav1.GetOptions{})
		if err != nil || !apiequality.Semantic.DeepEqual(got, theirs) {
			t.Errorf("%s: want %v, got %v, %v", o.GetKind(), theirs, got, err)
		}
	}

	runner, client := newRunner(account)
	runner.Patience, runner.Why = time.Minute, answers
	c := load(t, testdata, "too-few-devices")[0]
	c.Objects = append(c.Objects, all...)
	results := runner.Run(context.Background(), []*cases.Case{c}, 1, func(Result) {})
	if results[0].IsWrong() {
		t.Errorf("got %+v", results[0])
	}
	for resource, o := range outside {
		if got, err := client.Resource(resource).Namespace(o.GetNamespace()).Get(context.Background(), o.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: want nothing, got %v, %v", o.GetKind(), got, err)
		}
	}
}

// TestSkipped covers cases that cannot be seeded in a cluster.
func TestSkipped(t *testing.T) {
	for id, test := range map[string]struct {
		carry bool
		want  string
	}{
		"claim-not-made":                {want: "kube-controller-manager runs"},
		"reserved-for-another-workload": {want: "it is about the carry"},
		"driver-error":                  {want: "it needs a node real, with a kubelet"},
		"driver-not-on-node":            {want: "it needs a simulated node sim-0000"},
		"too-few-devices":               {},
		"gate-off-in-kubelet":           {carry: true, want: "it needs a node real, with a kubelet"},
	} {
		runner, _ := newRunner()
		runner.Carry = test.carry
		if got, err := runner.Skipped(load(t, testdata, id)[0]); err != nil || got != test.want {
			t.Errorf("%s: want %q, got %q, %v", id, test.want, got, err)
		}
	}
	runner, _ := newRunner()
	runner.Version = version.MustParseGeneric("v1.32.13")
	c := load(t, testdata, "too-few-devices")[0]
	c.Since = "1.33"
	if got, err := runner.Skipped(c); err != nil || got != "it needs 1.33" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestSelectCases covers a folder that is none, and a case that there is not.
func TestSelectCases(t *testing.T) {
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "common.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir   string
		names []string
		want  string
	}{
		{"missing", nil, "no such file"},
		{empty, nil, "has no case"},
		{testdata, []string{"quota", "quotas"}, `has no case "quotas"`},
	} {
		if _, err := selectCases(test.dir, test.names); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: want %q, got %v", test, test.want, err)
		}
	}
}
