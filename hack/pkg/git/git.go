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

// Package git runs git in an environment that does not depend on who runs it:
// no user or system configuration, no hooks, no GIT_* variables, no signing.
// The same input gives the same commits on every machine.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// Dir is a directory in which git runs: a work tree or a repository.
type Dir string

// Cmd returns the command "git args..." in d, ready to run. What git does to a
// tree is stopped through ctx or not at all, see [sys.Command].
func (d Dir) Cmd(ctx context.Context, args ...string) *exec.Cmd {
	settings := []string{
		"-c", "core.autocrlf=false",
		"-c", "core.safecrlf=false",
		"-c", "core.fileMode=true",
		"-c", "core.quotePath=false",
		"-c", "core.hooksPath=/dev/null",
		"-c", "core.attributesFile=/dev/null",
		"-c", "core.excludesFile=/dev/null",
		"-c", "core.fsmonitor=false",
		"-c", "commit.gpgSign=false",
		"-c", "gc.auto=0",
		"-c", "safe.directory=*",
		"-c", "advice.detachedHead=false",
		"-c", "diff.indentHeuristic=true",
	}
	return sys.Command(ctx, string(d), Environ(), "git", append(settings, args...)...)
}

// Environ is the environment of every git command: that of this process
// without what would make git behave differently.
func Environ() []string {
	return sys.Without([]string{"GIT_*", "LC_*", "LANG*"},
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"LC_ALL=C",
		"TZ=UTC",
	)
}

// Run runs git and returns what it printed, without the last newline. The
// error holds the command and what git said about it.
func (d Dir) Run(ctx context.Context, args ...string) (string, error) {
	out, err := d.Output(ctx, nil, nil, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// Output runs git with the standard input and additional environment, and
// returns what it printed, byte for byte.
func (d Dir) Output(ctx context.Context, stdin io.Reader, env []string, args ...string) ([]byte, error) {
	cmd := d.Cmd(ctx, args...)
	cmd.Stdin = stdin
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), Error(ctx, args, stderr.String(), err)
	}
	return stdout.Bytes(), nil
}

// WorkTree writes the files of the work tree as they are now, edits and new files included, as
// a tree into the object store, and returns it. The index stays as it is. Pathspecs say which
// files count as edited or new, all without any.
func (d Dir) WorkTree(ctx context.Context, pathspecs ...string) (string, error) {
	tmp, err := os.MkdirTemp("", "carry-index-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	// A copy of the index, so that unchanged files need not be read.
	original, err := d.Run(ctx, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return "", err
	}
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
	if _, err := d.Output(ctx, nil, env, append([]string{"add", "--all", "--"}, pathspecs...)...); err != nil {
		return "", err
	}
	out, err := d.Output(ctx, nil, env, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// Error describes a git command that failed.
func Error(ctx context.Context, args []string, stderr string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("git is not installed")
	}
	if msg := strings.TrimSpace(stderr); msg != "" {
		// On a full disk, a checkout says the same of each file.
		if lines := strings.Split(msg, "\n"); len(lines) > maxLines {
			msg = "...\n" + strings.Join(lines[len(lines)-maxLines:], "\n")
		}
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, msg)
	}
	return fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
}

// maxLines is how much of what git says is in an error.
const maxLines = 20

// ExitCode returns the exit status that err, from one of this package's
// functions, stands for; -1 if git did not exit by itself.
func ExitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// SplitZ splits the output of a command that ran with -z.
func SplitZ(out []byte) []string {
	var items []string
	for item := range strings.SplitSeq(string(out), "\x00") {
		if item != "" {
			items = append(items, item)
		}
	}
	return items
}
