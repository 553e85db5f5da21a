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

package release

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"kubernetes-dra/hack/pkg/dist/debian"
)

// The base comes with what the bill of materials says about it.
func TestDebianBase(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb on this machine")
	}
	const version = "1:1.3.dfsg+really1.3.1-1~b1"
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	writeFile(t, filepath.Join(root, "DEBIAN/control"), "Package: libnft++6\nVersion: "+version+"\nArchitecture: all\nMaintainer: nobody\nDescription: a package\n")
	writeFile(t, filepath.Join(root, "usr/share/doc/libnft++6/copyright"), "licence")
	writeFile(t, filepath.Join(root, "usr/sbin/nft"), "program")
	// dpkg-deb wants the usual permissions, whatever the umask is.
	if err := os.Chmod(filepath.Join(root, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "nft.deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", root, made).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content := readFile(t, made)
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	writeFile(t, filepath.Join(dir, "debian", sum+".deb"), string(content))
	lock := filepath.Join(dir, "lock")
	writeFile(t, lock, "suite: trixie\nroots: {nft: wanted}\npackages:\n  arm64:\n"+
		"  - {name: libnft++6, version: \""+version+"\", architecture: all, path: pool/nft.deb, sha256: "+sum+"}\n")
	get, err := DebianBase(lock, debian.Apt{Cache: dir})
	if err != nil {
		t.Fatal(err)
	}
	base, err := get(t.Context(), "arm64")
	if err != nil {
		t.Fatal(err)
	}
	if got := fileOf(t, base.Image, "usr/sbin/nft"); got != "program" {
		t.Errorf("nft is %q", got)
	}
	want := []BasePackage{{
		Name: "libnft++6", Version: version, SHA256: sum, Supplier: "Debian",
		PURL: "pkg:deb/debian/libnft%2B%2B6@1:1.3.dfsg%2Breally1.3.1-1~b1?arch=all&distro=trixie",
	}}
	if !slices.Equal(base.Packages, want) {
		t.Errorf("got %+v, want %+v", base.Packages, want)
	}
	if _, err := get(t.Context(), "amd64"); err == nil || !strings.Contains(err.Error(), "no packages for amd64") {
		t.Errorf("got %v", err)
	}
	if _, err := DebianBase(lock+"-gone", debian.Apt{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// fileOf is the content of a file of an image.
func fileOf(t *testing.T, img v1.Image, file string) string {
	t.Helper()
	for r := tar.NewReader(mutate.Extract(img)); ; {
		header, err := r.Next()
		if err != nil {
			t.Fatalf("no %s in the image: %v", file, err)
		}
		if filepath.Clean(header.Name) == file {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
	}
}

// Of an image for several architectures it is the right one, and an image for
// another one is refused.
func TestRegistryBase(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/distroless/iptables"
	index := v1.ImageIndex(empty.Index)
	images := map[string]v1.Hash{}
	for _, arch := range Architectures {
		img, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: arch}); err != nil {
			t.Fatal(err)
		}
		if images[arch], err = img.Digest(); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	tag, err := name.NewTag(repository + ":1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	all, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	get, err := RegistryBase(repository + "@" + all.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range Architectures {
		base, err := get(t.Context(), arch)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := base.Image.Digest(); err != nil || got != images[arch] {
			t.Errorf("%s: got %v, %v, want %v", arch, got, err, images[arch])
		}
		want := "pkg:oci/iptables@sha256%3A" + all.Hex + "?arch=" + arch + "&repository_url="
		if len(base.Packages) != 1 || base.Packages[0].SHA256 != all.Hex || !strings.HasPrefix(base.Packages[0].PURL, want) {
			t.Errorf("got %+v, want %s", base.Packages, want)
		}
	}
	if get, err = RegistryBase(repository + "@" + images["arm64"].String()); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), "amd64"); err == nil || !strings.Contains(err.Error(), "is for arm64") {
		t.Errorf("got %v", err)
	}
	if get, err = RegistryBase(repository + "@sha256:" + strings.Repeat("0", 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), "amd64"); err == nil || !strings.Contains(err.Error(), "MANIFEST_UNKNOWN") {
		t.Errorf("got %v", err)
	}
	if _, err := RegistryBase(repository + ":1"); err == nil || !strings.Contains(err.Error(), "must be pinned") {
		t.Errorf("got %v", err)
	}
}
