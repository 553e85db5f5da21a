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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

const noMode = "000000"

func (e edit) gone() bool    { return e.Mode == noMode }
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

// show returns the content of a file in a commit, nil if there is none.
func (t *Tree) show(ctx context.Context, commit, path string) ([]byte, error) {
	entry, err := t.git().Output(ctx, nil, nil, "ls-tree", "-z", commit, "--", path)
	if err != nil || len(entry) == 0 {
		return nil, err
	}
	content, err := t.git().Output(ctx, nil, nil, "cat-file", "blob", commit+":"+path)
	if content == nil && err == nil {
		content = []byte{} // empty, but there
	}
	return content, err
}

// workTree writes the files of the work tree as they are now, edits and new
// files included, as a tree into the object store. The index stays as it is.
func (t *Tree) workTree(ctx context.Context) (string, error) {
	tmp, err := os.MkdirTemp("", "carry-index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	// A copy of the index, so that unchanged files need not be read.
	original := filepath.Join(t.Dir(), ".git", "index")
	info, err := os.Stat(original)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	index := filepath.Join(tmp, "index")
	// As old as the original: what changed in the second in which the index was written
	// looks unchanged, and git reads it because it is not older than the index.
	if err := errors.Join(os.WriteFile(index, data, 0o600), os.Chtimes(index, info.ModTime(), info.ModTime())); err != nil {
		return "", err
	}
	env := []string{"GIT_INDEX_FILE=" + index}
	if _, err := t.git().Output(ctx, nil, env, "add", "--all"); err != nil {
		return "", err
	}
	out, err := t.git().Output(ctx, nil, env, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// edits lists what differs between what carry built and what stands in the
// work tree: uncommitted edits, new files, and commits that are not carry's.
func (t *Tree) edits(ctx context.Context, s *State) ([]edit, error) {
	work, err := t.workTree(ctx)
	if err != nil {
		return nil, err
	}
	edits, err := diffTrees(ctx, t.git(), s.Head, work)
	return slices.DeleteFunc(edits, func(e edit) bool { return e.Path == workSums }), err
}

// workSums is no edit: the go command completes the checksums of some releases by itself,
// whatever it is asked to do.
const workSums = "go.work.sum"

// Edited lists the paths of files in the tree that differ from what the
// overlay makes them.
func (t *Tree) Edited(ctx context.Context) ([]string, error) {
	s, err := t.State()
	if err != nil || s == nil {
		return nil, err
	}
	edits, err := t.edits(ctx, s)
	var paths []string
	for _, e := range edits {
		paths = append(paths, e.Path)
	}
	return paths, err
}

// summary names some of the edits.
func summary(edits []edit) string {
	const most = 10
	var paths []string
	for i, e := range edits {
		if i == most {
			paths = append(paths, fmt.Sprintf("%d more", len(edits)-most))
			break
		}
		paths = append(paths, e.Path)
	}
	return strings.Join(paths, ", ")
}

// checkEdits refuses to go on if the new state would replace edits. An edit
// that the overlay has by now, because it was saved, is none; and an edit of
// generated code is worth nothing.
func (b *build) checkEdits(ctx context.Context) error {
	target := b.state.Head
	if target == "" { // before the generators have run
		target = b.state.Written()
	}
	edits, err := b.edits(ctx, b.old)
	if err != nil || len(edits) == 0 {
		return err
	}
	work, err := b.workTree(ctx)
	if err != nil {
		return err
	}
	differ, err := diffTrees(ctx, b.repo(), target, work)
	if err != nil {
		return err
	}
	generated, err := pathsOf(diffTrees(ctx, b.repo(), b.old.Written(), b.old.Head))
	if err != nil {
		return err
	}
	var lost []edit
	for _, e := range edits {
		if slices.ContainsFunc(differ, func(d edit) bool { return d.Path == e.Path }) &&
			!slices.Contains(generated, e.Path) && !overlay.IsGenerated(e.Path, nil) {
			lost = append(lost, e)
		}
	}
	if len(lost) > 0 {
		return &EditsError{Dir: b.Dir(), Release: b.Release.Name, paths: summary(lost)}
	}
	return nil
}

// EditsError says that building the tree would replace edits.
type EditsError struct {
	Dir, Release string
	paths        string
}

func (e *EditsError) Error() string {
	return fmt.Sprintf("%s has edits that the overlay does not have: %s; take them back with \"make save RELEASE=%s\", or drop them with git",
		e.Dir, e.paths, e.Release)
}

// pathsOf takes the paths out of what diffTrees returns.
func pathsOf(edits []edit, err error) ([]string, error) {
	var paths []string
	for _, e := range edits {
		paths = append(paths, e.Path)
	}
	return paths, err
}

// journal is on disk while the work tree is being changed.
type journal struct {
	// From and To are the commits before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// State is the state after.
	State *State `json:"state"`
}

// publish makes the new state the state of the tree. It is not interrupted:
// should the process be killed all the same, recover finishes the work.
func (b *build) publish(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if b.isFresh() {
		if err := checkout(ctx, b.repo(), b.state.Head); err != nil {
			return err
		}
		if err := writeJSON(own(b.dir, stateFile), b.state); err != nil {
			return err
		}
		return os.Rename(b.dir, b.Dir())
	}
	// Again: someone may have edited the tree while the generators ran.
	if err := b.checkEdits(ctx); err != nil {
		return err
	}
	if err := writeJSON(own(b.dir, journalFile), journal{From: b.old.Head, To: b.state.Head, State: b.state}); err != nil {
		return err
	}
	return b.finish(ctx, b.state)
}

// finish brings the work tree to the state's commit, writing only the files
// that differ, and ends the journal.
func (t *Tree) finish(ctx context.Context, s *State) error {
	if err := checkout(ctx, t.git(), s.Head); err != nil {
		return err
	}
	if err := writeJSON(own(t.Dir(), stateFile), s); err != nil {
		return err
	}
	return os.Remove(own(t.Dir(), journalFile))
}

func checkout(ctx context.Context, repo git.Dir, commit string) error {
	// Otherwise, files that were touched but not changed would be written.
	// It exits with 1 if it finds changes.
	if _, err := repo.Run(ctx, "update-index", "-q", "--refresh"); err != nil && git.ExitCode(err) != 1 {
		return err
	}
	_, err := repo.Run(ctx, "checkout", "--quiet", "--force", "--no-track", "-B", Branch, commit)
	return err
}

// recover cleans up after a run that was killed: folders that were prepared,
// and a work tree that was about to change.
func (t *Tree) recover(ctx context.Context) error {
	for _, dir := range []string{t.fresh(), t.scratch()} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	name := own(t.Dir(), journalFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var j journal
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("%s: %w: remove the tree to have it built anew", name, err)
	}
	t.Log("finishing an interrupted run")
	if err := os.Remove(filepath.Join(t.Dir(), ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// What is neither between the two commits nor part of either was not
	// written by carry.
	work, err := t.workTree(ctx)
	if err != nil {
		return err
	}
	var differ [3][]string
	for i, pair := range [][2]string{{j.From, work}, {j.To, work}, {j.From, j.To}} {
		if differ[i], err = pathsOf(diffTrees(ctx, t.git(), pair[0], pair[1])); err != nil {
			return err
		}
	}
	for _, p := range differ[0] {
		if slices.Contains(differ[1], p) && !slices.Contains(differ[2], p) {
			return fmt.Errorf("%s: building it was interrupted, and then %s was edited: keep a copy of it, undo the edit and try again", t.Dir(), p)
		}
	}
	return t.finish(context.WithoutCancel(ctx), j.State)
}
