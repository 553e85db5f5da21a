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

package e2edra

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/test/e2e"
)

// imageManifest has the versions of images that upstream's tests use, in their tree.
const imageManifest = "test/utils/image/manifest.go"

var busybox = regexp.MustCompile(`\{list\.PromoterE2eRegistry, "busybox", "([^"]+)"\}`)

// Images are those of the pods that the tests start, under the names that they have in the tree. One of a
// driver has nothing to do: the driver runs inside the test.
func Images(tree string) ([]image.Image, error) {
	file := filepath.Join(tree, filepath.FromSlash(imageManifest))
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	match := busybox.FindSubmatch(content)
	if match == nil {
		return nil, fmt.Errorf("%s has no busybox of upstream's registry for tests; which image do pods of %s have now?", file, Folder)
	}
	others, err := e2e.ManifestImages(tree)
	if err != nil {
		return nil, err
	}
	names := append([]string{"registry.k8s.io/e2e-test-images/busybox:" + string(match[1])}, others["hostpathplugin"]...)
	return []image.Image{{Names: names, Shell: true, Command: []string{"sh"}}}, nil
}
