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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/sys"
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
	program := filepath.Join(bin, a.name())
	// Without the state of the checkout in it, the same code gives the same bytes.
	build := sys.Command(ctx, a.Dir, sys.GoEnviron("GOOS=linux", "GOARCH="+arch), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, a.Package)
	if err := sys.Run(ctx, build); err != nil {
		return fmt.Errorf("%s: %w", a.Package, err)
	}
	licences, err := a.licences(ctx, bin)
	if err != nil {
		return err
	}
	i := image.Image{
		Names:      []string{a.Image},
		Programs:   map[string]string{"/" + a.name(): program},
		Files:      licences,
		Entrypoint: []string{"/" + a.name()},
		Arch:       arch,
	}
	return i.Write(ctx, filepath.Join(dir, fmt.Sprintf("%s-linux-%s.tar", a.name(), arch)))
}

// licences are those of the modules in the program, which is in the folder bin, as files of the image.
func (a Addon) licences(ctx context.Context, bin string) (map[string][]byte, error) {
	modules, err := modulesOf(bin, []string{a.name()})
	if err != nil {
		return nil, err
	}
	if err := copyLicences(ctx, bin, a.Dir, modules); err != nil {
		return nil, err
	}
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
	from := filepath.Join(a.Dir, a.Manifests)
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	text, err := objects.AsYaml()
	if err == nil && !strings.Contains(string(text), "image: "+a.Image+"\n") {
		err = errors.New("no object has the image " + a.Image)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return os.WriteFile(filepath.Join(dir, a.name()+".yaml"), text, 0o644)
}
