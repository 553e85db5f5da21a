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

	"kubernetes-dra/hack/pkg/sys"
)

// Generated code takes a minute or more for each release, and depends on
// nothing but what its key says. Therefore it is kept outside of the
// repository as well, for other clones: CI has a new one each time.

// generatedFile is one file of the generated code.
type generatedFile struct {
	Path, Mode string
	Content    []byte
}

// cacheFile is where something is kept. There must be a cache.
func (t *Tree) cacheFile(kind, key string) string { return filepath.Join(t.Cache, kind, key) }

// Checked says whether Remember was called for the key, maybe in another clone.
func (t *Tree) Checked(key string) bool {
	if t.Cache == "" {
		return false
	}
	_, err := os.Stat(t.cacheFile("checked", key))
	return err == nil
}

// Remember is called for the key of a check that passed.
func (t *Tree) Remember(key string) error {
	if t.Cache == "" {
		return nil
	}
	return sys.WriteFile(t.cacheFile("checked", key), []byte(t.Release.Version+"\n"), 0o644)
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
	return sys.WriteFile(b.cacheFile("generated", key), buffer.Bytes(), 0o644)
}

// keptGenerated returns what keepGenerated kept, or [fs.ErrNotExist].
func (b *build) keptGenerated(key string) (files []generatedFile, err error) {
	if b.Cache == "" {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(b.cacheFile("generated", key))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err == nil {
		err = gob.NewDecoder(zip).Decode(&files)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return files, nil
}

// useGenerated puts generated code from the cache on top of the features. It
// returns false if there is none. A cache that cannot be used is as good as none.
func (b *build) useGenerated(ctx context.Context, key string) (bool, error) {
	files, err := b.keptGenerated(key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.Log("generated code from before cannot be used: %v", err)
		}
		return false, nil
	}
	b.Log("generated code: %d files, made before from the same input (%s)", len(files), b.cacheFile("generated", key))
	return true, b.importGenerated(ctx, len(files), func(im *importer) {
		for _, f := range files {
			if f.Mode == noMode {
				im.remove(f.Path)
			} else {
				im.file(f.Path, f.Mode == mode(true), f.Content)
			}
		}
	})
}
