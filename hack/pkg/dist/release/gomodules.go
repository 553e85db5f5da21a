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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	gomod "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"

	"kubernetes-dra/hack/pkg/sys"
)

const (
	// ReplaceFile has the lines for the go.mod of a program, SumFile those for its go.sum.
	ReplaceFile, SumFile = "replace.txt", "go.sum"
	// modulesFile is the archive of the folder with modules.
	modulesFile = "kubernetes-go-modules.tar.gz"
)

// GoModules are the staging modules that the carry changes, for Go programs that use our fields by their types.
type GoModules struct {
	// Tree has the modules in staging/src.
	Tree string
	// Paths are those of the modules, sorted.
	Paths []string
	// Version is theirs, like v0.37.2-dra.1. It comes before v0.37.2 in the order of versions. So no program
	// gets one of the modules unless it says so.
	Version string
	// Date is when they were published.
	Date time.Time
}

// Write makes a folder that Go reads as a module proxy, with the lines for go.mod and go.sum. It has no lists of
// versions: the next proxy knows the others.
func (m GoModules) Write(ctx context.Context, dir string) error {
	var replace, sums strings.Builder
	for _, path := range m.Paths {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		sum, modSum, err := m.write(dir, path)
		if err != nil {
			return fmt.Errorf("module %s %s: %w", path, m.Version, err)
		}
		fmt.Fprintf(&replace, "replace %s => %[1]s %s\n", path, m.Version)
		fmt.Fprintf(&sums, "%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", path, m.Version, sum, modSum)
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, ReplaceFile), []byte(replace.String()), 0o644), os.WriteFile(filepath.Join(dir, SumFile), []byte(sums.String()), 0o644))
}

// write writes the files of a module, and returns its sum and that of its go.mod.
func (m GoModules) write(dir, path string) (sum, modSum string, err error) {
	escaped, err := gomod.EscapePath(path)
	if err != nil {
		return "", "", err
	}
	mod, err := m.goMod(path)
	if err != nil {
		return "", "", err
	}
	info, err := json.Marshal(map[string]any{"Version": m.Version, "Time": m.Date.UTC()})
	if err != nil {
		return "", "", err
	}
	at := filepath.Join(dir, filepath.FromSlash(escaped), "@v", m.Version)
	source, err := os.MkdirTemp(dir, ".source-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(source)
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(at), 0o755),
		os.WriteFile(at+".info", info, 0o644),
		os.WriteFile(at+".mod", mod, 0o644),
		os.CopyFS(source, os.DirFS(m.source(path))),
		os.WriteFile(filepath.Join(source, "go.mod"), mod, 0o644),
	); err != nil {
		return "", "", err
	}
	archive, err := os.Create(at + ".zip")
	if err != nil {
		return "", "", err
	}
	// Archives of modules have no times, so the same files give the same bytes.
	if err := errors.Join(modzip.CreateFromDir(archive, gomod.Version{Path: path, Version: m.Version}, source), archive.Close()); err != nil {
		return "", "", err
	}
	if sum, err = dirhash.HashZip(at+".zip", dirhash.Hash1); err != nil {
		return "", "", err
	}
	modSum, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(at + ".mod") })
	return sum, modSum, err
}

func (m GoModules) source(path string) string {
	return filepath.Join(m.Tree, "staging/src", filepath.FromSlash(path))
}

// goMod is the go.mod of a module in the tree, which asks for our version of the other ones.
func (m GoModules) goMod(path string) ([]byte, error) {
	name := filepath.Join(m.source(path), "go.mod")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, content, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range file.Require {
		if slices.Contains(m.Paths, r.Mod.Path) {
			if err := file.AddRequire(r.Mod.Path, m.Version); err != nil {
				return nil, err
			}
		}
	}
	return file.Format()
}

// Replace does what Write does, in place of what was there. That stays if there is an error.
func (m GoModules) Replace(ctx context.Context, dir string, log func(format string, args ...any)) error {
	return replace(ctx, dir, log, func(fresh string) error { return m.Write(ctx, fresh) })
}

// replace makes a folder anew. What was there stays until that is complete.
func replace(ctx context.Context, dir string, log func(format string, args ...any), write func(fresh string) error) error {
	unlock, err := sys.Lock(ctx, dir+".lock", func() { log("waiting for another build of %s", dir) })
	if err != nil {
		return err
	}
	defer unlock()
	fresh := dir + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := write(fresh); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.Rename(fresh, dir))
}

// archive writes the folder with modules as a file.
func (m GoModules) archive(ctx context.Context, dir string) error {
	root, err := os.MkdirTemp(dir, ".modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	modules := filepath.Join(root, "modules")
	if err := errors.Join(os.Mkdir(modules, 0o755), m.Write(ctx, modules)); err != nil {
		return err
	}
	_, err = writeTarball(ctx, filepath.Join(dir, modulesFile), root, m.Date)
	return err
}
