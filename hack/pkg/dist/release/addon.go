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
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/dist/kustomize"
)

// Addon is a program of this repository that runs in the cluster. A release has its image for each
// architecture, which ctr, docker and kind can load, and its manifests in one file.
type Addon struct {
	// Dir is the folder of its Go module, Package the one of the program below that.
	Dir, Package string
	// Image is its name in the manifests.
	Image string
	// Manifests is a folder below Dir with a kustomization.
	Manifests string
}

func (a Addon) name() string { return path.Base(a.Package) }

// image builds the program, and writes the image.
func (a Addon) image(ctx context.Context, dir, arch string, build binaries.Options) error {
	p := program{dir: a.Dir, pkg: a.Package, system: "linux", arch: arch, build: build}
	return p.archive(ctx, dir, a.name(), fmt.Sprintf("%s-linux-%s.tar", a.name(), arch), func(root, file string) error {
		licences, err := licenceFiles(root)
		if err != nil {
			return err
		}
		i := image.Image{
			Names:      []string{a.Image},
			Programs:   map[string]string{"/" + a.name(): filepath.Join(root, a.name())},
			Files:      licences,
			Entrypoint: []string{"/" + a.name()},
			Arch:       arch,
		}
		return i.Write(ctx, file)
	})
}

// licenceFiles are the licences that come with a program, in a folder, as files of an image.
func licenceFiles(bin string) (map[string][]byte, error) {
	files, root := map[string][]byte{}, filepath.Join(bin, "kubernetes")
	return files, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, file)
		files["/"+name], err = os.ReadFile(file)
		return err
	})
}

// writeManifests writes into a file what kubectl apply -k would apply, with the image if there is one.
func writeManifests(file, dir, image string) error {
	text, err := kustomize.Build(dir, image)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
