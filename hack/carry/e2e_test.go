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
	"path/filepath"
	"slices"
	"testing"

	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/test/upstream"
)

// TestE2EVariants checks which programs run, from which tree, and with which gates.
func TestE2EVariants(t *testing.T) {
	newest, err := openTree("1.37")
	if err != nil {
		t.Fatal(err)
	}
	older, err := openTree("1.35")
	if err != nil {
		t.Fatal(err)
	}
	check := func(got upstream.Programs, of *tree.Tree, patched, gates bool) {
		t.Helper()
		dir := of.Output
		if !patched {
			dir = filepath.Join(dir, "unpatched")
		}
		var on []string
		if gates {
			on = of.Ledger.Gates(of.Release.Name)
		}
		if got.Bin != filepath.Join(dir, "bin") || got.Tree != filepath.Join(dir, "kubernetes") || got.Release != of.Release.Name || !slices.Equal(got.On, on) {
			t.Errorf("want those of %s, patched %t, with gates %v, got %+v", of.Output, patched, on, got)
		}
	}
	type column struct {
		*tree.Tree
		patched, gates bool
	}
	for _, test := range []struct {
		conformance    bool
		kubelet, want  string
		names          []string
		rest, kubelets []column
	}{
		{false, "", "e2e-upstream", []string{"patched", "unpatched"}, []column{{newest, true, true}, {newest, false, false}}, nil},
		{true, "", "conformance", []string{"patched-gates-off", "patched", "unpatched"}, []column{{newest, true, false}, {newest, true, true}, {newest, false, false}}, nil},
		{false, "1.35", "e2e-upstream-kubelet-1.35", []string{"patched-control-plane", "patched-kubelet", "unpatched"},
			[]column{{newest, true, true}, {newest, false, false}, {newest, false, false}}, []column{{older, false, false}, {older, true, true}, {older, false, false}}},
	} {
		variants, name, err := e2eVariants(newest, test.conformance, test.kubelet)
		if err != nil || name != test.want || len(variants) != len(test.names) {
			t.Fatalf("want %s, got %s, %d variants, %v", test.want, name, len(variants), err)
		}
		if test.kubelets == nil {
			test.kubelets = test.rest
		}
		for i, v := range variants {
			if v.name != test.names[i] {
				t.Errorf("want %s, got %s", test.names[i], v.name)
			}
			check(v.rest.upstream(), test.rest[i].Tree, test.rest[i].patched, test.rest[i].gates)
			check(v.kubelet.upstream(), test.kubelets[i].Tree, test.kubelets[i].patched, test.kubelets[i].gates)
		}
	}
	if _, _, err := e2eVariants(newest, false, "1.2"); err == nil {
		t.Error("there is no such kubelet")
	}
}
