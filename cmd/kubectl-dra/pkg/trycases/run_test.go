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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic/fake"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
)

const testdata = "../../testdata"

// listKinds are those of all objects of the case in TestTry.
var listKinds = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "namespaces"}:                               "NamespaceList",
	{Version: "v1", Resource: "pods"}:                                     "PodList",
	{Version: "v1", Resource: "serviceaccounts"}:                          "ServiceAccountList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}:  "DeviceClassList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}: "ResourceSliceList",
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}: "ResourceClaimList",
}

// newRunner returns one for a cluster that has some objects and no components.
func newRunner(objects ...runtime.Object) (*Runner, *fake.FakeDynamicClient) {
	mapper := meta.NewDefaultRESTMapper(nil)
	core, resource := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}
	mapper.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(core.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
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
