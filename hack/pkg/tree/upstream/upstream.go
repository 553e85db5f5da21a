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

// Package upstream gets the files of an upstream Kubernetes release out of Go
// modules: k8s.io/kubernetes, and each staging repository, which is a module
// of its own. Nothing here writes to a tree; it tells what the tree of the
// untouched release consists of.
package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	// root is the module whose files stand at the root of the tree.
	root = "k8s.io/kubernetes"
	// staging is the folder of all other modules.
	staging = "staging/src/"
	// workFile lists the modules of the tree's workspace.
	workFile = "go.work"
)

// Pin is the pinned version of a release: the folder hack/releases/<name>.
type Pin struct {
	// Dir is the folder.
	Dir string
	// Version is the content of the file version.
	Version string
	// Modules are what go.mod requires, checked to be the version's.
	Modules []module.Version
	// sums are the lines of go.sum.
	sums map[string]bool
}

// PinDir is the folder of a release's pin, relative to the repository.
func PinDir(release string) string { return path.Join("hack/releases", release) }

// Open opens the untouched tree of a release. One that is planned need not have a pin, see
// [Preview].
func Open(ctx context.Context, repo string, release *ledger.Release) (*Source, error) {
	_, err := os.Stat(filepath.Join(repo, PinDir(release.Name)))
	if errors.Is(err, fs.ErrNotExist) && release.State != ledger.Carried {
		return Preview(ctx, release)
	}
	pin, err := LoadPin(repo, release)
	if err != nil {
		return nil, err
	}
	source, err := pin.Open(ctx, release.MissingModules)
	if err != nil {
		return nil, fmt.Errorf("release %s: %w", release.Name, err)
	}
	return source, nil
}

// LoadPin reads the pin of a release.
func LoadPin(repo string, release *ledger.Release) (*Pin, error) {
	pin := &Pin{Dir: filepath.Join(repo, PinDir(release.Name)), sums: map[string]bool{}}
	version, err := os.ReadFile(filepath.Join(pin.Dir, "version"))
	if err != nil {
		return nil, fmt.Errorf("release %s has no pin: %w", release.Name, err)
	}
	pin.Version = strings.TrimSpace(string(version))
	if pin.Version != release.Version {
		return nil, fmt.Errorf("%s/version is %s, but %s says %s",
			PinDir(release.Name), pin.Version, ledger.Path, release.Version)
	}
	name := filepath.Join(pin.Dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("release %s: %w", release.Name, err)
	}
	mod, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	for _, req := range mod.Require {
		want := release.ModuleVersion(req.Mod.Path)
		if req.Mod.Path == root {
			want = pin.Version
		}
		if req.Mod.Version != want {
			return nil, fmt.Errorf("%s/go.mod: %s must be at %s, not %s: make pin RELEASE=%s writes it",
				PinDir(release.Name), req.Mod.Path, want, req.Mod.Version, release.Name)
		}
		pin.Modules = append(pin.Modules, req.Mod)
	}
	for _, s := range release.StandIns {
		if !slices.ContainsFunc(pin.Modules, func(m module.Version) bool { return m.Path == s.Module }) {
			return nil, fmt.Errorf("%s/go.mod: %s is missing, for which %s has a stand-in: make pin RELEASE=%s writes it",
				PinDir(release.Name), s.Module, ledger.Path, release.Name)
		}
	}
	sums, err := os.ReadFile(filepath.Join(pin.Dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("release %s: %w", release.Name, err)
	}
	for line := range strings.Lines(string(sums)) {
		pin.sums[strings.TrimSpace(line)] = true
	}
	return pin, nil
}

// Sum is the checksum of a pinned module, as go.sum has it.
func (p *Pin) Sum(m module.Version) (string, error) {
	for line := range p.sums {
		if sum, ok := strings.CutPrefix(line, m.Path+" "+m.Version+" "); ok {
			return sum, nil
		}
	}
	return "", fmt.Errorf("%s: its checksum is not in %s", m, filepath.Join(p.Dir, "go.sum"))
}

// Download gets the pinned modules into the module cache. The go command
// verifies them against the pin's go.sum, and only what is listed there is
// accepted.
func (p *Pin) Download(ctx context.Context) (map[string]string, error) {
	downloaded, err := download(ctx, p.Dir, p.Modules)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for _, m := range downloaded {
		for _, line := range []string{
			fmt.Sprintf("%s %s %s", m.Path, m.Version, m.Sum),
			fmt.Sprintf("%s %s/go.mod %s", m.Path, m.Version, m.GoModSum),
		} {
			if !p.sums[line] {
				return nil, fmt.Errorf("%s@%s: its checksum is not in %s: %s",
					m.Path, m.Version, filepath.Join(p.Dir, "go.sum"), line)
			}
		}
		dirs[m.Path] = m.Dir
	}
	return dirs, nil
}

// moduleInfo is what "go mod download -json" says about a module.
type moduleInfo struct {
	Path, Version, Dir, Sum, GoModSum, Error string
	// Info is a file with the time of the version.
	Info string
}

// time is when the version was made.
func (m *moduleInfo) time() (time.Time, error) {
	data, err := os.ReadFile(m.Info)
	if err != nil {
		return time.Time{}, err
	}
	var info struct{ Time time.Time }
	if err := json.Unmarshal(data, &info); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", m.Info, err)
	}
	return info.Time, nil
}

// download runs the go command for modules, in the module at dir. All of them have
// to be there.
func download(ctx context.Context, dir string, modules []module.Version) ([]moduleInfo, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.String())
	}
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "GO111MODULE=on")
	cmd := sys.Command(ctx, dir, env, "go", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var infos []moduleInfo
	var errs []error
	for decoder := json.NewDecoder(&stdout); ; {
		var m moduleInfo
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go mod download: %w", err)
		}
		if m.Error != "" {
			errs = append(errs, errors.New(m.Error)) // names the module
		}
		infos = append(infos, m)
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("go mod download: %w", context.Cause(ctx))
	case runErr != nil && errs == nil:
		return nil, fmt.Errorf("go mod download: %w: %s", runErr, strings.TrimSpace(stderr.String()))
	}
	return infos, errors.Join(errs...)
}

// Source is the untouched tree of a release: files of several folders, each
// mounted somewhere in the tree.
type Source struct {
	pin *Pin
	// dirs maps the modules to their folders.
	dirs map[string]string
	// mounts maps a prefix in the tree ("" or one that ends in a slash) to
	// the folder with the files.
	mounts map[string]string
	// work is the content of go.work.
	work []byte
}

// Open makes the tree out of the pinned modules, which it downloads if they
// are not in the module cache. The modules in missing are taken out of
// go.work; any other module that go.work names has to be there.
func (p *Pin) Open(ctx context.Context, missing []string) (*Source, error) {
	dirs, err := p.Download(ctx)
	if err != nil {
		return nil, err
	}
	return p.source(dirs, missing)
}

// source makes the tree out of the folders of the modules.
func (p *Pin) source(dirs map[string]string, missing []string) (*Source, error) {
	if dirs[root] == "" {
		return nil, fmt.Errorf("the pin does not have the module %s", root)
	}
	s := &Source{pin: p, dirs: dirs, mounts: map[string]string{}}
	for name, dir := range dirs {
		prefix := staging + name + "/"
		if name == root {
			prefix = ""
		}
		s.mounts[prefix] = dir
	}
	work, err := readWork(dirs[root])
	if err != nil {
		return nil, err
	}
	for _, use := range slices.Clone(work.Use) {
		name, isStaging := strings.CutPrefix(use.Path, "./"+staging)
		switch {
		case !isStaging || dirs[name] != "":
		case slices.Contains(missing, name):
			if err := work.DropUse(use.Path); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("go.work uses %s, which is neither pinned nor one of the release's missingModules in %s",
				name, ledger.Path)
		}
	}
	work.Cleanup()
	s.work = modfile.Format(work.Syntax)
	return s, nil
}

func readWork(dir string) (*modfile.WorkFile, error) {
	name := filepath.Join(dir, workFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.ParseWork(name, data, nil)
}

// File is a file of the tree.
type File struct {
	// Path in the tree, with slashes.
	Path string
	// Name is where the content stands.
	Name string
}

// Files lists the tree, ordered by path. There is no vendor folder in it: the
// module cache takes its place.
func (s *Source) Files() ([]File, error) {
	var files []File
	for prefix, dir := range s.mounts {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, name)
			if err != nil {
				return err
			}
			p := prefix + filepath.ToSlash(rel)
			switch {
			case d.IsDir() && p == "vendor":
				return fs.SkipDir
			case d.IsDir():
			case d.Type().IsRegular():
				files = append(files, File{Path: p, Name: name})
			default:
				return fmt.Errorf("%s is not a regular file", name)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.pin.Version, err)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// ReadFile returns the content of the file at the path in the tree. The error
// is fs.ErrNotExist if there is none.
func (s *Source) ReadFile(p string) ([]byte, error) {
	if p == workFile {
		return s.work, nil
	}
	if !fs.ValidPath(p) || strings.HasPrefix(p, "vendor/") {
		return nil, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	dir, rel := s.mounts[""], p
	for prefix, d := range s.mounts {
		if r, ok := strings.CutPrefix(p, prefix); ok && prefix != "" {
			dir, rel = d, r
		}
	}
	name := filepath.Join(dir, filepath.FromSlash(rel))
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	return os.ReadFile(name)
}

// Executable says whether a file with this content gets the executable bit.
// Module zip files do not keep it: what starts with #! is a script.
func Executable(content []byte) bool { return bytes.HasPrefix(content, []byte("#!")) }

// Preview makes the tree of a release that has no pin yet. The go command checks what
// it downloads with the checksum database, and nothing is written down.
func Preview(ctx context.Context, release *ledger.Release) (*Source, error) {
	f, err := fetch(ctx, release)
	if err != nil {
		return nil, err
	}
	pin := &Pin{Version: release.Version, sums: map[string]bool{}}
	dirs := map[string]string{}
	for _, m := range f.modules {
		pin.Modules = append(pin.Modules, module.Version{Path: m.Path, Version: m.Version})
		pin.sums[fmt.Sprintf("%s %s %s", m.Path, m.Version, m.Sum)] = true
		dirs[m.Path] = m.Dir
	}
	return pin.source(dirs, release.MissingModules)
}

// fetched are the modules of a version.
type fetched struct {
	modules []moduleInfo
	// root is k8s.io/kubernetes, work its go.work.
	root *moduleInfo
	work *modfile.WorkFile
}

// fetch downloads the modules of the version that the ledger has for a release.
func fetch(ctx context.Context, release *ledger.Release) (*fetched, error) {
	version := release.Version
	tmp, err := os.MkdirTemp("", "carry-pin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "go.mod"), []byte("module pin\n"), 0o644); err != nil {
		return nil, err
	}
	infos, err := download(ctx, tmp, []module.Version{{Path: root, Version: version}})
	if err != nil {
		return nil, err
	}
	f := &fetched{root: &infos[0]}
	if f.work, err = readWork(infos[0].Dir); err != nil {
		return nil, err
	}
	modules := []module.Version{{Path: root, Version: version}}
	for _, use := range f.work.Use {
		if m, ok := strings.CutPrefix(use.Path, "./"+staging); ok && !slices.Contains(release.MissingModules, m) {
			modules = append(modules, module.Version{Path: m, Version: release.ModuleVersion(m)})
		}
	}
	if f.modules, err = download(ctx, tmp, modules); err != nil {
		return nil, fmt.Errorf("%s: release %s: standIns takes a module that the proxy does not have at another version, and missingModules leaves out one that nothing is built from: %w",
			ledger.Path, release.Name, err)
	}
	for _, s := range release.StandIns {
		if !slices.Contains(modules, module.Version{Path: s.Module, Version: s.Version}) {
			return nil, fmt.Errorf("%s: release %s: standIns: go.work of %s does not use the module %q: remove its stand-in",
				ledger.Path, release.Name, version, s.Module)
		}
	}
	return f, nil
}

// WritePin writes the go.mod and go.sum of a release for the version in its
// file version. It is how a new pin is made: the go command checks what it
// downloads with the checksum database, and the result is committed. A time in
// the ledger that is not upstream's is an error, which says the right one.
func WritePin(ctx context.Context, repo string, release *ledger.Release) error {
	dir := filepath.Join(repo, PinDir(release.Name))
	version := release.Version
	f, err := fetch(ctx, release)
	if err != nil {
		return err
	}
	released, err := f.root.time()
	if err != nil {
		return err
	}
	if want := released.UTC().Truncate(time.Second); !want.Equal(release.Date()) {
		return fmt.Errorf("%s: release %s: %s was released at %q, not at %q", ledger.Path, release.Name, version, want.Format(time.RFC3339), release.Released)
	}
	var mod, sum strings.Builder
	fmt.Fprintf(&mod, "// The modules that make up Kubernetes %s. Written by hack/update-pin.sh.\n\n", version)
	fmt.Fprintf(&mod, "module kubernetes-dra/%s\n\n", PinDir(release.Name))
	if f.work.Go != nil {
		fmt.Fprintf(&mod, "go %s\n\n", f.work.Go.Version)
	}
	mod.WriteString("require (\n")
	for _, m := range f.modules {
		note := ""
		if own := release.StagingVersion(); m.Path != root && m.Version != own {
			note = " // stands in for " + own
		}
		fmt.Fprintf(&mod, "\t%s %s%s\n", m.Path, m.Version, note)
		fmt.Fprintf(&sum, "%s %s %s\n%s %s/go.mod %s\n", m.Path, m.Version, m.Sum, m.Path, m.Version, m.GoModSum)
	}
	mod.WriteString(")\n")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{"version": version + "\n", "go.mod": mod.String(), "go.sum": sum.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Verify hashes the files of the modules and compares with the pin's go.sum:
// "go mod download" trusts a module that was extracted before.
func (s *Source) Verify() error {
	var errs []error
	for _, m := range s.pin.Modules {
		sum, err := dirhash.HashDir(s.dirs[m.Path], m.String(), dirhash.Hash1)
		if err != nil {
			return err
		}
		if line := fmt.Sprintf("%s %s %s", m.Path, m.Version, sum); !s.pin.sums[line] {
			errs = append(errs, fmt.Errorf("%s: the files in the module cache were changed: they do not have the checksum in %s",
				m, filepath.Join(s.pin.Dir, "go.sum")))
		}
	}
	return errors.Join(errs...)
}
