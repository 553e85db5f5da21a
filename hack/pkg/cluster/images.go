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
	"context"
	"fmt"
	"os"

	"kubernetes-dra/hack/pkg/dist/image"
)

// pauseImage keeps the namespaces of a pod.
const pauseImage = "dra.example.com/pause:1"

// images are those of the real node.
func (c *Cluster) images() []image.Image {
	images := []image.Image{{Names: []string{pauseImage}, Programs: map[string]string{"/pause": c.own("pause")}, Command: []string{"/pause"}}}
	if !c.Options.Bare {
		images = append(images,
			image.Image{Names: []string{ShellImage}, Shell: true, Command: []string{"sh"}},
			image.Image{Names: []string{networkImage}, Programs: map[string]string{"/" + NetworkDaemonSet: c.own(NetworkDaemonSet)}},
		)
	}
	return append(images, c.Options.Images...)
}

// imagesDir is the folder in that of the cluster with images until all nodes have them.
const imagesDir = "images"

// archives are the images of the real nodes: those that are made here out of what is
// on this machine, and those that somebody made before.
func (c *Cluster) archives(ctx context.Context) ([]string, error) {
	images, archives := c.images(), []string(nil)
	if c.Options.Kubeadm != nil {
		more, err := c.kubeadmImages()
		if err != nil {
			return nil, err
		}
		images, archives = append(images, more...), append(archives, c.Options.Kubeadm.Archives...)
	}
	if err := os.MkdirAll(c.path(imagesDir), 0o755); err != nil {
		return nil, err
	}
	for i, img := range images {
		archive := c.path(imagesDir, fmt.Sprintf("image-%d.tar", i))
		if err := img.Write(ctx, archive); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}
