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
	"cmp"
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

// searchPath is the PATH of a container, as container runtimes set it for
// images that have none.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Write makes the image as an archive that containerd and docker can import.
func (i Image) Write(ctx context.Context, archive string) (err error) {
	if len(i.Names) == 0 {
		return errors.New("the image has no name")
	}
	img, err := i.make(ctx)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Names[0], err)
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := save(f, img, i.Names); err != nil {
		return fmt.Errorf("image %s: %w", i.Names[0], err)
	}
	return nil
}

// make adds the layer and the configuration to the base.
func (i Image) make(ctx context.Context) (v1.Image, error) {
	i.Arch = cmp.Or(i.Arch, runtime.GOARCH)
	content, err := i.content(ctx)
	if err != nil {
		return nil, err
	}
	below := i.Base
	if below == nil {
		below = empty.Image
	}
	img, err := with(below, content)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = i.Arch, "linux"
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Command
	config.Config.User, config.Config.Env = i.User, []string{"PATH=" + searchPath}
	return mutate.ConfigFile(img, config)
}

// save writes an image as docker save does. The library can do that, too, but lists the names of an
// image in the order of a Go map, which is another one each time.
func save(out io.Writer, img v1.Image, names []string) error {
	var tags []string
	var tag name.Tag
	for _, ref := range names {
		var err error
		if tag, err = name.NewTag(ref); err != nil {
			return err
		}
		tags = append(tags, tag.String())
	}
	manifest, err := tarball.ComputeManifest(map[name.Reference]v1.Image{tag: img})
	if err != nil {
		return err
	}
	manifest[0].RepoTags = tags
	w := tar.NewWriter(out)
	add := func(name string, size int64, content io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := io.Copy(w, content)
		return err
	}
	config, errConfig := img.RawConfigFile()
	layers, errLayers := img.Layers()
	list, errList := json.Marshal(manifest)
	if err := errors.Join(errConfig, errLayers, errList, add(manifest[0].Config, int64(len(config)), bytes.NewReader(config))); err != nil {
		return err
	}
	for i, layer := range layers {
		size, errSize := layer.Size()
		content, err := layer.Compressed()
		if err := errors.Join(err, errSize); err != nil {
			return err
		}
		if err := errors.Join(add(manifest[0].Layers[i], size, content), content.Close()); err != nil {
			return err
		}
	}
	return errors.Join(add("manifest.json", int64(len(list)), bytes.NewReader(list)), w.Close())
}

// FromTar is an image with the files of an archive of tar.
func FromTar(content []byte) (v1.Image, error) { return with(empty.Image, content) }

// with adds the files of an archive of tar to an image.
func with(img v1.Image, content []byte) (v1.Image, error) {
	// Its sums and its content are asked for several times, for each image that has it.
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// content is the layer of the image, as an archive of tar.
func (i Image) content(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	has := map[string]bool{}
	add := func(kind byte, name string, mode int64, content []byte, target string) error {
		if !path.IsAbs(name) || name != path.Clean(name) || name == "/" {
			return fmt.Errorf("the path %q in the image must be absolute and clean", name)
		}
		if has[name] {
			return fmt.Errorf("two files have the path %q in the image", name)
		}
		has[name] = true
		header := &tar.Header{Name: name[1:], Mode: mode, Size: int64(len(content)), Typeflag: kind, Linkname: target, Format: tar.FormatPAX}
		if kind == tar.TypeDir {
			header.Name += "/"
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if i.Shell {
		if err := i.addShell(ctx, add); err != nil {
			return nil, err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(i.Programs)) {
		content, err := os.ReadFile(i.Programs[target])
		if err := errors.Join(err, add(tar.TypeReg, target, 0o755, content, "")); err != nil {
			return nil, err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(i.Files)) {
		if err := add(tar.TypeReg, target, 0o644, i.Files[target], ""); err != nil {
			return nil, err
		}
	}
	// It has its end only then.
	err := w.Close()
	return out.Bytes(), err
}

// addShell adds a busybox, and what programs expect of a system.
func (i Image) addShell(ctx context.Context, add func(kind byte, name string, mode int64, content []byte, target string) error) error {
	if i.Arch != runtime.GOARCH {
		return fmt.Errorf("a shell for %s is not on this machine, which is %s", i.Arch, runtime.GOARCH)
	}
	busybox := Busybox()
	if busybox == "" {
		return errors.New("this machine has no static busybox; on Debian and Ubuntu: apt-get install busybox-static")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	err = errors.Join(
		add(tar.TypeDir, "/bin", 0o755, nil, ""),
		add(tar.TypeDir, "/etc", 0o755, nil, ""),
		add(tar.TypeDir, "/root", 0o700, nil, ""),
		add(tar.TypeDir, "/tmp", 0o1777, nil, ""),
		add(tar.TypeReg, "/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), ""),
		add(tar.TypeReg, "/etc/group", 0o644, []byte("root:x:0:\nnobody:x:65534:\n"), ""),
		add(tar.TypeReg, "/bin/busybox", 0o755, program, ""),
	)
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" && !strings.Contains(applet, "/") {
			err = errors.Join(err, add(tar.TypeSymlink, "/bin/"+applet, 0o777, nil, "busybox"))
		}
	}
	return err
}

// Busybox is the path of one that needs no libraries, empty if this machine
// has none.
func Busybox() string {
	found, _ := exec.LookPath("busybox")
	for _, name := range []string{"/bin/busybox", "/usr/bin/busybox", found} {
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
