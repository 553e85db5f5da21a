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
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	spdxjson "github.com/spdx/tools-golang/json"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"golang.org/x/crypto/x509roots/fallback/bundle"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/dist/image"
)

// newOptions is a release of a tree whose programs do next to nothing. They have
// two modules: one of the tree, and one that this repository needs anyway.
func newOptions(t *testing.T) Options {
	t.Helper()
	tree := t.TempDir()
	const dependency = "golang.org/x/mod v0.39.0"
	var sums strings.Builder
	content, err := os.ReadFile("../../../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, dependency) {
			sums.WriteString(line)
		}
	}
	files := map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire " + dependency +
			"\nrequire k8s.io/api v0.0.0\n\nreplace k8s.io/api => ./staging/src/k8s.io/api\n",
		"go.sum":                        sums.String(),
		"LICENSE":                       "licence of Kubernetes\n",
		"staging/src/k8s.io/api/go.mod": "module k8s.io/api\n\ngo 1.26.0\n",
		"staging/src/k8s.io/api/api.go": "package api\n",
	}
	files["deploy/kustomization.yaml"] = "resources: [pod.yaml]\n"
	files["deploy/pod.yaml"] = "apiVersion: v1\nkind: Pod\nmetadata: {name: addon}\nspec:\n  containers:\n  - {name: addon, image: \"example.com/addon:v1\"}\n"
	files["policies/kustomization.yaml"] = "resources: [role.yaml]\n"
	files["policies/role.yaml"] = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: role}\n"
	for _, name := range append([]string{"addon", "kubectl-test"}, binaries.Names...) {
		files["cmd/"+name+"/main.go"] = "package main\n\nimport (\n\t\"golang.org/x/mod/semver\"\n\t_ \"k8s.io/api\"\n)\n\nfunc main() { println(\"" + name + "\", semver.Major(\"v1\")) }\n"
	}
	for name, content := range files {
		writeFile(t, filepath.Join(tree, name), content)
	}
	return Options{
		Build: binaries.Options{
			Tree:    tree,
			Bin:     filepath.Join(t.TempDir(), "bin"),
			LogFile: filepath.Join(t.TempDir(), "build.log"),
			Version: "v1.36.3+dra.1",
			Commit:  "0123456789",
			Date:    time.Date(2026, 7, 22, 18, 7, 38, 0, time.UTC),
			Log:     t.Logf,
		},
		Output:        filepath.Join(t.TempDir(), "release"),
		Gates:         []string{"A", "B"},
		RuntimeConfig: []string{"example.com/v1=true", "example.com/v2=true"},

		IgnoredPreflightErrors: []string{"C"},
		StandIns:               []StandIn{{Module: "k8s.io/api", Version: "v0.36.2", Sum: "h1:12=", For: "v0.36.3", Why: "the same source"}},
		ProxyBase:              newBase,
		Policies:               filepath.Join(tree, "policies"),
		Modules:                GoModules{Tree: tree, Paths: []string{"k8s.io/api"}, Version: "v0.36.3-dra.1", Date: time.Unix(0, 0)},
		Plugin:                 &Plugin{Dir: tree, Package: "./cmd/kubectl-test", Systems: []string{"linux", "windows"}, Short: "Tests", Homepage: "https://example.com"},
		Addons:                 []Addon{{Dir: tree, Package: "./cmd/addon", Image: "example.com/addon:v1", Manifests: "deploy"}},
	}
}

// newBase has a program for each architecture, and one of its two packages is the
// same for both.
func newBase(_ context.Context, arch string) (*ProxyBase, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	nft := "nft for " + arch
	err := w.WriteHeader(&tar.Header{Name: "usr/sbin/nft", Mode: 0o755, Size: int64(len(nft)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write([]byte(nft))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	img, err := image.FromTar(content.Bytes())
	return &ProxyBase{Image: img, Packages: []BasePackage{
		{Name: "netbase", Version: "6.5", SHA256: "12", PURL: "pkg:deb/netbase"},
		{Name: "nftables", Version: "1.1.3-1", SHA256: "34", Supplier: "Debian", PURL: "pkg:deb/nftables-" + arch},
	}}, err
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, elem ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack returns the entries of a tarball, and their order. Their contents go into
// a folder.
func unpack(t *testing.T, archive, dir string) (headers map[string]*tar.Header, order []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(readFile(t, archive)))
	if err != nil {
		t.Fatal(err)
	}
	headers = map[string]*tar.Header{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, order
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name] = header
		order = append(order, header.Name)
		if header.Typeflag == tar.TypeReg {
			writeFile(t, filepath.Join(dir, header.Name), string(content))
		}
	}
}

func TestBuild(t *testing.T) {
	o := newOptions(t)
	o.Architectures = []string{"amd64"}
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(o.Output, UntestedFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a tested release says that it is not: %v", err)
	}
	o.Architectures, o.Untested = nil, "because"
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if why := readFile(t, o.Output, UntestedFile); string(why) != "because\n" {
		t.Errorf("got %q", why)
	}
	// The tree, the programs and the release are elsewhere.
	again := newOptions(t)
	again.Untested = o.Untested
	if err := Build(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	var files []string
	entries, err := os.ReadDir(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files = append(files, e.Name())
		if !bytes.Equal(readFile(t, o.Output, e.Name()), readFile(t, again.Output, e.Name())) {
			t.Errorf("%s has other bytes when it is built again", e.Name())
		}
	}
	want := []string{
		"SHA512SUMS", "UNTESTED", "addon-linux-amd64.spdx.json", "addon-linux-amd64.tar", "addon-linux-arm64.spdx.json", "addon-linux-arm64.tar", "addon.yaml", "kind.yaml", "kubeadm.yaml",
		"kubectl-test-linux-amd64.spdx.json", "kubectl-test-linux-amd64.tar.gz", "kubectl-test-linux-arm64.spdx.json", "kubectl-test-linux-arm64.tar.gz",
		"kubectl-test-windows-amd64.spdx.json", "kubectl-test-windows-amd64.tar.gz", "kubectl-test-windows-arm64.spdx.json", "kubectl-test-windows-arm64.tar.gz", "kubernetes-go-modules.tar.gz", "kubernetes-server-linux-amd64.spdx.json", "kubernetes-server-linux-amd64.tar.gz",
		"kubernetes-server-linux-arm64.spdx.json", "kubernetes-server-linux-arm64.tar.gz", "policies.yaml", "test.yaml",
	}
	if !slices.Equal(files, want) {
		t.Errorf("got files %q, want %q", files, want)
	}
	check := exec.Command("sha512sum", "--check", "--strict", sumsFile)
	check.Dir = o.Output
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(want)-1 {
		t.Errorf("sha512sum: %v: %s", err, out)
	}
	for arch, machine := range map[string]string{"amd64": "Advanced Micro Devices X86-64", "arm64": "AArch64"} {
		t.Run(arch, func(t *testing.T) { checkTarball(t, o, arch, machine) })
		files := imageFiles(t, filepath.Join(o.Output, "addon-linux-"+arch+".tar"), "example.com/addon:v1", arch, "/addon")
		for _, want := range []string{"addon", "LICENSES/LICENSE", "LICENSES/vendor/golang.org/x/mod/LICENSE"} {
			if len(files[want]) == 0 {
				t.Errorf("the addon for %s has no %s", arch, want)
			}
		}
	}
	checkPlugin(t, o.Output)
	if text := string(readFile(t, o.Output, "addon.yaml")); !strings.Contains(text, "image: example.com/addon:v1\n") {
		t.Errorf("got manifest %s", text)
	}
	if text := string(readFile(t, o.Output, policiesFile)); !strings.Contains(text, "kind: ClusterRole\n") {
		t.Errorf("got policies %s", text)
	}
	if left, err := filepath.Glob(o.Output + ".*"); err != nil || !slices.Equal(left, []string{o.Output + ".lock"}) {
		t.Errorf("left: %q, %v", left, err)
	}
}

// checkTarball looks at a tarball as kind and people do.
func checkTarball(t *testing.T, o Options, arch, machine string) {
	dir := t.TempDir()
	headers, order := unpack(t, filepath.Join(o.Output, TarballName(arch)), dir)
	bin := filepath.Join(dir, "kubernetes/server/bin")
	want := map[string]int64{
		"kubernetes/": 0o755, "kubernetes/version": 0o644, "kubernetes/LICENSES/": 0o755, "kubernetes/LICENSES/LICENSE": 0o644,
		"kubernetes/LICENSES/vendor/": 0o755, "kubernetes/LICENSES/vendor/golang.org/": 0o755, "kubernetes/LICENSES/vendor/golang.org/x/": 0o755,
		"kubernetes/LICENSES/vendor/golang.org/x/mod/": 0o755, "kubernetes/LICENSES/vendor/golang.org/x/mod/LICENSE": 0o644,
		"kubernetes/LICENSES/vendor/golang.org/x/mod/PATENTS": 0o644,
		"kubernetes/server/": 0o755, "kubernetes/server/bin/": 0o755,
	}
	for _, name := range binaries.Names {
		want["kubernetes/server/bin/"+name] = 0o755
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"} {
		want["kubernetes/server/bin/"+name+".tar"], want["kubernetes/server/bin/"+name+".docker_tag"] = 0o644, 0o644
		checkImage(t, bin, name, arch)
	}
	got := map[string]int64{}
	for name, header := range headers {
		got[name] = header.Mode
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(o.Build.Date) {
			t.Errorf("%s belongs to %d:%d and is of %s", name, header.Uid, header.Gid, header.ModTime)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got entries %v, want %v", got, want)
	}
	for i, name := range order {
		parent := filepath.Dir(strings.TrimSuffix(name, "/")) + "/"
		if parent != "./" && !slices.Contains(order[:i], parent) {
			t.Errorf("%s comes before its folder", name)
		}
	}
	if version := readFile(t, dir, "kubernetes/version"); string(version) != "v1.36.3+dra.1\n" {
		t.Errorf("version: %q", version)
	}
	if out, err := exec.Command("readelf", "--file-header", filepath.Join(bin, "kubelet")).Output(); err == nil && !strings.Contains(string(out), machine) {
		t.Errorf("the kubelet is for another machine than %s:\n%s", machine, out)
	}
	checkBill(t, o, arch, dir, headers)
}

func checkImage(t *testing.T, bin, component, arch string) {
	if tag := readFile(t, bin, component+".docker_tag"); string(tag) != "v1.36.3_dra.1\n" {
		t.Errorf("tag of %s: %q", component, tag)
	}
	for _, repository := range []string{component, component + "-" + arch} {
		tag := "registry.k8s.io/" + repository + ":v1.36.3_dra.1"
		files := imageFiles(t, filepath.Join(bin, component+".tar"), tag, arch, "/usr/local/bin/"+component)
		nft, want := string(files["usr/sbin/nft"]), ""
		if component == "kube-proxy" {
			want = "nft for " + arch
		}
		if nft != want {
			t.Errorf("%s has the nft %q, want %q", tag, nft, want)
		}
		if !bytes.Equal(files["usr/local/bin/"+component], readFile(t, bin, component)) {
			t.Errorf("%s has not the program of the tarball", tag)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) {
			t.Errorf("%s has no certificates", tag)
		}
	}
}

// checkPlugin looks at the archives of the plugin as krew does.
func checkPlugin(t *testing.T, dir string) {
	t.Helper()
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(readFile(t, dir, "test.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Metadata.Name != "test" || manifest.Spec.Version != "v1.36.3-dra.1" || len(manifest.Spec.Platforms) != 4 {
		t.Errorf("got manifest %+v", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		archive := filepath.Join(dir, path.Base(p.URI))
		sum := sha256.Sum256(readFile(t, archive))
		if got := hex.EncodeToString(sum[:]); got != p.SHA256 {
			t.Errorf("%s: %s", archive, got)
		}
		unpacked := t.TempDir()
		headers, _ := unpack(t, archive, unpacked)
		checkProgramBill(t, archive, unpacked, p.Bin)
		program := headers[p.Bin]
		if program == nil || program.Mode != 0o755 || headers["kubernetes/LICENSES/vendor/golang.org/x/mod/LICENSE"] == nil {
			t.Errorf("%v: %v", p.Selector, slices.Collect(maps.Keys(headers)))
		}
	}
}

// checkProgramBill compares the bill of materials of an archive with what is in it.
func checkProgramBill(t *testing.T, archive, unpacked, program string) {
	t.Helper()
	doc := &spdx.Document{}
	if err := spdxjson.ReadInto(bytes.NewReader(readFile(t, strings.TrimSuffix(archive, ".tar.gz")+".spdx.json")), doc); err != nil {
		t.Fatal(err)
	}
	_, sum, err := sumsOf(archive)
	if err != nil || len(doc.Packages) != 2 || doc.Packages[0].PackageChecksums[0].Value != sum || doc.Packages[1].PackageName != "golang.org/x/mod" {
		t.Errorf("%s: want the archive with sum %s, and a module, got %+v, %v", archive, sum, doc.Packages, err)
	}
	found := false
	for _, f := range doc.Files {
		_, sum, err := sumsOf(filepath.Join(unpacked, f.FileName))
		if err != nil || f.Checksums[1].Value != sum || (f.FileTypes[0] == "BINARY") != (f.FileName == "./"+program) {
			t.Errorf("%s: %+v, %v", archive, f, err)
		}
		found = found || f.FileTypes[0] == "BINARY"
	}
	linked := slices.ContainsFunc(doc.Relationships, func(r *spdx.Relationship) bool {
		return r.Relationship == "STATIC_LINK" && r.RefB.ElementRefID == fileID(program)
	})
	if !found || !linked {
		t.Errorf("%s: the program: %t, linked with the module: %t", archive, found, linked)
	}
}

// imageFiles returns what is in an image that is in an archive under a name, for an architecture.
func imageFiles(t *testing.T, archive, tag, arch, entrypoint string) map[string][]byte {
	t.Helper()
	parsed, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &parsed)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != arch || !slices.Equal(config.Config.Entrypoint, []string{entrypoint}) {
		t.Errorf("unexpected configuration of %s: %+v", tag, config)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(mutate.Extract(image)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// checkBill compares the bill of materials with the tarball, which was unpacked into a
// folder.
func checkBill(t *testing.T, o Options, arch, dir string, headers map[string]*tar.Header) {
	doc := &spdx.Document{}
	content := readFile(t, o.Output, "kubernetes-server-linux-"+arch+".spdx.json")
	if err := spdxjson.ReadInto(bytes.NewReader(content), doc); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range doc.Files {
		for _, sum := range f.Checksums {
			if sum.Algorithm == "SHA512" {
				files[strings.TrimPrefix(f.FileName, "./")] = sum.Value
			}
		}
	}
	for name, header := range headers {
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if _, want, err := sumsOf(filepath.Join(dir, name)); err != nil || files[name] != want {
			t.Errorf("sum of %s: got %q, want %q, %v", name, files[name], want, err)
		}
		delete(files, name)
	}
	if len(files) > 0 {
		t.Errorf("the bill has files that are not there: %v", files)
	}
	_, sum, err := sumsOf(filepath.Join(o.Output, TarballName(arch)))
	if sums := doc.Packages[0].PackageChecksums; err != nil || len(sums) != 1 || sums[0].Value != sum {
		t.Errorf("sum of the tarball: got %v, want %q, %v", sums, sum, err)
	}
	ids, users, inImage, sources := map[string]bool{}, 0, 0, 0
	for _, pkg := range doc.Packages {
		ids[string(pkg.PackageSPDXIdentifier)] = true
	}
	for _, f := range doc.Files {
		ids[string(f.FileSPDXIdentifier)] = true
	}
	for _, r := range doc.Relationships {
		for _, end := range []string{string(r.RefA.ElementRefID), string(r.RefB.ElementRefID)} {
			if !ids[end] && end != "DOCUMENT" {
				t.Errorf("a relationship with %s, which does not exist", end)
			}
		}
		switch {
		case r.Relationship == "STATIC_LINK":
			users++
		case r.RefA.ElementRefID == fileID("kubernetes/server/bin/kube-proxy.tar") && r.Relationship == "CONTAINS":
			inImage++
		case r.RefA.ElementRefID == doc.Packages[0].PackageSPDXIdentifier && r.Relationship == "GENERATED_FROM":
			sources++
		}
	}
	if len(ids) != len(doc.Packages)+len(doc.Files) {
		t.Error("two things have the same identifier")
	}
	if len(doc.Packages) != 5 || inImage != 2 || sources != 1 {
		t.Errorf("want 2 packages in kube-proxy's image and a stand-in, got %d and %d:\n%s", inImage, sources, content)
	} else if s := doc.Packages[4]; s.PackageName != "k8s.io/api" || s.PackageVersion != "v0.36.2" ||
		s.PackageComment != "go.sum: h1:12=. It stands in for v0.36.3: the same source" {
		t.Errorf("unexpected stand-in: %+v", s)
	} else if p := doc.Packages[3]; p.PackageName != "nftables" || p.PackageVersion != "1.1.3-1" || p.PackageChecksums[0].Value != "34" ||
		p.PackageSupplier.Supplier != "Debian" || p.PackageExternalReferences[0].Locator != "pkg:deb/nftables-"+arch {
		t.Errorf("unexpected package: %+v", p)
	}
	for _, p := range doc.Packages {
		// Where a package is to be had is in its package URL: no registry has an address here.
		if p.PackageDownloadLocation != unknown {
			t.Errorf("%s has the address %s", p.PackageName, p.PackageDownloadLocation)
		}
	}
	if len(doc.Packages) < 2 || doc.Packages[0].PackageVersion != "v1.36.3+dra.1" ||
		doc.Packages[1].PackageName != "golang.org/x/mod" || doc.Packages[1].PackageVersion != "v0.39.0" || users != len(binaries.Names) {
		t.Errorf("want the release and the one module in all %d binaries, got %d:\n%s", len(binaries.Names), users, content)
	}
}

// A release that cannot be made leaves the former one as it is.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"architecture": {func(o *Options) { o.Architectures = []string{"riscv64"} }, `no releases are made for architecture "riscv64", only for amd64, arm64`},
		"edits":        {func(o *Options) { o.Build.Dirty = true }, "has edits"},
		"compile": {func(o *Options) {
			writeFile(t, filepath.Join(o.Build.Tree, "cmd/kubelet/x.go"), "package main\n\nvar x = y\n")
		}, "undefined: y"},
		"licence": {func(o *Options) {
			if err := os.Remove(filepath.Join(o.Build.Tree, "LICENSE")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"base": {func(o *Options) {
			o.ProxyBase = func(context.Context, string) (*ProxyBase, error) { return nil, errors.New("no nft") }
		}, "linux/amd64: base of kube-proxy's image: no nft"},
		"no base": {func(o *Options) { o.ProxyBase = nil }, "beside kube-proxy"},
		"busy":    {func(o *Options) { o.Output = filepath.Join(o.Build.Tree, "go.mod", "release") }, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions(t)
			o.Architectures = []string{"amd64"}
			writeFile(t, filepath.Join(o.Output, "former"), "")
			former := o.Output
			test.change(&o)
			if err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
			readFile(t, former, "former")
			if _, err := os.Stat(o.Output + ".new"); err == nil {
				t.Error("what was begun is still there")
			}
		})
	}
}

func TestLicences(t *testing.T) {
	for name, want := range map[string]bool{"LICENSE": true, "Licence.md": true, "COPYING": true, "NOTICE": true, "LICENSE-MIT": true, "PATENTS": true,
		"licenses.go": false, "README": false} {
		if got := licenceName.MatchString(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	o := newOptions(t)
	tree := o.Build.Tree
	for want, m := range map[string]module{
		"does not know where": {path: "example.com/unknown", version: "v1.0.0"},
		"has no licence":      {path: "./staging/src/k8s.io/api"},
	} {
		if err := copyLicences(t.Context(), t.TempDir(), tree, []*module{&m}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestElementID(t *testing.T) {
	a, b := elementID("File", "a/b+c"), elementID("File", "a-b-c")
	if a == b || !strings.HasPrefix(string(a), "File-a-b-c-") || !strings.HasPrefix(string(b), "File-a-b-c-") {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestAuthorities(t *testing.T) {
	limited, count := map[string]bool{}, 0
	for root := range bundle.Roots() {
		limited[string(root.Certificate)] = root.Constraint != nil
	}
	for rest := authorities(); len(rest) > 0; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			t.Fatalf("no certificate: %.40q", rest)
		}
		if limited[string(block.Bytes)] {
			t.Errorf("certificate %d is not trusted without limits", count)
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err != nil || !cert.IsCA {
			t.Errorf("certificate %d: %v", count, err)
		}
	}
	if count < 50 {
		t.Errorf("only %d certificates", count)
	}
}

func TestConfigurations(t *testing.T) {
	o := newOptions(t)
	dir := t.TempDir()
	if err := o.configurations(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kind.yaml": `apiVersion: kind.x-k8s.io/v1alpha4
featureGates:
  A: true
  B: true
kind: Cluster
nodes:
- role: control-plane
- role: worker
runtimeConfig:
  example.com/v1: "true"
  example.com/v2: "true"
`,
		"kubeadm.yaml": `apiServer:
  extraArgs:
  - name: feature-gates
    value: A=true,B=true
  - name: runtime-config
    value: example.com/v1=true,example.com/v2=true
apiVersion: kubeadm.k8s.io/v1beta4
controllerManager:
  extraArgs:
  - name: feature-gates
    value: A=true,B=true
kind: ClusterConfiguration
kubernetesVersion: v1.36.3+dra.1
scheduler:
  extraArgs:
  - name: feature-gates
    value: A=true,B=true
---
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates:
  A: true
  B: true
kind: KubeletConfiguration
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
featureGates:
  A: true
  B: true
kind: KubeProxyConfiguration
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  ignorePreflightErrors:
  - C
`,
	} {
		var got strings.Builder
		for line := range strings.Lines(string(readFile(t, dir, name))) {
			if !strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
		}
		if got.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.String(), want)
		}
	}
	// A release may have neither gates nor APIs to turn on.
	o.Gates, o.RuntimeConfig, o.IgnoredPreflightErrors = nil, nil, nil
	if err := o.configurations(dir); err != nil {
		t.Fatal(err)
	}
	for name := range templates {
		for document := range strings.SplitSeq(string(readFile(t, dir, name)), "---\n") {
			var got map[string]any
			if err := yaml.Unmarshal([]byte(document), &got); err != nil || got["kind"] == nil || slices.Contains(slices.Collect(maps.Values(got)), nil) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
}
