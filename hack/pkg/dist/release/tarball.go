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
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// contents are the files of a tarball, by their names in it.
type contents struct {
	files map[string]*entry
}

// entry is a file of a tarball, on this machine or, if it has no source, its text.
type entry struct {
	source     string
	text       []byte
	executable bool
	// sha1 is what SPDX asks for, sha512 is for those who check it.
	sha1, sha512 string
}

func (c *contents) add(name string, e entry) {
	if c.files == nil {
		c.files = map[string]*entry{}
	}
	c.files[name] = &e
}

func (c *contents) names() []string {
	names := make([]string, 0, len(c.files))
	for name := range c.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// write makes the archive, returns its SHA-512 sum, and sets the sums of its files.
// Order, owners and times are always the same.
func (c *contents) write(ctx context.Context, name string, date time.Time) (sum string, err error) {
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha512.New()
	z := gzip.NewWriter(io.MultiWriter(f, h))
	w := tar.NewWriter(z)
	folders := map[string]bool{".": true}
	for _, name := range c.names() {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		for _, dir := range missingParents(name, folders) {
			if err := w.WriteHeader(header(dir+"/", tar.TypeDir, 0o755, 0, date)); err != nil {
				return "", err
			}
		}
		if err := c.files[name].write(w, name, date); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// missingParents are the folders of a file that are not known yet, the outer
// ones first. They are known afterwards.
func missingParents(name string, known map[string]bool) []string {
	var missing []string
	for dir := path.Dir(name); !known[dir]; dir = path.Dir(dir) {
		known[dir] = true
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	return missing
}

func header(name string, kind byte, mode, size int64, date time.Time) *tar.Header {
	return &tar.Header{
		Name: name, Typeflag: kind, Mode: mode, Size: size, ModTime: date.UTC().Truncate(time.Second),
		Uname: "root", Gname: "root", Format: tar.FormatGNU,
	}
}

func (e *entry) write(w *tar.Writer, name string, date time.Time) error {
	content, size := io.Reader(strings.NewReader(string(e.text))), int64(len(e.text))
	if e.source != "" {
		f, err := os.Open(e.source)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		content, size = f, info.Size()
	}
	mode := int64(0o644)
	if e.executable {
		mode = 0o755
	}
	if err := w.WriteHeader(header(name, tar.TypeReg, mode, size, date)); err != nil {
		return err
	}
	short, long := sha1.New(), sha512.New()
	if _, err := io.Copy(io.MultiWriter(w, short, long), content); err != nil {
		return err
	}
	e.sha1, e.sha512 = hex.EncodeToString(short.Sum(nil)), hex.EncodeToString(long.Sum(nil))
	return nil
}
