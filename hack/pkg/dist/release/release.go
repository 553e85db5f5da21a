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
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/dist/image"
)

// Registry is the one that upstream's images are named after. kind and kubeadm
// look for images under the names of this registry unless they are told
// another one.
const Registry = "registry.k8s.io"

// Architectures are those of a release.
var Architectures = []string{"amd64", "arm64"}

// proxy executes other programs, all other components do everything themselves.
const proxy = "kube-proxy"

// components are the binaries that are published as an image, too.
var components = []string{"kube-apiserver", "kube-controller-manager", proxy, "kube-scheduler"}

const (
	// UntestedFile is part of a release whose tree is not the tested one.
	UntestedFile = "UNTESTED"
	// sumsFile has the SHA-512 sums, for sha512sum --check.
	sumsFile = "SHA512SUMS"
	// policiesFile has the policies and roles for administrators.
	policiesFile = "policies.yaml"
	// binDir is the folder of a tarball with binaries and images.
	binDir = "kubernetes/server/bin/"
)

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
	// Addons are programs of this repository that the release has beside Kubernetes.
	Addons []Addon
	// Policies is a folder with a kustomization: what administrators apply.
	Policies string
	// Modules are those for Go programs.
	Modules GoModules
	// Plugin is that of kubectl, nil if there is none.
	Plugin *Plugin
	// Untested says why the tree is not the one that its tests passed on, if it is not.
	Untested string
}

// StandIn is a staging module at another version than that of the release.
type StandIn struct {
	// Module is its path, Version the one that is taken, and Sum that of go.sum.
	Module, Version, Sum string
	// For is the version which it stands in for, Why it is as good.
	For, Why string
}

// Committed refuses a tree with edits.
func Committed(build binaries.Options) error {
	if build.Dirty {
		return fmt.Errorf("%s has edits: a release is made from what is committed; take them into the overlay with make save, or undo them with git in the tree", build.Tree)
	}
	return nil
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
	if err := Committed(o.Build); err != nil {
		return err
	}
	return replace(ctx, o.Output, o.Build.Log, func(fresh string) error { return o.write(ctx, fresh) })
}

// write makes the files of a release.
func (o Options) write(ctx context.Context, fresh string) error {
	for _, arch := range o.Architectures {
		if err := o.server(ctx, fresh, arch); err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
		for _, addon := range o.Addons {
			if err := addon.image(ctx, fresh, arch, o.Build); err != nil {
				return fmt.Errorf("linux/%s: %w", arch, err)
			}
		}
	}
	for _, addon := range o.Addons {
		if err := writeManifests(filepath.Join(fresh, addon.name()+".yaml"), filepath.Join(addon.Dir, addon.Manifests), addon.Image); err != nil {
			return err
		}
	}
	if err := writeManifests(filepath.Join(fresh, policiesFile), o.Policies, ""); err != nil {
		return err
	}
	if o.Plugin != nil {
		if err := o.Plugin.write(ctx, o, fresh); err != nil {
			return err
		}
	}
	if err := o.Modules.archive(ctx, fresh); err != nil {
		return err
	}
	if err := o.configurations(fresh); err != nil {
		return err
	}
	if o.Untested != "" {
		if err := os.WriteFile(filepath.Join(fresh, UntestedFile), []byte(o.Untested+"\n"), 0o644); err != nil {
			return err
		}
	}
	return writeSums(fresh)
}

// server makes the tarball of an architecture and its bill of materials.
func (o Options) server(ctx context.Context, dir, arch string) error {
	build := o.Build
	build.Names, build.Arch, build.Debug = binaries.Names, arch, false
	if arch != runtime.GOARCH {
		// Those of this machine's are where all others look for them, too.
		build.Bin += "-" + arch
	}
	root, err := os.MkdirTemp(dir, ".server-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	start := time.Now()
	b := &bill{name: TarballName(arch), root: root, bin: binDir, source: "git tree at commit " + build.Commit, build: build, standIns: o.StandIns}
	for _, stage := range []func() error{
		func() error { return binaries.Build(ctx, build) },
		func() (err error) { b.modules, err = modulesOf(build.Bin, build.Names); return err },
		func() error { return copyLicences(ctx, root, build.Tree, b.modules) },
		func() error { return copyBinaries(root, build) },
		func() (err error) { b.packages, err = o.images(ctx, root, build); return err },
		func() (err error) {
			b.sum, err = writeTarball(ctx, filepath.Join(dir, b.name), root, build.Date)
			return err
		},
		func() error { return b.write(dir) },
	} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := stage(); err != nil {
			return err
		}
	}
	o.Build.Log("%s: %d images, %d binaries in %s", b.name, len(components), len(build.Names), time.Since(start).Round(time.Second))
	return nil
}

// TarballName is that of the server tarball.
func TarballName(arch string) string { return "kubernetes-server-linux-" + arch + ".tar.gz" }

// copyBinaries puts the binaries, and the version, in their place.
func copyBinaries(root string, build binaries.Options) error {
	err := errors.Join(os.MkdirAll(filepath.Join(root, binDir), 0o755), os.WriteFile(filepath.Join(root, "kubernetes/version"), []byte(build.Version+"\n"), 0o644))
	for _, name := range build.Names {
		err = errors.Join(err, place(filepath.Join(build.Bin, name), filepath.Join(root, binDir, name)))
	}
	return err
}

// place puts a file into the folder of a tarball, by a symbolic link that nobody sees in the end.
func place(from, to string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(from, to))
}

// images makes the images of components, and returns what is in that of kube-proxy beside kube-proxy. Each
// has two names: with the architecture as in upstream's tarballs, and without it, which is what kubeadm wants.
func (o Options) images(ctx context.Context, root string, build binaries.Options) ([]BasePackage, error) {
	if o.ProxyBase == nil {
		return nil, errors.New("nothing says what the image of kube-proxy has beside kube-proxy")
	}
	base, err := o.ProxyBase(ctx, build.Arch)
	if err != nil {
		return nil, fmt.Errorf("base of kube-proxy's image: %w", err)
	}
	// A plus sign is not allowed in a tag. kubeadm does the same.
	tag := strings.ReplaceAll(build.Version, "+", "_")
	for _, name := range components {
		program, repository, archive := "/usr/local/bin/"+name, Registry+"/"+name, filepath.Join(root, binDir, name)
		i := image.Image{
			Names:      []string{repository + "-" + build.Arch + ":" + tag, repository + ":" + tag},
			Programs:   map[string]string{program: filepath.Join(build.Bin, name)},
			Files:      map[string][]byte{"/etc/ssl/certs/ca-certificates.crt": authorities()},
			Entrypoint: []string{program},
			Arch:       build.Arch,
		}
		if name == proxy {
			i.Base = base.Image
		}
		if err := errors.Join(i.Write(ctx, archive+".tar"), os.WriteFile(archive+".docker_tag", []byte(tag+"\n"), 0o644)); err != nil {
			return nil, err
		}
	}
	return base.Packages, nil
}

// writeTarball makes an archive of a folder, and returns its SHA-512 sum. Order, owners, modes and times
// are always the same: the umask does not count.
func writeTarball(ctx context.Context, archive, root string, date time.Time) (sum string, err error) {
	f, err := os.Create(archive)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha512.New()
	z := gzip.NewWriter(io.MultiWriter(f, h))
	w := tar.NewWriter(z)
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, ModTime: date.UTC().Truncate(time.Second), Uname: "root", Gname: "root", Format: tar.FormatGNU}
		header.Name, _ = filepath.Rel(root, file)
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if d.IsDir() {
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
			header.Name += "/"
			return w.WriteHeader(header)
		}
		header.Size = info.Size()
		if info.Mode()&0o100 != 0 {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		return copyTo(w, file)
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeSums writes the sums of all files in a folder.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		_, sum, err := sumsOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}

// sumsOf returns the SHA-1 sum, for which SPDX asks, and the SHA-512 sum.
func sumsOf(file string) (short, long string, err error) {
	a, b := sha1.New(), sha512.New()
	err = copyTo(io.MultiWriter(a, b), file)
	return hex.EncodeToString(a.Sum(nil)), hex.EncodeToString(b.Sum(nil)), err
}

func copyTo(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
