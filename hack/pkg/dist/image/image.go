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

// Package image makes container images without a container engine, out of
// what is on this machine.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is one with a single layer, and those of its base. The same image always gives the same
// bytes, whenever it is written.
type Image struct {
	// Names are what pods call it: at least one.
	Names []string
	// Base is what the image has below the following, if it is set.
	Base v1.Image `json:"-"`
	// Programs maps absolute paths in the image to files on this machine.
	Programs map[string]string
	// Files maps absolute paths in the image to what everybody can read there.
	Files map[string][]byte
	// Shell adds a busybox, with all its commands in /bin. It is this
	// machine's, so there is none for another Arch.
	Shell bool
	// Entrypoint and Command are run unless a pod has its own.
	Entrypoint, Command []string
	// User is the user ID of a container, unless its pod has another one. The default is 0.
	User string
	// Arch is the architecture of the programs, as Go calls it. The default
	// is that of this machine.
	Arch string
}

// File is a file, a folder or a symbolic link at an absolute path.
type File struct {
	Path    string
	Mode    int64
	Folder  bool
	Content []byte
	// Target makes it a symbolic link.
	Target string
}

// searchPath is the PATH of a container, as container runtimes set it for
// images that have none.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Write makes the image as an archive that containerd and docker can import.
func (i Image) Write(ctx context.Context, archive string) error {
	if len(i.Names) == 0 {
		return errors.New("the image has no name")
	}
	files, err := i.files(ctx)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Names[0], err)
	}
	if err := i.write(archive, files); err != nil {
		return fmt.Errorf("image %s: %w", i.Names[0], err)
	}
	return nil
}

func (i Image) write(archive string, files []File) error {
	layer, err := layerOf(files)
	if err != nil {
		return err
	}
	image := i.Base
	if image == nil {
		image = empty.Image
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = i.arch(), "linux"
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Command
	config.Config.User = i.User
	config.Config.Env = []string{"PATH=" + searchPath}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tags := map[name.Tag]v1.Image{}
	for _, ref := range i.Names {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		tags[tag] = image
	}
	if err := tarball.MultiWriteToFile(archive+".unsorted", tags); err != nil {
		return err
	}
	defer os.Remove(archive + ".unsorted")
	return sortNames(archive+".unsorted", archive)
}

// sortNames copies an archive. The library that made it lists the names of an image
// in the order of a Go map, which is another one each time.
func sortNames(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return w.Close()
		} else if err != nil {
			return err
		}
		content := io.Reader(r)
		if header.Name == "manifest.json" {
			sorted, err := sortManifest(r)
			if err != nil {
				return fmt.Errorf("%s: %w", header.Name, err)
			}
			content, header.Size = bytes.NewReader(sorted), int64(len(sorted))
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
	}
}

func sortManifest(in io.Reader) ([]byte, error) {
	var manifest tarball.Manifest
	if err := json.NewDecoder(in).Decode(&manifest); err != nil {
		return nil, err
	}
	for _, image := range manifest {
		slices.Sort(image.RepoTags)
	}
	return json.Marshal(manifest)
}

func layerOf(files []File) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range files {
		header := &tar.Header{
			Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Size: int64(len(f.Content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		switch {
		case f.Target != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.Target
		case f.Folder:
			header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return fromTar(content.Bytes())
}

func fromTar(content []byte) (v1.Layer, error) {
	// Its sums and its content are asked for several times, for each image that has it.
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithCompressedCaching)
}

// FromTar is an image with the files of an archive of tar.
func FromTar(content []byte) (v1.Image, error) {
	layer, err := fromTar(content)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, layer)
}

func (i Image) arch() string {
	if i.Arch == "" {
		return runtime.GOARCH
	}
	return i.Arch
}

// files are what the image consists of.
func (i Image) files(ctx context.Context) ([]File, error) {
	var files []File
	if i.Shell {
		if i.arch() != runtime.GOARCH {
			return nil, fmt.Errorf("a shell for %s is not on this machine, which is %s", i.arch(), runtime.GOARCH)
		}
		shell, err := shellFiles(ctx)
		if err != nil {
			return nil, err
		}
		files = shell
	}
	has := map[string]bool{}
	addFile := func(f File) error {
		if !path.IsAbs(f.Path) || f.Path != path.Clean(f.Path) || f.Path == "/" {
			return fmt.Errorf("the path %q in the image must be absolute and clean", f.Path)
		}
		if has[f.Path] {
			return fmt.Errorf("two files have the path %q in the image", f.Path)
		}
		has[f.Path] = true
		files = append(files, f)
		return nil
	}
	add := func(target string, mode int64, content []byte) error {
		return addFile(File{Path: target, Mode: mode, Content: content})
	}
	for _, target := range slices.Sorted(maps.Keys(i.Programs)) {
		content, err := os.ReadFile(i.Programs[target])
		if err != nil {
			return nil, err
		}
		if err := add(target, 0o755, content); err != nil {
			return nil, err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(i.Files)) {
		if err := add(target, 0o644, i.Files[target]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Busybox is the path of one that needs no libraries, empty if this machine
// has none.
func Busybox() string {
	candidates := []string{"/bin/busybox", "/usr/bin/busybox"}
	if name, err := exec.LookPath("busybox"); err == nil {
		candidates = append(candidates, name)
	}
	for _, name := range candidates {
		f, err := elf.Open(name)
		if err != nil {
			continue
		}
		dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		_ = f.Close()
		if !dynamic {
			return name
		}
	}
	return ""
}

// shellFiles are a busybox, and what programs expect of a system.
func shellFiles(ctx context.Context) ([]File, error) {
	busybox := Busybox()
	if busybox == "" {
		return nil, errors.New("this machine has no static busybox; on Debian and Ubuntu: apt-get install busybox-static")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	files := []File{
		{Path: "/bin", Mode: 0o755, Folder: true},
		{Path: "/etc", Mode: 0o755, Folder: true},
		{Path: "/root", Mode: 0o700, Folder: true},
		{Path: "/tmp", Mode: 0o1777, Folder: true},
		{Path: "/etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{Path: "/etc/group", Mode: 0o644, Content: []byte("root:x:0:\nnobody:x:65534:\n")},
		{Path: "/bin/busybox", Mode: 0o755, Content: program},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" && !strings.Contains(applet, "/") {
			files = append(files, File{Path: "/bin/" + applet, Mode: 0o777, Target: "busybox"})
		}
	}
	return files, nil
}
