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

package upstream

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// proxy makes a Go module proxy out of files, and a module cache of its own.
// The names of the modules' files start with module@version.
func proxy(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	byModule := map[string]map[string]string{}
	for name, content := range files {
		at := strings.Index(name, "@")
		slash := at + strings.Index(name[at:], "/")
		if byModule[name[:slash]] == nil {
			byModule[name[:slash]] = map[string]string{}
		}
		byModule[name[:slash]][name] = content
	}
	for id, content := range byModule {
		module, version, _ := strings.Cut(id, "@")
		base := filepath.Join(dir, module, "@v", version)
		write(t, base+".mod", content[id+"/go.mod"])
		write(t, base+".info", `{"Version":"`+version+`","Time":"`+released+`"}`)
		f, err := os.Create(base + ".zip")
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		for name, text := range content {
			w, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir()
	t.Setenv("GOPROXY", "file://"+dir)
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GONOSUMDB", "")
	t.Setenv("GOMODCACHE", cache)
	// The module cache is read-only; root does not notice, others do.
	t.Cleanup(func() {
		err := filepath.WalkDir(cache, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(name, 0o755)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// released is when all modules of the proxy were made.
const released = "2026-07-22T18:07:38Z"

const k8s, api = "k8s.io/kubernetes@v1.36.3/", "k8s.io/api@v0.36.3/"

func files() map[string]string {
	return map[string]string{
		k8s + "go.mod":        "module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/api v0.0.0\n",
		k8s + "go.work":       "// Generated.\n\ngo 1.26.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n\t./staging/src/k8s.io/sample\n)\n",
		k8s + "hack/x.sh":     "#!/bin/sh\n",
		k8s + "pkg/x.go":      "package x\n",
		k8s + "vendor/OWNERS": "",
		api + "go.mod":        "module k8s.io/api\n",
		api + "core/x.go":     "package core\n",
	}
}

func release() *ledger.Release {
	return &ledger.Release{Name: "1.36", Version: "v1.36.3", Released: released, State: ledger.Carried, MissingModules: []string{"k8s.io/sample"}}
}

// pinned is a repository with a fresh pin.
func pinned(t *testing.T) (string, *Pin) {
	t.Helper()
	repo := t.TempDir()
	if err := WritePin(t.Context(), repo, release()); err != nil {
		t.Fatal(err)
	}
	pin, err := LoadPin(repo, release())
	if err != nil {
		t.Fatal(err)
	}
	return repo, pin
}

func TestSource(t *testing.T) {
	proxy(t, files())
	_, pin := pinned(t)
	s, err := pin.Open(t.Context(), release().MissingModules)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	list, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		got = append(got, f.Path)
		if _, err := s.ReadFile(f.Path); err != nil {
			t.Error(err)
		}
	}
	want := "go.mod go.work hack/x.sh pkg/x.go staging/src/k8s.io/api/core/x.go staging/src/k8s.io/api/go.mod"
	if got := strings.Join(got, " "); got != want {
		t.Errorf("files: %s, want %s", got, want)
	}
	work, err := s.ReadFile("go.work")
	if want := "// Generated.\n\ngo 1.26.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n)\n"; err != nil || string(work) != want {
		t.Errorf("go.work: got %q, %v; want %q", work, err, want)
	}
	for _, p := range []string{"pkg", "pkg/y.go", "vendor/OWNERS", "staging/src/k8s.io/sample/x.go", "../x", ""} {
		if content, err := s.ReadFile(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %q, %v", p, content, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, repo string)
		missing []string
		want    []string
	}{
		"checksum differs": {
			func(t *testing.T, repo string) {
				edit(t, repo, "go.sum", "k8s.io/api v0.36.3 h1:", "k8s.io/api v0.36.3 h1:AAAA")
			},
			release().MissingModules,
			[]string{"k8s.io/api@v0.36.3", "checksum mismatch"},
		},
		"checksum missing": {
			func(t *testing.T, repo string) {
				edit(t, repo, "go.sum", "k8s.io/api v0.36.3/go.mod", "k8s.io/other v0.36.3/go.mod")
			},
			release().MissingModules,
			[]string{"k8s.io/api@v0.36.3: its checksum is not in", "go.sum"},
		},
		"module of go.work not pinned": {
			func(*testing.T, string) {}, nil,
			[]string{"go.work uses k8s.io/sample", "missingModules"},
		},
		"version differs": {
			func(t *testing.T, repo string) { edit(t, repo, "version", "v1.36.3", "v1.36.2") }, nil,
			[]string{"hack/releases/1.36/version is v1.36.2, but hack/ledger.yaml says v1.36.3"},
		},
		"module at another version": {
			func(t *testing.T, repo string) { edit(t, repo, "go.mod", "k8s.io/api v0.36.3", "k8s.io/api v0.36.2") }, nil,
			[]string{"hack/releases/1.36/go.mod: k8s.io/api must be at v0.36.3, not v0.36.2"},
		},
		"module not in the proxy": {
			func(t *testing.T, repo string) {
				edit(t, repo, "go.mod", "k8s.io/api v0.36.3", "k8s.io/nowhere v0.36.3")
			},
			release().MissingModules,
			[]string{"k8s.io/nowhere@v0.36.3"},
		},
		"no pin": {
			func(t *testing.T, repo string) {
				if err := os.RemoveAll(filepath.Join(repo, PinDir("1.36"))); err != nil {
					t.Fatal(err)
				}
			}, nil,
			[]string{"release 1.36 has no pin"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy(t, files())
			repo, _ := pinned(t)
			tt.prepare(t, repo)
			pin, err := LoadPin(repo, release())
			if err == nil {
				_, err = pin.Open(t.Context(), tt.missing)
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error without %q: %v", text, err)
				}
			}
		})
	}
}

func edit(t *testing.T, repo, name, from, to string) {
	t.Helper()
	name = filepath.Join(repo, PinDir("1.36"), name)
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(content), from, to, 1)
	if changed == string(content) {
		t.Fatalf("%s has no %q", name, from)
	}
	write(t, name, changed)
}

// The go command does not look at what it extracted before; Verify does.
func TestVerifyFindsTamperedCache(t *testing.T) {
	proxy(t, files())
	_, pin := pinned(t)
	s, err := pin.Open(t.Context(), release().MissingModules)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(s.dirs["k8s.io/api"], "core", "x.go")
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, name, "package evil\n")
	if s, err = pin.Open(t.Context(), release().MissingModules); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err == nil || !strings.Contains(err.Error(), "k8s.io/api@v0.36.3: the files in the module cache were changed") {
		t.Errorf("got %v", err)
	}
}

// A release without a pin has the same tree as with one.
func TestPreview(t *testing.T) {
	proxy(t, files())
	repo, pin := pinned(t)
	want, err := pin.Open(t.Context(), release().MissingModules)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(repo, PinDir("1.36"))); err != nil {
		t.Fatal(err)
	}
	got, err := Preview(t.Context(), release())
	if err != nil {
		t.Fatal(err)
	}
	wantFiles, wantErr := want.Files()
	gotFiles, err := got.Files()
	if err := errors.Join(wantErr, err, got.Verify()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(gotFiles, wantFiles) {
		t.Errorf("got %v, want %v", gotFiles, wantFiles)
	}
	if _, err := os.Stat(filepath.Join(repo, PinDir("1.36"))); err == nil {
		t.Error("it wrote a pin")
	}
	other := release()
	other.MissingModules = nil
	if _, err := Preview(t.Context(), other); err == nil || !strings.Contains(err.Error(), "missingModules leaves out") {
		t.Errorf("a module that is missing: %v", err)
	}
}

func TestWritePinNeedsMissingModules(t *testing.T) {
	proxy(t, files())
	r := release()
	r.MissingModules = nil
	err := WritePin(t.Context(), t.TempDir(), r)
	if err == nil || !strings.Contains(err.Error(), "k8s.io/sample@v0.36.3") || !strings.Contains(err.Error(), "missingModules") {
		t.Errorf("got %v", err)
	}
}

// standIn is the release without api v0.36.3, for which v0.36.2 stands in.
func standIn(t *testing.T) *ledger.Release {
	t.Helper()
	all := files()
	for name, content := range all {
		if rest, ok := strings.CutPrefix(name, api); ok {
			all["k8s.io/api@v0.36.2/"+rest] = content
			delete(all, name)
		}
	}
	proxy(t, all)
	r := release()
	r.StandIns = []ledger.StandIn{{Module: "k8s.io/api", Version: "v0.36.2", Why: "the same source"}}
	return r
}

func TestStandIn(t *testing.T) {
	r := standIn(t)
	without := release()
	err := WritePin(t.Context(), t.TempDir(), without)
	if err == nil || !strings.Contains(err.Error(), "k8s.io/api@v0.36.3") || !strings.Contains(err.Error(), "release 1.36: standIns takes a module") {
		t.Errorf("without a stand-in: got %v", err)
	}
	repo := t.TempDir()
	if err := WritePin(t.Context(), repo, r); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(repo, PinDir("1.36"), "go.mod"))
	if want := "\tk8s.io/kubernetes v1.36.3\n\tk8s.io/api v0.36.2 // stands in for v0.36.3\n"; err != nil || !strings.Contains(string(mod), want) {
		t.Errorf("go.mod without %q: %v\n%s", want, err, mod)
	}
	pin, err := LoadPin(repo, r)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := pin.Sum(module.Version{Path: "k8s.io/api", Version: "v0.36.2"}); err != nil || !strings.HasPrefix(sum, "h1:") {
		t.Errorf("checksum of the stand-in: %q, %v", sum, err)
	}
	if sum, err := pin.Sum(module.Version{Path: "k8s.io/api", Version: "v0.36.3"}); err == nil {
		t.Errorf("checksum %q of what was not pinned", sum)
	}
	s, err := pin.Open(t.Context(), r.MissingModules)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	if content, err := s.ReadFile("staging/src/k8s.io/api/core/x.go"); err != nil || string(content) != "package core\n" {
		t.Errorf("got %q, %v", content, err)
	}

	// The checksum is checked.
	edit(t, repo, "go.sum", "k8s.io/api v0.36.2 h1:", "k8s.io/api v0.36.2 h1:AAAA")
	if pin, err = LoadPin(repo, r); err != nil {
		t.Fatal(err)
	}
	if _, err := pin.Open(t.Context(), r.MissingModules); err == nil || !strings.Contains(err.Error(), "checksum mismatch") {
		t.Errorf("with another checksum: %v", err)
	}
}

// What the ledger says about a stand-in and what is pinned have to agree.
func TestStandInNotPinned(t *testing.T) {
	r := standIn(t)
	repo := t.TempDir()
	if err := WritePin(t.Context(), repo, r); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		standIns []ledger.StandIn
		want     string
	}{
		"removed": {nil, "go.mod: k8s.io/api must be at v0.36.3, not v0.36.2: make pin RELEASE=1.36 writes it"},
		"moved":   {[]ledger.StandIn{{Module: "k8s.io/api", Version: "v0.36.1", Why: "w"}}, "k8s.io/api must be at v0.36.1, not v0.36.2"},
		"added":   {append(r.StandIns, ledger.StandIn{Module: "k8s.io/other", Version: "v0.36.1", Why: "w"}), "go.mod: k8s.io/other is missing, for which hack/ledger.yaml has a stand-in: make pin RELEASE=1.36 writes it"},
	} {
		changed := release()
		changed.StandIns = tt.standIns
		if _, err := LoadPin(repo, changed); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// A stand-in that nothing needs is an error.
func TestNeedlessStandIn(t *testing.T) {
	proxy(t, files())
	for want, s := range map[string]ledger.StandIn{
		`go.work of v1.36.3 does not use the module "k8s.io/nowhere": remove its stand-in`:    {Module: "k8s.io/nowhere", Version: "v0.36.2", Why: "w"},
		`go.work of v1.36.3 does not use the module "k8s.io/kubernetes": remove its stand-in`: {Module: "k8s.io/kubernetes", Version: "v0.36.2", Why: "w"},
	} {
		r := release()
		r.StandIns = []ledger.StandIn{s}
		repo := t.TempDir()
		if err := WritePin(t.Context(), repo, r); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hack/ledger.yaml: release 1.36: standIns: ") {
			t.Errorf("%s: got %v", s.Module, err)
		}
		if files, err := os.ReadDir(repo); err != nil || len(files) > 0 {
			t.Errorf("something was written: %v, %v", files, err)
		}
		if _, err := Preview(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: without a pin: got %v", s.Module, err)
		}
	}
}

func TestWritePinChecksTheTime(t *testing.T) {
	proxy(t, files())
	for _, wrong := range []string{"", "2026-07-22T18:07:39Z"} {
		r := release()
		r.Released = wrong
		repo := t.TempDir()
		err := WritePin(t.Context(), repo, r)
		if err == nil || !strings.Contains(err.Error(), `v1.36.3 was released at "`+released+`", not at "`+wrong+`"`) {
			t.Errorf("%q: got %v", wrong, err)
		}
		if files, err := os.ReadDir(repo); err != nil || len(files) > 0 {
			t.Errorf("something was written: %v, %v", files, err)
		}
	}
}
