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
	"os"
	"path/filepath"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/test/upstream"
)

// programs are those of a release, with the patches or without them.
type programs struct {
	*tree.Tree
	patched bool
	// gatesOff is true if patched programs run as they do by default.
	gatesOff bool
}

func (p programs) bin() string {
	if p.patched {
		return filepath.Join(p.Output, "bin")
	}
	return filepath.Join(p.Output, "unpatched", "bin")
}

// upstream are the same for tests of upstream's.
func (p programs) upstream() upstream.Programs {
	u := upstream.Programs{Release: p.Release.Name, Version: p.Release.Version, Bin: p.bin(), Tree: p.Dir()}
	if !p.patched {
		u.Tree = filepath.Join(p.Output, "unpatched", "kubernetes")
	} else if !p.gatesOff {
		u.On = p.Ledger.Gates(p.Release.Name)
	}
	return u
}

// build builds the programs of a cluster. Unpatched ones are from the base of the tree, which is checked
// out.
func (p programs) build(ctx context.Context) error {
	if p.patched {
		return subcommand(ctx, "build", "--release", p.Release.Name)
	}
	state, err := p.Build(ctx)
	if err != nil {
		return err
	}
	p.Log("unpatched tree")
	dir := p.upstream().Tree
	commit, err := baseTree(ctx, p.Dir(), state.Base, dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.bin(), 0o755); err != nil {
		return err
	}
	return binaries.Build(ctx, binaries.Options{
		Tree: dir, Bin: p.bin(), LogFile: p.bin() + ".log",
		Names:   []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, cluster.Proxy, "kubeadm", "kubectl"},
		Version: p.Release.Version, Commit: commit, Date: p.Release.Date(), Log: p.Log,
	})
}
