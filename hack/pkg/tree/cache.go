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

package tree

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Generated code takes a minute or more for each release, and depends on
// nothing but what its key says. Therefore it is kept outside of the
// repository as well, for other clones: CI has a new one each time.

// generatedFile is one file of the generated code.
type generatedFile struct {
	Path, Mode string
	Content    []byte
}

// cacheFile is where something gets kept, empty if nothing is.
func (t *Tree) cacheFile(kind, key string) string {
	if t.Cache == "" {
		return ""
	}
	return filepath.Join(t.Cache, kind, key)
}

// Checked says whether Remember was called for the key, maybe in another clone.
func (t *Tree) Checked(key string) bool {
	_, err := os.Stat(t.cacheFile("checked", key))
	return t.Cache != "" && err == nil
}

// Remember is called for the key of a check that passed.
func (t *Tree) Remember(key string) error {
	return t.keep(t.cacheFile("checked", key), []byte(t.Release.Version+"\n"))
}

// keep writes a file as a whole or not at all.
func (t *Tree) keep(name string, content []byte) error {
	if name == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// keepGenerated keeps the generated files of a commit.
func (b *build) keepGenerated(ctx context.Context, key string, edits []edit) error {
	if b.Cache == "" {
		return nil
	}
	var files []generatedFile
	for _, e := range edits {
		f := generatedFile{Path: e.Path, Mode: e.Mode}
		switch {
		case e.gone():
		case e.regular():
			content, err := b.repo().Output(ctx, nil, nil, "cat-file", "blob", e.Hash)
			if err != nil {
				return err
			}
			f.Content = content
		default:
			return fmt.Errorf("%s is not a file", e.Path)
		}
		files = append(files, f)
	}
	var buffer bytes.Buffer
	zip := gzip.NewWriter(&buffer)
	if err := errors.Join(gob.NewEncoder(zip).Encode(files), zip.Close()); err != nil {
		return err
	}
	return b.keep(b.cacheFile("generated", key), buffer.Bytes())
}

// keptGenerated returns what keepGenerated kept. It is not there if found is false.
func (b *build) keptGenerated(key string) (files []generatedFile, found bool, err error) {
	if b.Cache == "" {
		return nil, false, nil
	}
	f, err := os.Open(b.cacheFile("generated", key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err == nil {
		err = gob.NewDecoder(zip).Decode(&files)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return files, true, nil
}

// useGenerated puts generated code from the cache on top of the features. It
// returns false if there is none. A cache that cannot be used is as good as none.
func (b *build) useGenerated(ctx context.Context, key string) (bool, error) {
	files, found, err := b.keptGenerated(key)
	if err != nil {
		b.Log("generated code from before cannot be used: %v", err)
	}
	if err != nil || !found {
		return false, nil
	}
	if len(files) == 0 {
		return true, nil
	}
	commits, err := importCommits(ctx, b.repo(), b.Release.Date(), func(im *importer) error {
		im.commit("refs/carry/generated", b.state.Written(), generatedMessage)
		for _, f := range files {
			if f.Mode == noMode {
				im.remove(f.Path)
			} else {
				im.file(f.Path, f.Mode == "100755", f.Content)
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("committing the generated code: %w", err)
	}
	b.state.Head = commits[0]
	b.Log("generated code: %d files, made before from the same input (%s)", len(files), b.cacheFile("generated", key))
	return true, nil
}
