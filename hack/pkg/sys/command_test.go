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

package sys

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command is killed together with what it started, and the cause is the error.
func TestCommandEndsWithItsChildren(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	// The child holds the pipe open for as long as it lives.
	go func() {
		ended <- Run(ctx, Command(ctx, "", nil, "sh", "-c", `sh -c "echo started; exec sleep 1000" >"$0" & wait`, alive))
	}()
	pipe, err := os.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	if n, err := pipe.Read(make([]byte, 8)); n != 8 {
		t.Fatal(n, err)
	}
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := pipe.Read(make([]byte, 8)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the child goes on: %v", err)
	}
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	out, err := Output(t.Context(), Command(t.Context(), dir, []string{"A=b"}, "/bin/sh", "-c", "pwd; echo $A; echo noise >&2"))
	if want := dir + "\nb\n"; err != nil || out != want {
		t.Errorf("got %q, %v", out, err)
	}
	_, err = Output(t.Context(), Command(t.Context(), dir, nil, "/bin/sh", "-c", "echo finding; echo why >&2; exit 3"))
	if want := "sh -c: exit status 3\n\tfinding\n\twhy"; err == nil || err.Error() != want {
		t.Errorf("want %q, got %v", want, err)
	}
	_, err = Output(t.Context(), Command(t.Context(), dir, nil, "/bin/sh", "-c", "seq 1000; exit 1"))
	if err == nil || strings.Count(err.Error(), "\n") != maxLines || !strings.HasSuffix(err.Error(), "\t1000") {
		t.Errorf("want the last %d lines, got %v", maxLines, err)
	}
	if err := Run(t.Context(), Command(t.Context(), dir, nil, filepath.Join(dir, "missing"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("want that the program is missing, got %v", err)
	}
	if err := Signal(Command(t.Context(), dir, nil, "true"), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestWithout(t *testing.T) {
	for _, name := range []string{"CARRY_A", "CARRY_B", "CARRYALL"} {
		t.Setenv(name, "x")
	}
	env := Without([]string{"CARRY_*"}, "CARRY_C=y")
	got := slices.DeleteFunc(env, func(s string) bool { return !strings.HasPrefix(s, "CARRY") })
	if !slices.Equal(got, []string{"CARRYALL=x", "CARRY_C=y"}) {
		t.Errorf("got %q", got)
	}
}
