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
	"context"
	"errors"
	"path/filepath"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/tools"
)

// e2eNodePart runs upstream's node specs about DRA, patched beside unpatched.
func e2eNodePart(ctx context.Context, r *testRun) error {
	r.Do("e2e-node", func() error { return r.nodeSpecs(ctx) })
	return context.Cause(ctx)
}

func (r *testRun) nodeSpecs(ctx context.Context) error {
	t := r.source
	logs := filepath.Join(t.Output, "logs", "e2e-node")
	if err := tools.Build(ctx, t.Repo, tools.ControlPlane, t.Log); err != nil {
		return err
	}
	all := []programs{{Tree: t, patched: true}, {Tree: t}}
	results, runs := make([]*e2e.Result, len(all)), make([]e2e.NodeRun, len(all))
	for i, p := range all {
		name, dir := "patched", t.Dir()
		if !p.patched {
			name, dir = unpatchedVariant, unpatchedTree(t)
		}
		if err := p.build(ctx); err != nil {
			return err
		}
		gates, err := p.gates(ctx, cluster.APIServer, map[string]bool{})
		if err != nil {
			return err
		}
		runs[i] = e2e.NodeRun{
			Name: name, Repo: t.Repo, Binary: filepath.Join(t.Output, "e2e-node", name+".test"), Kubelet: filepath.Join(p.bin(), cluster.Kubelet),
			Gates: gates, Dir: filepath.Join(t.Output, "e2e-node", name), LogDir: filepath.Join(logs, name), Log: t.Log,
		}
		// The API server is part of it.
		t.Log("%s: compile the suite", name)
		if err := e2e.CompileNode(ctx, dir, runs[i].Binary); err != nil {
			return err
		}
	}
	// They mostly wait, one spec after the other, and know nothing of each other.
	var waits []func() error
	for i, p := range all {
		waits = append(waits, inBackground(func() (err error) {
			results[i], err = onBareNode(ctx, t, "e2e-node-"+runs[i].Name, p.bin(), func(c *cluster.Cluster) (*e2e.Result, error) {
				t.Log("%s: run the specs, see %s", runs[i].Name, runs[i].LogFile())
				return runs[i].On(ctx, c)
			})
			return err
		}))
	}
	var err error
	for _, wait := range waits {
		err = errors.Join(err, wait())
	}
	if err != nil {
		return err
	}
	return reportE2E(logs, results, nil)
}
