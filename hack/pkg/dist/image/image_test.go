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

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "built")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	img := Image{
		Names:      []string{"docker.io/library/busybox:stable", "registry.example.com/other:1"},
		Programs:   map[string]string{"/tool": program},
		Entrypoint: []string{"/tool"},
		Command:    []string{"argument"},
		Arch:       "riscv64",
	}
	archive := filepath.Join(dir, "image.tar")
	if err := img.Write(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	for _, ref := range img.Names {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS != "linux" || config.Architecture != "riscv64" ||
			!slices.Equal(config.Config.Entrypoint, img.Entrypoint) || !slices.Equal(config.Config.Cmd, img.Command) {
			t.Errorf("%s: unexpected configuration: %+v", ref, config)
		}
		if layers, err := image.Layers(); err != nil || len(layers) != 1 {
			t.Errorf("%s: want one layer, got %d, %v", ref, len(layers), err)
		}
	}
}

// TestFiles covers order and modes, and the shell.
func TestFiles(t *testing.T) {
	program := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := func(i Image) (lines []string) {
		t.Helper()
		content, err := i.content(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(content, make([]byte, 1024)) || len(content)%512 != 0 {
			t.Errorf("an archive of %d bytes has no end", len(content))
		}
		for r := tar.NewReader(bytes.NewReader(content)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return lines
			} else if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %o %s", header.Name, header.Mode, header.Linkname))
		}
	}
	got := list(Image{
		Programs: map[string]string{"/b/tool": program, "/a": program},
		Files:    map[string][]byte{"/etc/config": []byte("content")},
	})
	if want := []string{"a 755 ", "b/tool 755 ", "etc/config 644 "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if Busybox() == "" {
		t.Skip("no static busybox on this machine")
	}
	shell := list(Image{Shell: true, Arch: runtime.GOARCH, Programs: map[string]string{"/tool": program}})
	for _, want := range []string{"bin/sh 777 busybox", "bin/busybox 755 ", "tmp/ 1777 ", "tool 755 "} {
		if !slices.Contains(shell, want) {
			t.Errorf("the image has no %s", want)
		}
	}
}

// The files of the base are below those of the image, and a second time it has the
// same bytes.
func TestBase(t *testing.T) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for name, text := range map[string]string{"./usr/bin/nft": "nft", "./etc/config": "of the base"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	base, err := FromTar(content.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	i := Image{Names: []string{"a:1", "b:1", "c:1", "d:1"}, Base: base, User: "1234", Files: map[string][]byte{"/etc/config": []byte("of the image")}}
	archives := []string{filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")}
	var written [][]byte
	for _, archive := range archives {
		if err := i.Write(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, content)
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the same image has other bytes the second time")
	}
	img, err := tarball.ImageFromPath(archives[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := img.ConfigFile(); err != nil || config.Config.User != i.User {
		t.Errorf("the user of a container is not %s: %+v, %v", i.User, config, err)
	}
	got := map[string]string{}
	for r := tar.NewReader(mutate.Extract(img)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Clean(header.Name)] = string(text)
	}
	if want := map[string]string{"usr/bin/nft": "nft", "etc/config": "of the image"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrors(t *testing.T) {
	program := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign := "riscv64"
	if runtime.GOARCH == foreign {
		foreign = "amd64"
	}
	for want, img := range map[string]Image{
		"no name":                      {},
		"repository can only contain":  {Names: []string{"UPPER:1"}},
		`"relative" in the image`:      {Names: []string{"a:1"}, Programs: map[string]string{"relative": program}},
		`"/../up" in the image`:        {Names: []string{"a:1"}, Files: map[string][]byte{"/../up": nil}},
		`"/a/" in the image`:           {Names: []string{"a:1"}, Files: map[string][]byte{"/a/": nil}},
		`"/" in the image`:             {Names: []string{"a:1"}, Files: map[string][]byte{"/": nil}},
		`two files have the path "/a"`: {Names: []string{"a:1"}, Programs: map[string]string{"/a": program}, Files: map[string][]byte{"/a": nil}},
		"no such file":                 {Names: []string{"a:1"}, Programs: map[string]string{"/tool": program + "-missing"}},
		"a shell for " + foreign:       {Names: []string{"a:1"}, Shell: true, Arch: foreign},
	} {
		err := img.Write(t.Context(), filepath.Join(t.TempDir(), "image.tar"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
