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

// Forms writes the patches from one content of a file to another with three lines of
// context, which is the canonical one, and with fewer. Those with fewer lines are for
// a file that stands in several versions of a tree, which differ beside the place;
// [Patch.Apply] wants the place of each of their hunks to be the only one, and those
// for which that is not so are left out.
func Forms(ctx context.Context, path string, c Change) ([][]byte, error) {
	var forms [][]byte
	for lines := fullContext; lines > 0; lines-- {
		data, err := diff(ctx, path, c.Before, c.After, lines)
		if err != nil || data == nil {
			return nil, err
		}
		if ok, err := makes(data, c); err != nil {
			return nil, err
		} else if ok {
			forms = append(forms, data)
		}
	}
	return forms, nil
}

// Shared writes the patch of a file that stands in several versions of a tree, and
// gets the same change in each: that of the first version, with as much context as
// the others allow. The result is nil if there is none that makes all the changes.
func Shared(ctx context.Context, path string, changes []Change) ([]byte, error) {
	forms, err := Forms(ctx, path, changes[0])
	if err != nil {
		return nil, err
	}
	for _, data := range forms {
		if ok, err := makes(data, changes[1:]...); ok || err != nil {
			return data, err
		}
	}
	return nil, nil
}

// makes says whether a patch gives the right result in every version.
func makes(data []byte, changes ...Change) (bool, error) {
	p, err := Parse(data)
	if err != nil {
		return false, err
	}
	for _, c := range changes {
		after, err := p.Apply(c.Before)
		if err != nil || !bytes.Equal(after, c.After) {
			return false, nil
		}
	}
	return true, nil
}
