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

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/dist/debian"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/tools"
)

// suiteImage is one that the specs use.
type suiteImage struct {
	// name is that of the image without registry and tag.
	name string
	// optional is true if not every release has it.
	optional bool
	image.Image
}

// Images are those of the specs, made from what is on this machine. The suite
// says what they are called: it knows the registries and tags of its release,
// except for those that stand in its manifests only.
func (s *Suite) Images(ctx context.Context) ([]image.Image, error) {
	out, err := s.ask(ctx, "--list-images")
	if err != nil {
		return nil, err
	}
	manifests, err := manifestImages(s.Tree)
	if err != nil {
		return nil, err
	}
	names := imageNames(out + manifests)
	all := s.images()
	if s.Conformance {
		if all, err = s.conformanceImages(ctx); err != nil {
			return nil, err
		}
	}
	var images []image.Image
	for _, img := range all {
		img.Names = names[img.name]
		switch {
		case len(img.Names) > 0:
			images = append(images, img.Image)
		case !img.optional:
			return nil, fmt.Errorf("neither %s --list-images nor the manifests of %s have an image called %s; is it still in use?",
				s.program(suiteProgram), s.Tree, img.name)
		}
	}
	return images, nil
}

func (s *Suite) images() []suiteImage {
	program := func(path, name string) map[string]string { return map[string]string{path: s.program(name)} }
	return []suiteImage{
		{name: "agnhost", Image: image.Image{
			Programs: program("/agnhost", agnhost), Shell: true, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		}},
		{name: "busybox", Image: image.Image{Shell: true, Command: []string{"sh"}}},
		{name: "hostpathplugin", Image: image.Image{
			Programs: program("/hostpathplugin", hostPathProgram), Shell: true, Entrypoint: []string{"/hostpathplugin"},
		}},
		{name: "pause", Image: image.Image{Programs: program("/pause", pauseProgram), Entrypoint: []string{"/pause"}}},
		{name: "sample-device-plugin", Image: image.Image{
			Programs: program("/sampledeviceplugin", devicePlugin), Shell: true, Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"},
		}},
	}
}

// imageLock has the Debian packages below agnhost, in the repository.
const imageLock = "hack/images/e2e.lock"

// conformanceImages are those of specs of conformance.
func (s *Suite) conformanceImages(ctx context.Context) ([]suiteImage, error) {
	system, err := s.systemImage(ctx)
	if err != nil {
		return nil, err
	}
	host := system
	host.Programs = map[string]string{"/agnhost": s.program(agnhost), "/agnhost-2": s.program(agnhost)}
	host.Entrypoint, host.Command = []string{"/agnhost"}, []string{"pause"}
	if host, err = s.withFiles(host, filepath.Join(agnhost, "porter"), "localhost.crt", "localhost.key"); err != nil {
		return nil, err
	}
	// It only has to run, and to answer.
	web := host
	web.Entrypoint, web.Command = nil, []string{"/agnhost", "netexec", "--http-port=80", "--udp-port=-1"}
	nobody := system
	nobody.User = "1234"

	images := []suiteImage{
		{name: agnhost, Image: host},
		{name: "glibc-dns-testing", optional: true, Image: system},
		{name: "jessie-dnsutils", optional: true, Image: system},
		{name: "nginx", optional: true, Image: web},
		{name: "httpd", optional: true, Image: web},
		{name: "nonroot", optional: true, Image: nobody},
		{name: sampleAPIServer, optional: true, Image: image.Image{
			Programs: map[string]string{"/" + sampleAPIServer: s.program(sampleAPIServer)}, Entrypoint: []string{"/" + sampleAPIServer},
		}},
		{name: "etcd", optional: true, Image: image.Image{
			Programs: map[string]string{"/usr/local/bin/etcd": filepath.Join(tools.Dir(s.Repo), "etcd")},
		}},
	}
	for _, name := range []string{"kitten", "nautilus"} {
		update := host
		update.Command = []string{"test-webserver"}
		if update, err = s.withFiles(update, filepath.Join(name, "html"), name+".jpg", "data.json"); err != nil {
			return nil, err
		}
		images = append(images, suiteImage{name: name, optional: true, Image: update})
	}
	others := slices.DeleteFunc(s.images(), func(img suiteImage) bool { return img.name == agnhost })
	return append(images, others...), nil
}

// systemImage has a distribution: specs execute programs of it, and want to be certain users.
func (s *Suite) systemImage(ctx context.Context) (image.Image, error) {
	lock, err := debian.Load(filepath.Join(s.Repo, filepath.FromSlash(imageLock)))
	if err != nil {
		return image.Image{}, err
	}
	content, err := lock.Base(ctx, runtime.GOARCH, debian.Apt{Cache: s.Cache})
	if err != nil {
		return image.Image{}, fmt.Errorf("%s: %w", imageLock, err)
	}
	base, err := image.FromTar(content)
	if err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Base: base,
		Files: map[string][]byte{
			"/etc/passwd":        []byte("root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
			"/etc/group":         []byte("root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n"),
			"/etc/nsswitch.conf": []byte("hosts: files dns\n"),
		},
	}, nil
}

// withFiles adds files of the tree's test/images, in the root of the image.
func (s *Suite) withFiles(img image.Image, dir string, names ...string) (image.Image, error) {
	img.Files = maps.Clone(img.Files)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(s.Tree, "test", "images", dir, name))
		if err != nil {
			return image.Image{}, err
		}
		img.Files["/"+name] = content
	}
	return img, nil
}

// ManifestImages are the images in the manifests of upstream's tests in a tree, by their name without
// registry and tag.
func ManifestImages(tree string) (map[string][]string, error) {
	manifests, err := manifestImages(tree)
	return imageNames(manifests), err
}

func manifestImages(tree string) (string, error) {
	return imagesIn(filepath.Join(tree, "test", "e2e", "testing-manifests"))
}

var imageField = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*(\S+)`)

// imagesIn lists the images in manifests, one in a line.
func imagesIn(dir string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range imageField.FindAllSubmatch(content, -1) {
			fmt.Fprintln(&b, string(match[1]))
		}
		return nil
	})
	return b.String(), err
}

// imageNames sorts references, one in each line, by their name without
// registry and tag.
func imageNames(list string) map[string][]string {
	names := map[string][]string{}
	for line := range strings.Lines(list) {
		ref := strings.Trim(strings.TrimSpace(line), `"`)
		slash, colon := strings.LastIndex(ref, "/"), strings.LastIndex(ref, ":")
		if slash < 0 || colon < slash || strings.ContainsAny(ref, " \t{") {
			continue
		}
		name := ref[slash+1 : colon]
		if !slices.Contains(names[name], ref) {
			names[name] = append(names[name], ref)
		}
	}
	return names
}
