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

package nodeimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeDocker stands in for the docker client: it writes down how it was called,
// and does what the files in its folder say.
const fakeDocker = `#!/bin/sh
cd "${0%/*}" || exit
echo "docker $*" >>calls
fail() { echo "a warning" >&2; echo "$1" >&2; exit 1; }
case "$1" in
version) [ -e engine ] || fail "Cannot connect to the Docker daemon at unix:///run/fake.sock."; cat engine ;;
image) cat base 2>/dev/null || fail "No such image" ;;
pull) [ -e registry ] || fail "no route to the registry"; echo "pulled a layer" ;;
run) [ -e emulator ] || fail "exec format error" ;;
rm) ;;
save) [ ! -e full ] || fail "no space left on device" ;;
*) fail "the test does not know docker $1" ;;
esac
`

// fakeKind stands in for kind in the same way.
const fakeKind = `#!/bin/sh
cd "${0%/*}" || exit
echo "kind $*" >>calls
case "$*" in
*--help) cat help; exit ;;
esac
echo "$TMPDIR" >tmpdir
mkdir "$TMPDIR/k8s-tar-extract-1"
echo "Building in container: kind-build-1-2"
[ ! -e hang ] || exec sleep 600
if [ -e failure ]; then cat failure >&2; exit 1; fi
`

const kindHelp = `Usage:
  kind build node-image [kubernetes-source] [flags]

Flags:
      --arch string         architecture to build for, defaults to the host architecture
      --base-image string   name:tag of the base image to use for the build (default "docker.io/kindest/base:v1")
      --image string        name:tag of the resulting image to be built (default "kindest/node:latest")
`

func writeTarball(t *testing.T, name, version string) {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, file := range [][2]string{{"./kubernetes/server/bin/kubeadm", "program"}, {"./kubernetes/version", version + "\n"}} {
		err := w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1])), Typeflag: tar.TypeReg})
		if _, writeErr := io.WriteString(w, file[1]); errors.Join(err, writeErr) != nil {
			t.Fatal(err, writeErr)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, name, b.String(), 0o644)
}

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// machine has everything: an engine with the base image, and a tarball. dir is
// the folder of the programs.
func machine(t *testing.T) (o Options, dir string, output *bytes.Buffer) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "docker"), fakeDocker, 0o755)
	write(t, filepath.Join(dir, "kind"), fakeKind, 0o755)
	write(t, filepath.Join(dir, "help"), kindHelp, 0o644)
	write(t, filepath.Join(dir, "engine"), "amd64\n", 0o644)
	write(t, filepath.Join(dir, "base"), "amd64\n", 0o644)
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	output = &bytes.Buffer{}
	o = Options{
		Release: "1.36",
		Tarball: filepath.Join(t.TempDir(), "kubernetes-server-linux-amd64.tar.gz"),
		Version: "v1.36.3+dra.1",
		Arch:    "amd64",
		Image:   "example.com/node:1",
		Kind:    func(context.Context) (string, error) { return filepath.Join(dir, "kind"), nil },
		Scratch: t.TempDir(),
		Output:  output,
		Log:     func(string, ...any) {},
	}
	writeTarball(t, o.Tarball, o.Version)
	return o, dir, output
}

// calls are how the programs were called.
func calls(t *testing.T, dir string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// checkClean checks that kind had a folder for temporary files, and that nothing is
// left in there.
func checkClean(t *testing.T, o Options, dir string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "tmpdir"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(content)); filepath.Dir(got) != o.Scratch {
		t.Errorf("kind got %q for temporary files, which is not in %s", got, o.Scratch)
	}
	entries, err := os.ReadDir(o.Scratch)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("left in the folder for temporary files: %v", entries)
	}
}

func TestBuild(t *testing.T) {
	o, dir, output := machine(t)
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docker version --format {{.Server.Arch}}",
		"kind build node-image --help",
		"docker image inspect --format {{.Architecture}} docker.io/kindest/base:v1",
		"kind build node-image --type=file --arch=amd64 --image=example.com/node:1 --base-image=docker.io/kindest/base:v1 " + o.Tarball,
	}
	if got := calls(t, dir); !slices.Equal(got, want) {
		t.Errorf("got calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(output.String(), "Building in container") {
		t.Errorf("what kind says is not shown: %q", output)
	}
	checkClean(t, o, dir)
}

// TestBaseImages covers other base images, and those that have to be pulled.
func TestBaseImages(t *testing.T) {
	o, dir, _ := machine(t)
	o.BaseImage, o.Arch = "example.com/base:2", "arm64"
	for _, name := range []string{"registry", "emulator"} {
		write(t, filepath.Join(dir, name), "", 0o644)
	}
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docker version --format {{.Server.Arch}}",
		"docker image inspect --format {{.Architecture}} example.com/base:2",
		"docker pull --quiet --platform=linux/arm64 example.com/base:2",
		"docker run --rm --platform=linux/arm64 --entrypoint=true example.com/base:2",
		"kind build node-image --type=file --arch=arm64 --image=example.com/node:1 --base-image=example.com/base:2 " + o.Tarball,
	}
	if got := calls(t, dir); !slices.Equal(got, want) {
		t.Errorf("got calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMissing(t *testing.T) {
	remove := func(t *testing.T, elem ...string) {
		t.Helper()
		if err := os.Remove(filepath.Join(elem...)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		prepare func(t *testing.T, o *Options, dir string)
		// want is a part of the error.
		want string
		// built is true if kind was to try.
		built bool
	}{
		"no client":                    {func(t *testing.T, _ *Options, _ string) { t.Setenv("PATH", t.TempDir()) }, "no docker client in PATH", false},
		"no engine":                    {func(t *testing.T, _ *Options, dir string) { remove(t, dir, "engine") }, "no Docker engine answers", false},
		"no tarball":                   {func(t *testing.T, o *Options, _ string) { remove(t, o.Tarball) }, "no such file", false},
		"what to do without a tarball": {func(t *testing.T, o *Options, _ string) { remove(t, o.Tarball) }, "make release RELEASE=1.36", false},
		"damaged tarball":              {func(t *testing.T, o *Options, _ string) { write(t, o.Tarball, "not zipped", 0o644) }, "gzip", false},
		"other tarball":                {func(t *testing.T, o *Options, _ string) { writeTarball(t, o.Tarball, "v1.36.3") }, `has version "v1.36.3", and this is v1.36.3+dra.1`, false},
		"neither tarball nor engine": {func(t *testing.T, o *Options, dir string) {
			remove(t, o.Tarball)
			remove(t, dir, "engine")
		}, "no such file or directory: build it with make release RELEASE=1.36\nno Docker engine answers", false},
		"no base image":                      {func(t *testing.T, _ *Options, dir string) { remove(t, dir, "base") }, "no route to the registry", false},
		"base image of another architecture": {func(t *testing.T, o *Options, _ string) { o.Arch = "arm64" }, "for arm64, and it could not be pulled", false},
		"no emulation": {func(t *testing.T, o *Options, dir string) {
			o.Arch = "arm64"
			write(t, filepath.Join(dir, "base"), "arm64\n", 0o644)
		}, "is on amd64 and does not run programs for arm64", false},
		"kind without a base image": {func(t *testing.T, _ *Options, dir string) { write(t, filepath.Join(dir, "help"), "Usage:\n", 0o644) }, "does not say what its base image is", false},
		"kind cannot be built": {func(_ *testing.T, o *Options, _ string) {
			o.Kind = func(context.Context) (string, error) { return "", errors.New("no module proxy") }
		}, "no module proxy", false},
		"no registries": {func(t *testing.T, _ *Options, dir string) {
			write(t, filepath.Join(dir, "failure"), "Failed to pull registry.k8s.io/etcd:3 with error: x\n", 0o644)
		}, "HTTPS_PROXY", true},
		"kind fails": {func(t *testing.T, _ *Options, dir string) {
			write(t, filepath.Join(dir, "failure"), "ERROR: no space left\n", 0o644)
		}, "kind build node-image: exit status 1; it said why above", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, dir, output := machine(t)
			test.prepare(t, &o, dir)
			err := Build(t.Context(), o)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q is not in the error:\n%v", test.want, err)
			}
			if built := strings.Contains(output.String(), "Building in container"); built != test.built {
				t.Errorf("kind built an image: %v, want %v", built, test.built)
			}
			if test.built {
				checkClean(t, o, dir)
			}
		})
	}
}

// stopper cancels as soon as kind says that it has a container.
type stopper struct{ cancel context.CancelCauseFunc }

func (s stopper) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("Building in container")) {
		s.cancel(errStopped)
	}
	return len(p), nil
}

var errStopped = errors.New("stopped by the test")

func TestStop(t *testing.T) {
	o, dir, _ := machine(t)
	write(t, filepath.Join(dir, "hang"), "", 0o644)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	o.Output = stopper{cancel}
	if err := Build(ctx, o); !errors.Is(err, errStopped) {
		t.Errorf("got %v", err)
	}
	if got := calls(t, dir); !slices.Contains(got, "docker rm --force --volumes kind-build-1-2") {
		t.Errorf("the container of kind was not removed: %q", got)
	}
	if entries, err := os.ReadDir(o.Scratch); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder for temporary files: %v, %v", entries, err)
	}
}

func TestFile(t *testing.T) {
	o, dir, _ := machine(t)
	o.File = "/images/node.tar"
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if all := calls(t, dir); all[len(all)-1] != "docker save --output /images/node.tar example.com/node:1" {
		t.Errorf("got calls %q", all)
	}
	write(t, filepath.Join(dir, "full"), "", 0o644)
	want := "example.com/node:1 is built, but not saved to /images/node.tar"
	if err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("want an error with %q, got %v", want, err)
	}
}

func TestDefaultImage(t *testing.T) {
	if got, want := DefaultImage("v1.36.3+dra.1"), "kubernetes-dra/node:v1.36.3-dra.1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
