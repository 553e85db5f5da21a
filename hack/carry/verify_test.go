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
	"errors"
	"os"
	"path/filepath"
	"testing"

	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// The generators run on a base once, on one machine, unless they failed.
func TestGeneratorCheck(t *testing.T) {
	runs := 0
	var failure error
	g := generatorCheck{
		file: filepath.Join(t.TempDir(), "generators.sum"),
		run:  func() error { runs++; return failure },
	}
	release := &ledger.Release{Name: "1.36", Version: "v1.36.1"}
	open := func(cache string) *tree.Tree {
		return &tree.Tree{Repo: "../..", Release: release, Cache: cache, Log: t.Logf}
	}
	mine, other := t.TempDir(), t.TempDir()
	for i, step := range []struct {
		base, cache string
		update      bool
		failure     error
		runs        int
	}{
		{base: "first", cache: mine, update: true, failure: errors.New("they change something"), runs: 1},
		{base: "first", cache: mine, runs: 2},
		{base: "first", cache: mine, runs: 2},
		{base: "first", cache: other, runs: 3},
		// Only an update records it for all.
		{base: "first", cache: mine, update: true, runs: 3},
		{base: "first", cache: t.TempDir(), runs: 3},
		{base: "second", cache: mine, runs: 4},
	} {
		g.update, failure = step.update, step.failure
		if err := g.check(open(step.cache), &tree.State{Base: step.base}); !errors.Is(err, step.failure) {
			t.Errorf("step %d: %v", i, err)
		}
		if runs != step.runs {
			t.Errorf("step %d: the generators ran %d times, not %d", i, runs, step.runs)
		}
	}
	if err := os.Remove(g.file); err != nil {
		t.Error(err)
	}
}
