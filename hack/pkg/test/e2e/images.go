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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/dist/image"
)

// suiteImage is one that the specs use.
type suiteImage struct {
	// name is that of the image without registry and tag.
	name string
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
	manifests, err := imagesIn(filepath.Join(s.Tree, "test", "e2e", "testing-manifests"))
	if err != nil {
		return nil, err
	}
	names := imageNames(out + manifests)
	var images []image.Image
	for _, img := range s.images() {
		img.Names = names[img.name]
		if len(img.Names) == 0 {
			return nil, fmt.Errorf("neither %s --list-images nor the manifests of %s have an image called %s; is it still in use?",
				s.program(suiteProgram), s.Tree, img.name)
		}
		images = append(images, img.Image)
	}
	return images, nil
}

func (s *Suite) images() []suiteImage {
	program := func(path, name string) map[string]string { return map[string]string{path: s.program(name)} }
	return []suiteImage{
		{"agnhost", image.Image{
			Programs: program("/agnhost", agnhost), Shell: true, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		}},
		{"busybox", image.Image{Shell: true, Command: []string{"sh"}}},
		{"hostpathplugin", image.Image{
			Programs: program("/hostpathplugin", hostPathProgram), Shell: true, Entrypoint: []string{"/hostpathplugin"},
		}},
		{"pause", image.Image{Programs: program("/pause", pauseProgram), Entrypoint: []string{"/pause"}}},
		{"sample-device-plugin", image.Image{
			Programs: program("/sampledeviceplugin", devicePlugin), Shell: true, Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"},
		}},
	}
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
