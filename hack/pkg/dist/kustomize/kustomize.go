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

// Package kustomize makes of a folder what "kubectl apply -k" applies.
package kustomize

import (
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build returns the manifests of a folder with a kustomization. It is an error if no object has the image, unless
// that is empty.
func Build(dir, image string) (string, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	text, err := objects.AsYaml()
	if err == nil && image != "" && !strings.Contains(string(text), "image: "+image+"\n") {
		err = fmt.Errorf("no object has the image %s", image)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	return string(text), nil
}
