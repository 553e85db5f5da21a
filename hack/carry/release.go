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
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/dist/debian"
	"kubernetes-dra/hack/pkg/dist/release"
	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

func init() {
	register(command{
		name:  "release",
		args:  "[--release 1.36] [--arch amd64,arm64] [--output dir] [--mirror address | --proxy-base image@sha256:...] [--untested]",
		short: "server tarballs, checksums, configurations, into _output/<release>/release",
		run:   runRelease,
	})
	register(command{
		name:  "modules",
		args:  "[--release 1.36] [--output dir]",
		short: "the Go modules that the carry changes, as a module proxy, into _output/<release>/modules",
		run:   runModules,
	})
}

func runModules(ctx context.Context, args []string) error {
	flags := newFlags("modules")
	name := flags.String("release", "", "release of Kubernetes (default: that of the ledger)")
	output := flags.String("output", "", "folder of the modules (default: _output/<release>/modules)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*name)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(cmp.Or(*output, filepath.Join(t.Output, "modules")))
	if err != nil {
		return err
	}
	build, err := buildOptions(ctx, t)
	if err == nil {
		err = release.Committed(build)
	}
	if err != nil {
		return err
	}
	modules, err := goModules(ctx, t)
	if err != nil {
		return err
	}
	if err := modules.Replace(ctx, dir, t.Log); err != nil {
		return err
	}
	t.Log("%s: %s at %s", dir, strings.Join(modules.Paths, ", "), modules.Version)
	return nil
}

// goModules finds the staging modules in a tree that are not those of the base.
func goModules(ctx context.Context, t *tree.Tree) (release.GoModules, error) {
	const staging = "staging/src/"
	m := release.GoModules{Tree: t.Dir(), Version: fmt.Sprintf("%s-dra.%d", t.Release.StagingVersion(), t.Ledger.Revision), Date: t.Release.Date()}
	state, err := t.Build(ctx)
	if err != nil {
		return m, err
	}
	changed, err := git.Dir(t.Dir()).Output(ctx, nil, nil, "diff", "-z", "--name-only", state.Base, state.Head, "--", staging)
	for _, file := range git.SplitZ(changed) {
		if elem := strings.Split(strings.TrimPrefix(file, staging), "/"); len(elem) > 2 {
			m.Paths = append(m.Paths, elem[0]+"/"+elem[1])
		}
	}
	slices.Sort(m.Paths)
	m.Paths = slices.Compact(m.Paths)
	return m, err
}

func runRelease(ctx context.Context, args []string) error {
	flags := newFlags("release")
	name := flags.String("release", "", "release of Kubernetes (default: that of the ledger)")
	arches := flags.String("arch", strings.Join(release.Architectures, ","), "architectures")
	output := flags.String("output", "", "folder of the release (default: _output/<release>/release)")
	mirror := flags.String("mirror", "", mirrorUsage)
	baseImage := flags.String("proxy-base", "", "image with a digest that is the base of kube-proxy's (default: the Debian packages of "+release.ProxyLock+")")
	untested := flags.Bool("untested", false, "also make a release of a tree that is not the tested one; its file "+release.UntestedFile+" says so")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*name)
	if err != nil {
		return err
	}
	if *output == "" {
		*output = filepath.Join(t.Output, "release")
	}
	if *output, err = filepath.Abs(*output); err != nil {
		return err
	}
	build, err := buildOptions(ctx, t)
	if err != nil {
		return err
	}
	why, err := whyUntested(ctx, t, *untested)
	if err != nil {
		return err
	}
	base, err := release.DebianBase(filepath.Join(t.Repo, release.ProxyLock), debian.Apt{Mirror: *mirror, Cache: t.Cache})
	if *baseImage != "" {
		base, err = release.RegistryBase(*baseImage)
	}
	if err != nil {
		return err
	}
	standIns, err := standIns(t.Repo, t.Release)
	if err != nil {
		return err
	}
	modules, err := goModules(ctx, t)
	if err != nil {
		return err
	}
	options := release.Options{
		Build:         build,
		Output:        *output,
		Architectures: strings.Split(*arches, ","),
		Gates:         t.Ledger.Gates(t.Release.Name),
		RuntimeConfig: t.Release.RuntimeConfig,
		StandIns:      standIns,
		ProxyBase:     base,
		Addons:        []release.Addon{{Dir: t.Repo, Package: "./cmd/" + cluster.NetworkDaemonSet, Image: cluster.NetworkImage, Manifests: "cmd/" + cluster.NetworkDaemonSet + "/deploy"}},
		Policies:      filepath.Join(t.Repo, "examples"),
		Modules:       modules,
		Plugin: &release.Plugin{
			Dir: t.Repo, Package: "./cmd/kubectl-dra", Systems: []string{"linux", "darwin", "windows"},
			Short: "Who holds a device, why a pod waits for one, what will break", Homepage: "https://kep.k8s.io/4381",
		},
		Untested: why,

		IgnoredPreflightErrors: t.Release.IgnoredPreflightErrors,
	}
	if err := release.Build(ctx, options); err != nil {
		return err
	}
	t.Log("%s: %s for %s", options.Output, build.Version, strings.Join(options.Architectures, ", "))
	if why != "" {
		t.Log("UNTESTED: %s", why)
	}
	return nil
}

// standIns are those of the ledger, with the checksums of the pin.
func standIns(repo string, r *ledger.Release) ([]release.StandIn, error) {
	pin, err := upstream.LoadPin(repo, r)
	if err != nil {
		return nil, err
	}
	var all []release.StandIn
	for _, s := range r.StandIns {
		sum, err := pin.Sum(module.Version{Path: s.Module, Version: s.Version})
		if err != nil {
			return nil, err
		}
		all = append(all, release.StandIn{Module: s.Module, Version: s.Version, Sum: sum, For: r.StagingVersion(), Why: s.Why})
	}
	return all, nil
}

// whyUntested says what tests of a tree are owed, nothing if none are. Unless that is
// allowed, it is an error.
func whyUntested(ctx context.Context, t *tree.Tree, allowed bool) (string, error) {
	switch err := checkOwed(ctx, t.Release.Name); {
	case err == nil:
		return "", nil
	case allowed:
		return err.Error(), nil
	default:
		return "", fmt.Errorf("%w, or go on without that: make release UNTESTED=1", err)
	}
}
