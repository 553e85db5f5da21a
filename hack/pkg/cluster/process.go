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

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is the environment variable by which the processes of a cluster are
// found, whatever became of those that started them. Its value is the
// cluster's folder.
const marker = "KUBERNETES_DRA_CLUSTER"

// process is one that was started. A number alone does not identify it: the
// machine may have been restarted.
type process struct {
	Name string
	Args []string
	PID  int
	// Started is when, in clock ticks since the machine was started.
	Started uint64
	// Boot identifies that start of the machine.
	Boot string
}

func (p *process) alive() bool {
	stat, err := readStat(p.PID)
	return err == nil && stat.state != 'Z' && stat.state != 'X' && stat.started == p.Started && p.Boot == bootID()
}

type procStat struct {
	state   byte
	parent  int
	session int
	started uint64
	// code is where the program begins in memory. It is 0 while the kernel
	// still loads the program.
	code uint64
}

func readStat(pid int) (procStat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The name, which may contain anything, ends with the last parenthesis.
	i := bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[i+1:]))
	if i < 0 || len(fields) < 24 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: %q", pid, content)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, err
	}
	session, err := strconv.Atoi(fields[3])
	if err != nil {
		return procStat{}, err
	}
	started, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return procStat{}, err
	}
	code, err := strconv.ParseUint(fields[23], 10, 64)
	return procStat{state: fields[0][0], parent: parent, session: session, started: started, code: code}, err
}

func bootID() string {
	content, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content))
}

// start runs a program in the background, as a session of its own. What it
// prints goes to the log of its name. path comes before the usual folders with
// programs.
func (c *Cluster) start(name string, args []string, path ...string) (*process, error) {
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	fmt.Fprintf(log, "# %s %s\n", time.Now().Format(time.RFC3339), strings.Join(args, " "))

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = c.Options.Dir
	cmd.Env = []string{
		marker + "=" + c.Options.Dir,
		"PATH=" + strings.Join(append(path, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":"),
		"HOME=" + c.Options.Dir,
		"LC_ALL=C",
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stat, err := readStat(cmd.Process.Pid)
	// In a long-lived process like a test the dead must not stay zombies.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return nil, fmt.Errorf("%s ended at once: %w%s", name, err, c.logEnd(name))
	}
	p := &process{Name: name, Args: args, PID: cmd.Process.Pid, Started: stat.started, Boot: bootID()}
	c.Processes = slices.DeleteFunc(c.Processes, func(other *process) bool { return other.Name == name })
	c.Processes = append(c.Processes, p)
	return p, c.save()
}

// waitForPort waits until nobody has the port of a component. That of one which
// was stopped is free only some time later.
func (c *Cluster) waitForPort(ctx context.Context, component, host string) error {
	return poll(ctx, 30*time.Second, "port of "+component, func(context.Context) error {
		l, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(c.Ports[component])))
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// process finds one by its component's name.
func (c *Cluster) process(name string) *process {
	for _, p := range c.Processes {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// waitHealthy polls check while the component runs.
func (c *Cluster) waitHealthy(ctx context.Context, p *process, timeout time.Duration, check func(ctx context.Context) error) error {
	err := poll(ctx, timeout, p.Name+" is not healthy", func(ctx context.Context) error {
		if !p.alive() {
			return stopError{errors.New("it ended")}
		}
		return check(ctx)
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w%s", err, c.logEnd(p.Name))
	}
	return err
}

// logEnd is the end of a component's log, to be appended to an error.
func (c *Cluster) logEnd(component string) string {
	const lines, limit = 20, 400
	name := c.LogFile(component)
	content, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe end of %s:", name)
	for _, line := range all[max(0, len(all)-lines):] {
		if len(line) > limit {
			line = line[:limit] + "..."
		}
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// stop ends a process with all that it started: first politely, then not. In
// a namespace of its own it has a child that does the work.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if !p.alive() {
		return nil
	}
	// They may start others just now, so each look may find more.
	targets := append(descendants(p.PID), p.PID)
	signal := syscall.SIGTERM
	deadline := time.Now().Add(grace)
	told := map[int]bool{}
	return poll(ctx, grace+15*time.Second, "stop "+p.Name, func(context.Context) error {
		for _, pid := range append(descendants(p.PID), inSession(p.PID)...) {
			if !slices.Contains(targets, pid) {
				targets = append(targets, pid)
			}
		}
		if signal == syscall.SIGTERM && !time.Now().Before(deadline) {
			signal = syscall.SIGKILL
			clear(told)
		}
		for _, pid := range targets {
			if !told[pid] || signal == syscall.SIGKILL {
				_ = syscall.Kill(pid, signal)
				told[pid] = true
			}
		}
		// What was started between the look and the signal is still there.
		if anyAlive(targets) || anyAlive(inSession(p.PID)) {
			return errors.New("it does not end")
		}
		return nil
	})
}

// inSession are the processes of a session. One that lost its parent still
// belongs to it.
func inSession(session int) []int {
	var found []int
	for _, pid := range allProcesses() {
		if stat, err := readStat(pid); err == nil && stat.session == session {
			found = append(found, pid)
		}
	}
	return found
}

func anyAlive(pids []int) bool {
	for _, pid := range pids {
		stat, err := readStat(pid)
		if err != nil || stat.state == 'X' {
			continue
		}
		// The main thread may have ended before the others, which keep files
		// and ports open.
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if stat.state != 'Z' || err == nil && len(tasks) > 1 {
			return true
		}
	}
	return false
}

// descendants are the children of a process, theirs, and so on.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, other := range allProcesses() {
		if stat, err := readStat(other); err == nil {
			children[stat.parent] = append(children[stat.parent], other)
		}
	}
	var found []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

func allProcesses() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// marked are the processes which inherited the marker of this cluster.
func (c *Cluster) marked() []int {
	return slices.DeleteFunc(allProcesses(), func(pid int) bool { return pid == os.Getpid() || !c.isMarked(pid) })
}

func (c *Cluster) isMarked(pid int) bool {
	want := []byte(marker + "=" + c.Options.Dir)
	return slices.ContainsFunc(bytes.Split(environment(pid), []byte{0}), func(kv []byte) bool { return bytes.Equal(kv, want) })
}

// environment is what a process was started with. It is empty for one that has
// ended or belongs to the kernel.
//
// A process that starts a program gives up its old memory before the
// environment is in the new one. That takes longer on a busy machine, and the
// file is empty meanwhile, as if the process had no environment.
func environment(pid int) []byte {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	for range 1000 {
		// In this order: between the two the program may be complete.
		stat, err := readStat(pid)
		if err != nil {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || len(content) > 0 || stat.code != 0 {
			return content
		}
		// Neither the kernel's own processes nor those that ended have a program.
		if _, err := os.Readlink(filepath.Join(dir, "exe")); err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
