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

package patch

import (
	"bytes"
	"context"
)

// Change is what a patch makes of a file.
type Change struct {
	Before, After []byte
}

// Shared writes the canonical patch of a file that stands in several versions of
// a tree, and gets the same change in each: that of the first version, which
// gives the right result in the others, too. It has three lines of context, or
// fewer if the versions differ there. A patch with fewer lines is one only if the
// place of each hunk is the only one in every version. The result is nil if there
// is no such patch.
func Shared(ctx context.Context, path string, changes []Change) ([]byte, error) {
	for lines := fullContext; lines > 0; lines-- {
		data, err := diff(ctx, path, changes[0].Before, changes[0].After, lines)
		if err != nil || data == nil {
			return nil, err
		}
		p, err := Parse(data)
		if err != nil {
			return nil, err
		}
		if p.makes(changes, lines < fullContext) {
			return data, nil
		}
	}
	return nil, nil
}

// makes says whether the patch gives the right result in every version.
func (p *Patch) makes(changes []Change, unique bool) bool {
	for _, c := range changes {
		after, err := p.apply(c.Before, unique)
		if err != nil || !bytes.Equal(after, c.After) {
			return false
		}
	}
	return true
}
