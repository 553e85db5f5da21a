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

// Package engine is the Docker engine that a test uses: the one that answers, or one of its own.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/sys"
)

// Engine was started here. It has all its files in one folder.
type Engine struct {
	dir    string
	cmd    *exec.Cmd
	exited chan error
	before network
}

// Start starts an engine with its files in a folder, which must not exist or be one that an engine of
// this package left. It lets DOCKER_HOST of this process name it. If an engine answers already,
// Start returns nil.
func Start(ctx context.Context, dir string) (_ *Engine, err error) {
	if sys.Run(ctx, sys.Command(ctx, "", nil, "docker", "version")) == nil {
		return nil, nil
	}
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		return nil, errors.New("no Docker engine answers, and only root can start one: start it (systemctl start docker), name one with DOCKER_HOST, or be root on a machine with dockerd (on Debian and Ubuntu: apt-get install docker.io)")
	}
	e := &Engine{dir: dir, exited: make(chan error, 1)}
	if err := e.removeLeft(ctx); err != nil {
		return nil, fmt.Errorf("what an interrupted run left in %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if e.before, err = readNetwork(ctx); err != nil {
		return nil, err
	}
	state, err := json.Marshal(e.before)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(e.stateFile(), state, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(e.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	socket := "unix://" + filepath.Join(dir, "docker.sock")
	args := []string{
		"--host=" + socket, "--log-level=warn",
		"--cgroup-parent=/" + group, "--exec-opt=native.cgroupdriver=cgroupfs",
		"--data-root=" + filepath.Join(dir, "data"), "--exec-root=" + filepath.Join(dir, "exec"), "--pidfile=" + e.pidFile(),
	}
	if fewer, err := LacksCapabilities(); err != nil {
		return nil, err
	} else if fewer {
		runtime, err := linkRuntime(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--add-runtime="+runtimeName+"="+runtime, "--default-runtime="+runtimeName)
	}
	// It ends with Stop, not with ctx: its containers would stay.
	e.cmd = sys.Command(context.WithoutCancel(ctx), dir, nil, "dockerd", args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.exited <- e.cmd.Wait() }()
	if err := os.Setenv("DOCKER_HOST", socket); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if err = sys.Run(ctx, sys.Command(ctx, "", nil, "docker", "version")); err == nil {
			return e, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
	}
	content, _ := os.ReadFile(e.logFile())
	return nil, errors.Join(fmt.Errorf("dockerd does not answer: %w%s", err, sys.Indented(string(content))), e.Stop(ctx))
}

func (e *Engine) logFile() string   { return filepath.Join(e.dir, "dockerd.log") }
func (e *Engine) stateFile() string { return filepath.Join(e.dir, "network.json") }
func (e *Engine) pidFile() string   { return filepath.Join(e.dir, "pid") }

// Stop ends the engine and removes what it made: files, interfaces, rules of iptables, control groups.
// Its containers must be gone.
func (e *Engine) Stop(ctx context.Context) error {
	if e == nil {
		return nil
	}
	if err := os.Unsetenv("DOCKER_HOST"); err != nil {
		return err
	}
	// It tells its children.
	err := e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.exited:
	case <-time.After(time.Minute):
		err = errors.Join(err, errors.New("dockerd does not end"), sys.Signal(e.cmd, syscall.SIGKILL))
		<-e.exited
	}
	return errors.Join(err, e.remove(ctx))
}

// removeLeft removes an engine of a process that could not stop it.
func (e *Engine) removeLeft(ctx context.Context) error {
	state, err := os.ReadFile(e.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return e.removeFiles()
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(state, &e.before); err != nil {
		return fmt.Errorf("%s: %w", e.stateFile(), err)
	}
	content, _ := os.ReadFile(e.pidFile())
	if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && runsIn(pid, e.dir) {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return err
		}
		for deadline := time.Now().Add(time.Minute); runsIn(pid, e.dir); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("dockerd (process %d) does not end: kill it", pid)
			}
		}
	}
	return e.remove(ctx)
}

// remove removes what an engine that has ended made.
func (e *Engine) remove(ctx context.Context) error {
	return errors.Join(e.before.restore(ctx), cluster.RemoveCgroup(ctx, group), e.removeFiles())
}

// runsIn tells whether a process has a folder on its command line.
func runsIn(pid int, dir string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(cmdline), dir+"/")
}

// removeFiles removes the folder, without what is still mounted in it.
func (e *Engine) removeFiles() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			if err := syscall.Unmount(fields[4], syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[4], err)
			}
		}
	}
	return os.RemoveAll(e.dir)
}

// group is the control group of all containers. Another engine has another one.
const group = "kubernetes-dra-docker"

const forwarding = "/proc/sys/net/ipv4/ip_forward"

// network is what an engine changes of this machine's network.
type network struct {
	Interfaces map[string]bool
	// Rules are those of iptables-save, by the program that restores them.
	Rules   map[string]string
	Forward []byte
}

func readNetwork(ctx context.Context) (network, error) {
	n := network{Interfaces: map[string]bool{}, Rules: map[string]string{}}
	all, err := net.Interfaces()
	if err != nil {
		return n, err
	}
	for _, i := range all {
		n.Interfaces[i.Name] = true
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		rules, err := sys.Output(ctx, sys.Command(ctx, "", nil, program+"-save"))
		if err != nil {
			return n, err
		}
		n.Rules[program+"-restore"] = rules
	}
	n.Forward, err = os.ReadFile(forwarding)
	return n, err
}

// restore makes the network what it was.
func (n network) restore(ctx context.Context) error {
	now, err := readNetwork(ctx)
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(forwarding, n.Forward, 0)}
	for name := range now.Interfaces {
		if !n.Interfaces[name] && (name == "docker0" || strings.HasPrefix(name, "br-")) {
			errs = append(errs, sys.Run(ctx, sys.Command(ctx, "", nil, "ip", "link", "delete", name)))
		}
	}
	for program, rules := range n.Rules {
		if rules += cleared(rules, now.Rules[program]); rules == "" {
			continue
		}
		cmd := sys.Command(ctx, "", nil, program)
		cmd.Stdin = strings.NewReader(rules)
		errs = append(errs, sys.Run(ctx, cmd))
	}
	return errors.Join(errs...)
}

// cleared are commands for iptables-restore that empty those tables which were not there before. It
// leaves tables alone that it is not told of.
func cleared(before, after string) string {
	var out strings.Builder
	wanted := false
	for line := range strings.Lines(after) {
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "*"):
			if wanted = !strings.Contains("\n"+before, "\n"+line); wanted {
				out.WriteString(line)
			}
		case !wanted:
		case strings.HasPrefix(line, ":") && len(fields) > 1 && fields[1] != "-":
			// A chain that is always there.
			out.WriteString(fields[0] + " ACCEPT [0:0]\n")
		case line == "COMMIT\n":
			out.WriteString(line)
		}
	}
	return out.String()
}
