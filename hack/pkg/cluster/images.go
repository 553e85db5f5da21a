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

package cluster

import (
	"archive/tar"
	"bytes"
	"context"
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

// pauseImage keeps the namespaces of a pod.
const pauseImage = "dra.example.com/pause:1"

// Image is one that is made out of what is on this machine.
type Image struct {
	// Names are what pods call it.
	Names []string
	// Programs maps paths in the image to files on this machine.
	Programs map[string]string
	// Shell adds a busybox, with all its commands in /bin.
	Shell bool
	// Entrypoint and Command are run unless a pod has its own.
	Entrypoint, Command []string
}

// file is one in an image. Those with a target are symbolic links, those
// whose name ends with a slash are folders.
type file struct {
	name    string
	mode    int64
	content []byte
	target  string
}

// writeImage makes an image with a single layer, as an archive that
// containerd can import.
func writeImage(archive string, img Image, files []file) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch {
		case f.target != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.target
		case strings.HasSuffix(f.name, "/"):
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint, config.Config.Cmd = img.Entrypoint, img.Command
	config.Config.Env = []string{"PATH=/bin:/usr/bin"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tags := map[name.Tag]v1.Image{}
	for _, ref := range img.Names {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		tags[tag] = image
	}
	return tarball.MultiWriteToFile(archive, tags)
}

// images are those of the real node.
func (c *Cluster) images() []Image {
	return append([]Image{
		{Names: []string{pauseImage}, Programs: map[string]string{"/pause": c.own("pause")}, Command: []string{"/pause"}},
		{Names: []string{ShellImage}, Shell: true, Command: []string{"sh"}},
		{Names: []string{networkImage}, Programs: map[string]string{"/" + NetworkDaemonSet: c.own(NetworkDaemonSet)}},
	}, c.Options.Images...)
}

// writeImages makes the images of the real node out of what is on this
// machine, and returns the archives.
func (c *Cluster) writeImages(ctx context.Context) ([]string, error) {
	var archives []string
	for i, img := range c.images() {
		if len(img.Names) == 0 {
			return nil, fmt.Errorf("image %d has no name", i)
		}
		files, err := img.files(ctx)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", img.Names[0], err)
		}
		archive := c.path("node", fmt.Sprintf("image-%d.tar", i))
		if err := writeImage(archive, img, files); err != nil {
			return nil, fmt.Errorf("image %s: %w", img.Names[0], err)
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// files are what the image consists of.
func (i Image) files(ctx context.Context) ([]file, error) {
	var files []file
	if i.Shell {
		shell, err := shellFiles(ctx)
		if err != nil {
			return nil, err
		}
		files = shell
	}
	for _, target := range slices.Sorted(maps.Keys(i.Programs)) {
		if !path.IsAbs(target) {
			return nil, fmt.Errorf("the program %s must have an absolute path", target)
		}
		content, err := os.ReadFile(i.Programs[target])
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: strings.TrimPrefix(target, "/"), mode: 0o755, content: content})
	}
	return files, nil
}

// shellFiles are a busybox, and what programs expect of a system.
func shellFiles(ctx context.Context) ([]file, error) {
	busybox := staticBusybox()
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	files := []file{
		{name: "bin/", mode: 0o755},
		{name: "etc/", mode: 0o755},
		{name: "root/", mode: 0o700},
		{name: "tmp/", mode: 0o1777},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnobody:x:65534:\n")},
		{name: "bin/busybox", mode: 0o755, content: program},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" && !strings.Contains(applet, "/") {
			files = append(files, file{name: "bin/" + applet, mode: 0o777, target: "busybox"})
		}
	}
	return files, nil
}
