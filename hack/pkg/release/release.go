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

// Package release makes what upstream publishes for a release out of a tree:
// server tarballs with binaries and images, checksums, bills of materials, and
// configurations for kind and kubeadm. The same tree, built with the same Go
// and with this repository at the same commit, gives the same bytes.
package release

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"kubernetes-dra/hack/pkg/binaries"
	"kubernetes-dra/hack/pkg/image"
	"kubernetes-dra/hack/pkg/lockfile"
)

// Registry is the one that upstream's images are named after. kind and kubeadm
// look for images under the names of this registry unless they are told
// another one.
const Registry = "registry.k8s.io"

// Architectures are those of a release.
var Architectures = []string{"amd64", "arm64"}

// components are the binaries that are published as an image, too.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"}

// sumsFile has the SHA-512 sums, for sha512sum --check.
const sumsFile = "SHA512SUMS"

// Options say what is released.
type Options struct {
	// Build is what the binaries are built from. Bin is the folder for those of
	// this machine's architecture; others have one beside it, whose name ends with
	// the architecture. Names, Arch and Debug are set here.
	Build binaries.Options
	// Output is the folder of the release.
	Output string
	// Architectures are some of [Architectures]; all if there are none.
	Architectures []string
	// Gates are the feature gates that the configurations turn on.
	Gates []string
	// RuntimeConfig are the APIs that the API server does not serve unless it
	// is told to.
	RuntimeConfig []string
	// IgnoredPreflightErrors are checks of kubeadm that fail on every machine.
	IgnoredPreflightErrors []string
	// StandIns are the staging modules of the tree which are not at the version of
	// the release.
	StandIns []StandIn
	// ProxyBase is what the image of kube-proxy has beside kube-proxy: the
	// programs that it executes.
	ProxyBase func(ctx context.Context, arch string) (*ProxyBase, error)
}

// StandIn is a staging module at another version than that of the release.
type StandIn struct {
	// Module is its path, Version the one that is taken, and Sum that of go.sum.
	Module, Version, Sum string
	// For is the version which it stands in for, Why it is as good.
	For, Why string
}

// Build makes a release. It replaces the previous one when it is complete, and
// leaves that alone if there was an error.
func Build(ctx context.Context, o Options) error {
	if len(o.Architectures) == 0 {
		o.Architectures = Architectures
	}
	for _, arch := range o.Architectures {
		if !slices.Contains(Architectures, arch) {
			return fmt.Errorf("no releases are made for architecture %q, only for %s", arch, strings.Join(Architectures, ", "))
		}
	}
	if o.Build.Dirty {
		return fmt.Errorf("%s has edits: a release is made from what is committed; take them into the overlay with make save, or undo them with git in the tree", o.Build.Tree)
	}
	if o.ProxyBase == nil {
		return errors.New("nothing says what the image of kube-proxy has beside kube-proxy")
	}
	unlock, err := lockfile.Lock(ctx, o.Output+".lock", func() { o.Build.Log("waiting for another build of %s", o.Output) })
	if err != nil {
		return err
	}
	defer unlock()
	fresh := o.Output + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	for _, arch := range o.Architectures {
		if err := o.server(ctx, fresh, arch); err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
	}
	for name, write := range map[string]func() ([]byte, error){"kind.yaml": o.kindConfig, "kubeadm.yaml": o.kubeadmConfig} {
		content, err := write()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o644); err != nil {
			return err
		}
	}
	if err := writeSums(fresh); err != nil {
		return err
	}
	if err := os.RemoveAll(o.Output); err != nil {
		return err
	}
	return os.Rename(fresh, o.Output)
}

// bin is where the binaries of an architecture are: for this machine's where all
// others look for them, too.
func (o Options) bin(arch string) string {
	if arch == runtime.GOARCH {
		return o.Build.Bin
	}
	return o.Build.Bin + "-" + arch
}

// TarballName is that of the server tarball.
func TarballName(arch string) string { return "kubernetes-server-linux-" + arch + ".tar.gz" }

// ImageTag is the tag of images of a version: + is not allowed there. kubeadm
// does the same.
func ImageTag(version string) string { return strings.ReplaceAll(version, "+", "_") }

// server makes the tarball of an architecture and its bill of materials.
func (o Options) server(ctx context.Context, dir, arch string) error {
	build := o.Build
	build.Names, build.Arch, build.Debug = binaries.Names, arch, false
	build.Bin = o.bin(arch)
	if err := binaries.Build(ctx, build); err != nil {
		return err
	}
	start := time.Now()
	images, err := os.MkdirTemp(dir, ".images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(images)

	modules, err := modulesOf(build.Bin, build.Names)
	if err != nil {
		return err
	}
	c := &contents{}
	c.add("kubernetes/version", entry{text: []byte(build.Version + "\n")})
	if err := c.addLicences(ctx, build.Tree, modules); err != nil {
		return err
	}
	for _, name := range build.Names {
		c.add(binaryPath(name), entry{source: filepath.Join(build.Bin, name), executable: true})
	}
	base, err := o.ProxyBase(ctx, arch)
	if err != nil {
		return fmt.Errorf("base of kube-proxy's image: %w", err)
	}
	for _, name := range components {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		archive := filepath.Join(images, name+".tar")
		if err := o.image(name, arch, base).Write(ctx, archive); err != nil {
			return err
		}
		c.add(binaryPath(name)+".tar", entry{source: archive})
		c.add(binaryPath(name)+".docker_tag", entry{text: []byte(ImageTag(build.Version) + "\n")})
	}
	tarball := filepath.Join(dir, TarballName(arch))
	sum, err := c.write(ctx, tarball, build.Date)
	if err != nil {
		return err
	}
	bill, err := c.bill(TarballName(arch), sum, modules, base.Packages, o.StandIns, build)
	if err != nil {
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(tarball, ".tar.gz")+".spdx.json", bill, 0o644); err != nil {
		return err
	}
	o.Build.Log("%s: %d images, %d binaries in %s", TarballName(arch), len(components), len(build.Names), time.Since(start).Round(time.Second))
	return nil
}

// binaryPath is where a binary is in the tarball.
func binaryPath(name string) string { return "kubernetes/server/bin/" + name }

// image is that of a component, under two names: with the architecture as in upstream's
// tarballs, and without it, which is what kubeadm wants.
func (o Options) image(name, arch string, base *ProxyBase) image.Image {
	program := "/usr/local/bin/" + name
	repository, tag := Registry+"/"+name, ":"+ImageTag(o.Build.Version)
	var below v1.Image
	if name == proxy {
		below = base.Image
	}
	return image.Image{
		Base:       below,
		Names:      []string{repository + "-" + arch + tag, repository + tag},
		Programs:   map[string]string{program: filepath.Join(o.bin(arch), name)},
		Files:      map[string][]byte{authoritiesFile: authorities()},
		Entrypoint: []string{program},
		Arch:       arch,
	}
}

// writeSums writes the sums of all files in a folder.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		sum, err := sumFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}

func sumFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
