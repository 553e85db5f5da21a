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

package tree

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

// edit is a file that differs between two trees: what it is in the second.
type edit struct {
	Path string
	// Mode and Hash in the second tree.
	Mode, Hash string
	// OldMode in the first tree.
	OldMode string
}

func (e edit) gone() bool    { return e.Mode == "000000" }
func (e edit) regular() bool { return e.Mode == "100644" || e.Mode == "100755" }

// diffTrees lists the files that differ, ordered by path.
func diffTrees(ctx context.Context, repo git.Dir, from, to string) ([]edit, error) {
	out, err := repo.Output(ctx, nil, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", from, to)
	if err != nil {
		return nil, err
	}
	var edits []edit
	fields := git.SplitZ(out)
	for i := 0; i+1 < len(fields); i += 2 {
		// :oldmode newmode oldhash newhash status
		meta := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(meta) != 5 {
			return nil, fmt.Errorf("git diff-tree: unexpected %q", fields[i])
		}
		edits = append(edits, edit{Path: fields[i+1], OldMode: meta[0], Mode: meta[1], Hash: meta[3]})
	}
	return edits, nil
}

// pathsOf takes the paths out of what diffTrees returns.
func pathsOf(edits []edit, err error) ([]string, error) {
	var paths []string
	for _, e := range edits {
		paths = append(paths, e.Path)
	}
	return paths, err
}

// summary names some of the edits.
func summary(edits []edit) string {
	const most = 10
	paths, _ := pathsOf(edits, nil)
	if more := len(paths) - most; more > 0 {
		paths = append(paths[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(paths, ", ")
}

// edits lists what differs between what carry built and what stands in the
// work tree: uncommitted edits, new files, and commits that are not carry's. What it
// wrote before it was interrupted is no edit.
func (t *Tree) edits(ctx context.Context, s *State) ([]edit, error) {
	work, err := t.git().WorkTree(ctx)
	if err != nil {
		return nil, err
	}
	edits, err := diffTrees(ctx, t.git(), s.Head, work)
	if err != nil {
		return nil, err
	}
	if s.Next != "" {
		// They are the old ones, the new ones, or half of one.
		written, err := pathsOf(diffTrees(ctx, t.git(), s.Head, s.Next))
		if err != nil {
			return nil, err
		}
		edits = slices.DeleteFunc(edits, func(e edit) bool { return slices.Contains(written, e.Path) })
	}
	// The go command completes the checksums of some releases by itself, whatever it is
	// asked to do.
	return slices.DeleteFunc(edits, func(e edit) bool { return e.Path == "go.work.sum" }), nil
}

// Edited lists the paths of files in the tree that differ from what the
// overlay makes them.
func (t *Tree) Edited(ctx context.Context) ([]string, error) {
	s, err := t.State()
	if err != nil || s == nil {
		return nil, err
	}
	return pathsOf(t.edits(ctx, s))
}

// checkEdits refuses to go on if the new state would replace edits. An edit
// that the overlay has by now, because it was saved, is none; and an edit of
// generated code is worth nothing.
func (b *build) checkEdits(ctx context.Context) error {
	edits, err := b.edits(ctx, b.old)
	if err != nil || len(edits) == 0 {
		return err
	}
	work, err := b.git().WorkTree(ctx)
	if err != nil {
		return err
	}
	differ, err := pathsOf(diffTrees(ctx, b.repo(), b.state.Head, work))
	if err != nil {
		return err
	}
	generated, err := pathsOf(diffTrees(ctx, b.repo(), b.old.Written(), b.old.Head))
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(edits, func(e edit) bool {
		return !slices.Contains(differ, e.Path) || slices.Contains(generated, e.Path) || overlay.IsGenerated(e.Path, nil)
	})
	if len(lost) > 0 {
		return fmt.Errorf("%s has edits that the overlay does not have: %s; take them back with \"make save RELEASE=%s\", or drop them with git",
			b.Dir(), summary(lost), b.Release.Name)
	}
	return nil
}
