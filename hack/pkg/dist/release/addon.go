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
func (a Addon) image(ctx context.Context, dir, arch string) error {
	bin, err := os.MkdirTemp(dir, ".addon-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := buildProgram(ctx, a.Dir, a.Package, "linux", arch, bin, a.name()); err != nil {
		return err
	}
	licences, err := licenceFiles(bin)
	if err != nil {
		return err
	}
	i := image.Image{
		Names:      []string{a.Image},
		Programs:   map[string]string{"/" + a.name(): filepath.Join(bin, a.name())},
		Files:      licences,
		Entrypoint: []string{"/" + a.name()},
		Arch:       arch,
	}
	return i.Write(ctx, filepath.Join(dir, fmt.Sprintf("%s-linux-%s.tar", a.name(), arch)))
}

// licenceFiles are the licences that buildProgram has put into a folder, as files of an image.
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

// manifests writes what kubectl apply -k would apply.
func (a Addon) manifests(dir string) error {
	text, err := kustomize.Build(filepath.Join(a.Dir, a.Manifests), a.Image)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, a.name()+".yaml"), []byte(text), 0o644)
}
