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
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/debian"
	"kubernetes-dra/hack/pkg/image"
)

// The base comes with what the bill of materials says about it.
func TestDebianBase(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb on this machine")
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	writeFile(t, filepath.Join(root, "DEBIAN/control"), "Package: nft\nVersion: 1.1\nArchitecture: all\nMaintainer: nobody\nDescription: a package\n")
	writeFile(t, filepath.Join(root, "usr/share/doc/nft/copyright"), "licence")
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
	lock := debian.Lock{
		Suite: "trixie", Snapshot: "20260913T075541Z", Roots: []debian.Choice{{Name: "nft", Reason: "wanted"}},
		Packages: map[string][]debian.Package{"arm64": {{
			Name: "nft", Version: "1.1", Architecture: "all", Path: "pool/nft.deb", Size: int64(len(content)), SHA256: sum,
		}}},
	}
	name := filepath.Join(dir, "lock")
	if err := lock.Write(name); err != nil {
		t.Fatal(err)
	}
	get, err := DebianBase(name, debian.Source{Cache: dir})
	if err != nil {
		t.Fatal(err)
	}
	base, err := get(t.Context(), "arm64")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(base.Files, func(f image.File) bool { return f.Path == "/usr/sbin/nft" && string(f.Content) == "program" }) {
		t.Errorf("no nft in %+v", base.Files)
	}
	want := []DebianPackage{{
		Package: lock.Packages["arm64"][0],
		PURL:    "pkg:deb/debian/nft@1.1?arch=all&distro=trixie",
		URL:     "https://snapshot.debian.org/archive/debian/20260913T075541Z/pool/nft.deb",
	}}
	if !slices.Equal(base.Packages, want) {
		t.Errorf("got %+v, want %+v", base.Packages, want)
	}
	if _, err := get(t.Context(), "amd64"); err == nil || !strings.Contains(err.Error(), "no packages for amd64") {
		t.Errorf("got %v", err)
	}
	if _, err := DebianBase(name+"-gone", debian.Source{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
