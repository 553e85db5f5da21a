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

// Package sys has what all parts of the tool need from the operating system:
// commands that end together with what they started, environments, locks
// between processes, and files that are replaced as a whole.
package sys

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// exitDelay is how long a command that was killed may keep its output open.
const exitDelay = 5 * time.Second

// Command returns "name args..." in the folder dir, ready to run. Without env it gets
// the environment of this process.
//
// It is in a process group of its own. When ctx ends, the whole group is killed: the
// go command, ginkgo and kind have children, which would go on otherwise. A Ctrl-C at the
// terminal reaches this program alone, which decides what becomes of the command.
func Command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return Signal(cmd, syscall.SIGKILL) }
	cmd.WaitDelay = exitDelay
	return cmd
}

// Signal sends a signal to a command of [Command], and to all that it started. It may
// have ended already. What it started may still run then.
func Signal(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd.Process == nil {
		return nil
	}
	return syscall.Kill(-cmd.Process.Pid, signal)
}

// Run runs a command of [Command] that has no output yet. If it fails, the error
// has the end of what it printed, or why ctx ended.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	_, err := Output(ctx, cmd)
	return err
}

// Output is Run, and returns what the command wrote to its standard output.
func Output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	what := filepath.Base(cmd.Path)
	if len(cmd.Args) > 1 {
		what += " " + cmd.Args[1]
	}
	return "", fmt.Errorf("%s: %w%s", what, err, Indented(stdout.String()+stderr.String()))
}

// maxLines is how many of the last lines of a failed command are shown.
const maxLines = 100

// Indented returns the last lines of what a command printed, to be put behind an error.
func Indented(out string) string {
	out = strings.TrimSpace(out)
	if out == "" {
		return ""
	}
	lines := strings.Split(out, "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	return "\n\t" + strings.Join(lines, "\n\t")
}
