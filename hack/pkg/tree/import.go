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
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/git"
)

// identity is the author of all commits.
const identity = "Kubernetes DRA carry <carry@kubernetes-dra.invalid>"

// importer writes commits with git fast-import: straight from file contents
// into the object store, without a work tree or an index.
type importer struct {
	when  time.Time
	marks int
	w     *bufio.Writer
	err   error
}

// importCommits runs write, and returns the hashes of the commits that it
// made, in order. Nothing but objects and the ref named in commit changes.
func importCommits(ctx context.Context, repo git.Dir, when time.Time, write func(*importer) error) ([]string, error) {
	tmp, err := os.MkdirTemp("", "carry-import-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	marks := filepath.Join(tmp, "marks")
	args := []string{"-c", "core.compression=1", "-c", "pack.compression=1", "fast-import", "--quiet", "--force", "--depth=0", "--export-marks=" + marks}
	cmd := repo.Cmd(ctx, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, git.Error(ctx, args[4:], "", err)
	}
	im := &importer{when: when, w: bufio.NewWriterSize(stdin, 1<<20)}
	im.printf("feature done\n")
	writeErr := write(im)
	if writeErr == nil {
		// Without it, git takes the end of its input for an accident.
		im.printf("done\n")
		if err := im.w.Flush(); im.err == nil {
			im.err = err
		}
	}
	stdin.Close()
	waitErr := cmd.Wait()
	switch {
	case writeErr != nil:
		return nil, writeErr
	case waitErr != nil:
		return nil, git.Error(ctx, []string{"fast-import"}, stderr.String(), waitErr)
	case im.err != nil:
		return nil, im.err
	}
	data, err := os.ReadFile(marks)
	if err != nil {
		return nil, err
	}
	hashes := make([]string, im.marks)
	for line := range strings.Lines(string(data)) {
		var mark int
		var hash string
		if _, err := fmt.Sscanf(line, ":%d %s", &mark, &hash); err != nil || mark < 1 || mark > len(hashes) {
			return nil, fmt.Errorf("git fast-import: unexpected mark %q", line)
		}
		hashes[mark-1] = hash
	}
	return hashes, nil
}

func (im *importer) printf(format string, args ...any) {
	if im.err == nil {
		_, im.err = fmt.Fprintf(im.w, format, args...)
	}
}

func (im *importer) data(content []byte) {
	im.printf("data %d\n", len(content))
	if im.err == nil {
		_, im.err = im.w.Write(content)
	}
	im.printf("\n")
}

// signature is the line of who and when.
func (im *importer) signature(role string) {
	im.printf("%s %s %d +0000\n", role, identity, im.when.Unix())
}

// commit starts a commit on top of parent (a hash, or a mark of this import;
// empty for none). The files follow.
func (im *importer) commit(ref, parent, message string) (mark string) {
	im.marks++
	mark = fmt.Sprintf(":%d", im.marks)
	im.printf("commit %s\nmark %s\n", ref, mark)
	im.signature("committer")
	im.data([]byte(message))
	if parent != "" {
		im.printf("from %s\n", parent)
	}
	return mark
}

// tag makes an annotated tag.
func (im *importer) tag(name, commit, message string) {
	im.printf("tag %s\nfrom %s\n", name, commit)
	im.signature("tagger")
	im.data([]byte(message))
}

// file puts a file into the commit.
func (im *importer) file(path string, executable bool, content []byte) {
	im.printf("M %s inline %s\n", mode(executable), path)
	im.data(content)
}

// entry puts a file with a known mode and hash into the commit.
func (im *importer) entry(mode, hash, path string) { im.printf("M %s %s %s\n", mode, hash, path) }

// remove takes a file out of the commit.
func (im *importer) remove(path string) { im.printf("D %s\n", path) }

func mode(executable bool) string {
	if executable {
		return "100755"
	}
	return "100644"
}

// commitTree commits a tree that is in the object store already.
func commitTree(ctx context.Context, repo git.Dir, when time.Time, tree, parent, message string) (string, error) {
	name, email, _ := strings.Cut(strings.TrimSuffix(identity, ">"), " <")
	stamp := fmt.Sprintf("%d +0000", when.Unix())
	out, err := repo.Output(ctx, strings.NewReader(message), []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email, "GIT_AUTHOR_DATE=" + stamp,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email, "GIT_COMMITTER_DATE=" + stamp,
	}, "commit-tree", tree, "-p", parent, "-F", "-")
	return strings.TrimSpace(string(out)), err
}
