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
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"kubernetes-dra/hack/pkg/dist/nodeimage"
	"kubernetes-dra/hack/pkg/dist/release"
	"kubernetes-dra/hack/pkg/tools"
)

func init() {
	register(command{
		name:  "node-image",
		args:  "[--release 1.36] [--arch amd64] [--image name] [--base-image name] [--file archive.tar]",
		short: "build a node image for kind from the release's server tarball",
		run:   runNodeImage,
	})
}

func runNodeImage(ctx context.Context, args []string) error {
	flags := newFlags("node-image")
	name := flags.String("release", "", "release of the tarball (default: that of the ledger)")
	arch := flags.String("arch", runtime.GOARCH, "architecture of the tarball")
	image := flags.String("image", "", "name of the image (default: kubernetes-dra/node:<version>)")
	base := flags.String("base-image", "", "image to add the tarball to (default: that of kind)")
	file := flags.String("file", "", "archive to save the image to, for docker load on another machine (default: none)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*name)
	if err != nil {
		return err
	}
	dir := filepath.Join(t.Output, "release")
	options := nodeimage.Options{
		Release:   t.Release.Name,
		Tarball:   filepath.Join(dir, release.TarballName(*arch)),
		Version:   t.Ledger.Stamp(t.Release),
		Arch:      *arch,
		Image:     *image,
		BaseImage: *base,
		File:      *file,
		Scratch:   dir,
		Output:    os.Stderr,
		Log:       t.Log,
	}
	if options.Image == "" {
		options.Image = nodeimage.DefaultImage(options.Version)
	}
	kind := filepath.Join(tools.Dir(t.Repo), "kind")
	options.Kind = func(ctx context.Context) (string, error) {
		return kind, tools.Build(ctx, t.Repo, []string{"kind"}, t.Log)
	}
	if err := nodeimage.Build(ctx, options); err != nil {
		return err
	}
	fmt.Printf("\n%s is built; it makes a cluster with the gates on:\n\n", options.Image)
	fmt.Printf("  %s create cluster --image %s --config %s\n", kind, options.Image, filepath.Join(dir, "kind.yaml"))
	fmt.Printf("  kubectl --context kind-kind get nodes\n")
	return nil
}
