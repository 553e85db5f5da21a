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

	"kubernetes-dra/hack/pkg/image"
)

// pauseImage keeps the namespaces of a pod.
const pauseImage = "dra.example.com/pause:1"

// images are those of the real node.
func (c *Cluster) images() []image.Image {
	return append([]image.Image{
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
		archive := c.path("node", fmt.Sprintf("image-%d.tar", i))
		if err := img.Write(ctx, archive); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}
