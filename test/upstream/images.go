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

package upstream

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

// Images are those of the specs, made from what is on this machine. The suite says what they are
// called: it knows the registries and tags of its release, except for those that stand in its
// manifests only.
func (s *Suite) Images(ctx context.Context) ([]image.Image, error) {
	list, err := s.ask(ctx, "--list-images")
	if err != nil {
		return nil, err
	}
	manifests, err := manifestImages(s.Tree)
	if err != nil {
		return nil, err
	}
	made, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	names := imageNames(list + manifests)
	var images []image.Image
	for _, name := range slices.Sorted(maps.Keys(made)) {
		img := made[name]
		if img.Names = names[name]; len(img.Names) > 0 {
			images = append(images, img)
		} else if name == agnhost {
			return nil, fmt.Errorf("neither %s --list-images nor the manifests of %s have an image called %s; is it still in use?",
				s.program(suiteProgram), s.Tree, name)
		}
	}
	return images, nil
}

// images are all that can be made, by their names without registry and tag.
func (s *Suite) images(ctx context.Context) (map[string]image.Image, error) {
	programs := func(in, of string) map[string]string { return map[string]string{in: s.program(of)} }
	host := image.Image{Shell: true, Programs: programs("/agnhost", agnhost), Entrypoint: []string{"/agnhost"}, Command: []string{"pause"}}
	images := map[string]image.Image{
		agnhost:         host,
		"busybox":       {Shell: true, Command: []string{"sh"}},
		hostPathProgram: {Shell: true, Programs: programs("/hostpathplugin", hostPathProgram), Entrypoint: []string{"/hostpathplugin"}},
		pauseProgram:    {Programs: programs("/pause", pauseProgram), Entrypoint: []string{"/pause"}},
		devicePlugin: {Shell: true, Programs: programs("/sampledeviceplugin", devicePlugin),
			Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"}},
	}
	if !s.Conformance {
		return images, nil
	}
	// A distribution: specs of conformance execute programs of it, and want to be certain users.
	system, err := s.system(ctx)
	if err != nil {
		return nil, err
	}
	host.Shell, host.Base = false, system.Base
	host.Programs = map[string]string{"/agnhost": s.program(agnhost), "/agnhost-2": s.program(agnhost)}
	if host.Files, err = s.files(system.Files, filepath.Join(agnhost, "porter"), "localhost.crt", "localhost.key"); err != nil {
		return nil, err
	}
	// It only has to run, and to answer.
	web := host
	web.Entrypoint, web.Command = nil, []string{"/agnhost", "netexec", "--http-port=80", "--udp-port=-1"}
	nobody := system
	nobody.User = "1234"
	maps.Copy(images, map[string]image.Image{
		agnhost:             host,
		"glibc-dns-testing": system,
		"jessie-dnsutils":   system,
		"nginx":             web,
		"httpd":             web,
		"nonroot":           nobody,
		sampleAPIServer:     {Programs: programs("/"+sampleAPIServer, sampleAPIServer), Entrypoint: []string{"/" + sampleAPIServer}},
		"etcd":              {Programs: map[string]string{"/usr/local/bin/etcd": filepath.Join(tools.Dir(s.Repo), "etcd")}},
	})
	for _, name := range []string{"kitten", "nautilus"} {
		update := host
		update.Command = []string{"test-webserver"}
		if update.Files, err = s.files(host.Files, filepath.Join(name, "html"), name+".jpg", "data.json"); err != nil {
			return nil, err
		}
		images[name] = update
	}
	return images, nil
}

// imageLock has the Debian packages below agnhost, in the repository.
const imageLock = "hack/images/e2e.lock"

func (s *Suite) system(ctx context.Context) (image.Image, error) {
	lock, err := debian.Load(filepath.Join(s.Repo, filepath.FromSlash(imageLock)))
	if err != nil {
		return image.Image{}, err
	}
	content, err := lock.Base(ctx, runtime.GOARCH, debian.Apt{Cache: s.Cache})
	if err != nil {
		return image.Image{}, fmt.Errorf("%s: %w", imageLock, err)
	}
	base, err := image.FromTar(content)
	return image.Image{
		Base: base,
		Files: map[string][]byte{
			"/etc/passwd":        []byte("root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
			"/etc/group":         []byte("root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n"),
			"/etc/nsswitch.conf": []byte("hosts: files dns\n"),
		},
	}, err
}

// files adds some of the tree's test/images, in the root of the image.
func (s *Suite) files(others map[string][]byte, dir string, names ...string) (map[string][]byte, error) {
	files := maps.Clone(others)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(s.Tree, "test", "images", dir, name))
		if err != nil {
			return nil, err
		}
		files["/"+name] = content
	}
	return files, nil
}

// nodeImages are those of pods that upstream's tests of DRA start on a bare node, under the names that
// they have in the tree. One of a driver has nothing to do: the driver runs inside the test.
func nodeImages(tree string) ([]image.Image, error) {
	// It has the versions of images that upstream's tests use.
	file := filepath.Join(tree, "test", "utils", "image", "manifest.go")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	match := busybox.FindSubmatch(content)
	if match == nil {
		return nil, fmt.Errorf("%s has no busybox of upstream's registry for tests; which image do pods have now?", file)
	}
	manifests, err := manifestImages(tree)
	if err != nil {
		return nil, err
	}
	names := append([]string{"registry.k8s.io/e2e-test-images/busybox:" + string(match[1])}, imageNames(manifests)[hostPathProgram]...)
	return []image.Image{{Names: names, Shell: true, Command: []string{"sh"}}}, nil
}

var (
	busybox    = regexp.MustCompile(`\{list\.PromoterE2eRegistry, "busybox", "([^"]+)"\}`)
	imageField = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*(\S+)`)
	imageRef   = regexp.MustCompile(`(?m)^"?([^\s{"]+/([^/\s{":]+):[^/\s{":]+)"?$`)
)

// manifestImages lists the images in the manifests of upstream's tests, one in a line.
func manifestImages(tree string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(filepath.Join(tree, "test", "e2e", "testing-manifests"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range imageField.FindAllSubmatch(content, -1) {
			fmt.Fprintln(&b, string(match[1]))
		}
		return err
	})
	return b.String(), err
}

// imageNames are the references in a list, one in each line, by their name without registry and tag.
func imageNames(list string) map[string][]string {
	names := map[string][]string{}
	for _, match := range imageRef.FindAllStringSubmatch(list, -1) {
		if ref, name := match[1], match[2]; !slices.Contains(names[name], ref) {
			names[name] = append(names[name], ref)
		}
	}
	return names
}
