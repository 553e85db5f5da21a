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
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// The author of all commits.
const authorName, authorMail = "Kubernetes DRA carry", "carry@kubernetes-dra.invalid"

// importer writes commits with git fast-import: straight from file contents
// into the object store, without a work tree or an index.
type importer struct {
	*bufio.Writer
	release *ledger.Release
}

// importCommits makes the commits that write describes, at the time of a release. Nothing
// but objects and the refs named in commit and tag change.
func importCommits(ctx context.Context, repo git.Dir, release *ledger.Release, write func(*importer) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		im := &importer{bufio.NewWriterSize(w, 1<<20), release}
		fmt.Fprintln(im, "feature done")
		err := write(im)
		if err == nil {
			// Without it, git takes the end of its input for an accident.
			fmt.Fprintln(im, "done")
			err = im.Flush()
		}
		w.CloseWithError(err)
		written <- err
	}()
	_, err := repo.Output(ctx, r, nil, "-c", "core.compression=1", "-c", "pack.compression=1", "fast-import", "--quiet", "--force", "--depth=0")
	// If git ended early, nobody reads any more.
	r.CloseWithError(io.ErrClosedPipe)
	if writeErr := <-written; writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) {
		return writeErr
	}
	return err
}

func (im *importer) data(content []byte) {
	fmt.Fprintf(im, "data %d\n%s\n", len(content), content)
}

// by says who writes a commit, or a tag, and when.
func (im *importer) by(role, message string) {
	fmt.Fprintf(im, "%s %s <%s> %d +0000\n", role, authorName, authorMail, im.release.Date().Unix())
	im.data([]byte(message))
}

// commit starts a commit on top of parent, which is empty for none. The files follow.
func (im *importer) commit(ref, parent, message string) {
	fmt.Fprintf(im, "commit %s\n", ref)
	im.by("committer", message)
	if parent != "" {
		fmt.Fprintf(im, "from %s\n", parent)
	}
}

// tag makes an annotated tag.
func (im *importer) tag(name, commit, message string) {
	fmt.Fprintf(im, "tag %s\nfrom %s\n", name, commit)
	im.by("tagger", message)
}

// file puts a file into the commit.
func (im *importer) file(path string, executable bool, content []byte) {
	mode := "100644"
	if executable {
		mode = "100755"
	}
	fmt.Fprintf(im, "M %s inline %s\n", mode, path)
	im.data(content)
}

// commitTree commits a tree that is in the object store already.
func commitTree(ctx context.Context, repo git.Dir, release *ledger.Release, tree, parent, message string) (string, error) {
	stamp := fmt.Sprintf("%d +0000", release.Date().Unix())
	out, err := repo.Output(ctx, strings.NewReader(message), []string{
		"GIT_AUTHOR_NAME=" + authorName, "GIT_AUTHOR_EMAIL=" + authorMail, "GIT_AUTHOR_DATE=" + stamp,
		"GIT_COMMITTER_NAME=" + authorName, "GIT_COMMITTER_EMAIL=" + authorMail, "GIT_COMMITTER_DATE=" + stamp,
	}, "commit-tree", tree, "-p", parent, "-F", "-")
	return strings.TrimSpace(string(out)), err
}

// baseMessage says which modules the untouched release is made of.
func baseMessage(r *ledger.Release) string {
	var m strings.Builder
	fmt.Fprintf(&m, `Kubernetes %[1]s

The files of the Go modules that make up the release: k8s.io/kubernetes
%[1]s and its staging modules %[2]s.
`, r.Version, r.StagingVersion())
	if len(r.StandIns) > 0 {
		fmt.Fprintf(&m, "\nOther versions stand in for %s of modules which cannot be had at it.\n\n", r.StagingVersion())
	}
	for _, s := range r.StandIns {
		m.WriteString(wrap("", fmt.Sprintf("%s %s: %s", s.Module, s.Version, s.Why)))
	}
	return m.String()
}

// subject is the first line of the message of a feature's commit.
func subject(f *ledger.Feature) string {
	if f.KEP == 0 {
		return f.Slug + ": " + f.Title
	}
	return fmt.Sprintf("%s: %s (KEP-%d)", f.Slug, f.Title, f.KEP)
}

// message is the message of a feature's commit.
func message(f *ledger.Feature, r *ledger.Release) string {
	var m strings.Builder
	m.WriteString(subject(f) + "\n\n" + wrap("", f.Why) + "\n")
	for _, c := range f.CarriesOf(r.Name) {
		m.WriteString(wrap("", c.Name+": "+c.Why) + wrap("  Upstream: ", c.Upstream) + wrap("  Drop when: ", c.DropWhen) + "\n")
	}
	if f.KEP != 0 {
		fmt.Fprintf(&m, "KEP: https://kep.k8s.io/%d\n", f.KEP)
	}
	if len(f.Gates) > 0 {
		m.WriteString(wrap("Feature gate: ", strings.Join(f.Gates, ", ")))
	}
	fmt.Fprintf(&m, "Release: %s (%s)\n", r.Version, f.Releases[r.Name])
	m.WriteString(wrap("Upstream: ", f.Upstream))
	m.WriteString(wrap("Drop when: ", f.DropWhen))
	return m.String()
}

const generatedMessage = `Generated code

What the release's own code generators make of the commits before. Nothing
in this commit was written by hand; run the generators again rather than
resolving a conflict in it.
`

// wrap fills the words of text into lines of at most 72 columns.
func wrap(prefix, text string) string {
	const width = 72
	indent := strings.Repeat(" ", len(prefix)-len(strings.TrimLeft(prefix, " ")))
	var out strings.Builder
	line := strings.TrimRight(prefix, " ")
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = indent + word
		case len(line)+1+len(word) > width:
			out.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	return out.String() + line + "\n"
}
