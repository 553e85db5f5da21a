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

package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/capability"

	"kubernetes-dra/hack/pkg/sys"
)

// startEngine starts a Docker engine for this test alone, if none answers.
func (s *subject) startEngine() (started bool) {
	s.Helper()
	answers := func() error { return sys.Run(s.ctx, sys.Command(s.ctx, "", nil, "docker", "version")) }
	if answers() == nil {
		return false
	}
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		s.Fatal("no Docker engine answers, and only root can start one: start it (systemctl start docker), name one with DOCKER_HOST, or be root on a machine with dockerd (on Debian and Ubuntu: apt-get install docker.io)")
	}
	logf("no Docker engine answers: start one for the test alone")
	dir := filepath.Join(s.output, "docker")
	args := []string{filepath.Join(s.folder, "engine.sh"), dir}
	if lacking := s.lacking(); len(lacking) > 0 {
		runtime := filepath.Join(s.dir, "runc")
		s.must(writeRuntime(runtime, filepath.Join(s.folder, "runc.sh"), lacking))
		args = append(args, "--add-runtime=fewer="+runtime, "--default-runtime=fewer")
	}
	log := s.create("dockerd.log")
	// It is told to end when the test has ended, and then removes what it made.
	cmd := sys.Command(context.WithoutCancel(s.ctx), dir, nil, args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.folder, log, log
	s.must(cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	s.atEnd("stop the Docker engine", func(ctx context.Context) error {
		if err := cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("it has ended: %w", <-exited)
		}
		select {
		case <-exited:
			return nil
		case <-ctx.Done():
			return errors.New("it does not end")
		}
	})
	s.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock"))
	s.eventually("the Docker engine answers, see "+log.Name(), answers)
	return true
}

// lacking are the capabilities of the kernel that this process cannot give to others: CAP_CHOWN.
func (s *subject) lacking() []string {
	s.Helper()
	process, err := capability.NewPid2(0)
	s.must(err)
	s.must(process.Load())
	all, err := capability.ListSupported()
	s.must(err)
	var names []string
	for _, c := range all {
		if !process.Get(capability.BOUNDING, c) {
			names = append(names, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return names
}

// writeRuntime writes a container runtime that leaves out capabilities.
func writeRuntime(file, script string, lacking []string) error {
	return os.WriteFile(file, fmt.Appendf(nil, "#!/bin/sh\nLACKING='%s' exec '%s' \"$@\"\n", strings.Join(lacking, "|"), script), 0o755)
}

// A specification loses the capabilities that a machine does not have, and nothing else.
func TestRuntime(t *testing.T) {
	dir := t.TempDir()
	script, err := filepath.Abs("runc.sh")
	if err != nil {
		t.Fatal(err)
	}
	runtime := filepath.Join(dir, "runtime")
	if err := writeRuntime(runtime, script, []string{"CAP_SYS_RESOURCE", "CAP_BPF"}); err != nil {
		t.Fatal(err)
	}
	// It shows what the real one would get.
	if err := os.WriteFile(filepath.Join(dir, "runc"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(dir, "config.json")
	for _, args := range []string{"--root /r create --bundle " + dir + " id", "create --bundle=" + dir + " id", "exec --process " + spec + " id", "exec --process=" + spec + " id"} {
		for before, after := range map[string]string{
			`{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_BPF"]}`: `{"bounding":["CAP_CHOWN"],"effective":[]}`,
			`{"bounding":["CAP_BPF","CAP_SYS_RESOURCE","CAP_CHOWN"]}`:               `{"bounding":["CAP_CHOWN"]}`,
			`{"args":["CAP_CHOWN"]}`: `{"args":["CAP_CHOWN"]}`,
		} {
			if err := os.WriteFile(spec, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(runtime, strings.Fields(args)...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != args {
				t.Errorf("%s: %v: runc got %s", args, err, out)
			}
			if got, err := os.ReadFile(spec); err != nil || string(got) != after {
				t.Errorf("%s: want %s, got %s, %v", args, after, got, err)
			}
		}
	}
}

// eventually waits for something that takes seconds on a machine with nothing else to do.
func (s *subject) eventually(what string, condition func() error) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(500 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || s.ctx.Err() != nil {
			s.Fatalf("%s: %v", what, err)
		}
	}
}
