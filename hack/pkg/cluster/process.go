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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// marker is the environment variable by which the processes of a cluster are found, whatever became of
// those that started them. Its value is the cluster's folder.
const marker = "KUBERNETES_DRA_CLUSTER"

// processes are the programs of a cluster that run in the background.
type processes struct {
	// dir is the folder of the cluster.
	dir string
	// Started are in the order in which they were started.
	Started []*process
}

// process is one that was started. A number alone does not identify it: the machine may have been
// restarted.
type process struct {
	Name string
	Args []string
	PID  int
	// Clock is when it was started, in clock ticks since Boot.
	Clock uint64
	// Boot identifies that start of the machine.
	Boot string
}

func (p *process) alive() bool {
	stat, err := stat(p.PID)
	return err == nil && !ended(stat) && stat.Starttime == p.Clock && p.Boot == bootID()
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// ended is true for a zombie, unless only its main thread has ended: the others keep files and ports open.
func ended(stat procfs.ProcStat) bool {
	return stat.State == "X" || stat.State == "Z" && stat.NumThreads <= 1
}

func bootID() string {
	content, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(content))
}

func (ps *processes) logFile(name string) string { return filepath.Join(ps.dir, "logs", name+".log") }

// start runs a program, as a session of its own. What it prints goes to the log of its name. path comes
// before the usual folders with programs.
func (ps *processes) start(name string, args []string, path ...string) (*process, error) {
	log, err := os.OpenFile(ps.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	fmt.Fprintf(log, "# %s %s\n", time.Now().Format(time.RFC3339), strings.Join(args, " "))

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ps.dir, log, log
	cmd.Env = []string{
		marker + "=" + ps.dir,
		"PATH=" + strings.Join(append(path, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":"),
		"HOME=" + ps.dir,
		"LC_ALL=C",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stat, err := stat(cmd.Process.Pid)
	// In a long-lived process like a test the dead must not stay zombies.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return nil, fmt.Errorf("%s ended at once: %w%s", name, err, ps.logEnd(name))
	}
	p := &process{Name: name, Args: args, PID: cmd.Process.Pid, Clock: stat.Starttime, Boot: bootID()}
	ps.Started = append(slices.DeleteFunc(ps.Started, func(other *process) bool { return other.Name == name }), p)
	return p, nil
}

// find returns the process of a name, or nil.
func (ps *processes) find(name string) *process {
	for _, p := range ps.Started {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// dead are the names of those that do not run any more.
func (ps *processes) dead() []string {
	var names []string
	for _, p := range ps.Started {
		if !p.alive() {
			names = append(names, p.Name)
		}
	}
	return names
}

// waitHealthy polls check while the process runs.
func (ps *processes) waitHealthy(ctx context.Context, p *process, timeout time.Duration, check func(ctx context.Context) error) error {
	err := poll(ctx, timeout, p.Name+" is not healthy", func(ctx context.Context) error {
		if !p.alive() {
			return stopError{errors.New("it ended")}
		}
		return check(ctx)
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w%s", err, ps.logEnd(p.Name))
	}
	return err
}

// logEnd is the end of a log, to be appended to an error.
func (ps *processes) logEnd(name string) string {
	const lines, limit = 20, 400
	content, err := os.ReadFile(ps.logFile(name))
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe end of %s:", ps.logFile(name))
	for _, line := range all[max(0, len(all)-lines):] {
		if len(line) > limit {
			line = line[:limit] + "..."
		}
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// stop ends a process with all that it started: first politely, then not. In a namespace of its own it
// has a child that does the work.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if !p.alive() {
		return nil
	}
	deadline := time.Now().Add(grace)
	told := map[int]bool{p.PID: false}
	return poll(ctx, grace+15*time.Second, "stop "+p.Name, func(context.Context) error {
		// They may start others just now, so each look may find more.
		for _, pid := range family(p.PID) {
			if _, known := told[pid]; !known {
				told[pid] = false
			}
		}
		kill, left := !time.Now().Before(deadline), 0
		for pid := range told {
			if stat, err := stat(pid); err != nil || ended(stat) {
				continue
			}
			left++
			if kill {
				killPID(pid)
			} else if !told[pid] {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			told[pid] = true
		}
		if left > 0 {
			return errors.New("it does not end")
		}
		return nil
	})
}

func killPID(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// allStats are those of all processes.
func allStats() []procfs.ProcStat {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	var stats []procfs.ProcStat
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			stats = append(stats, stat)
		}
	}
	return stats
}

// family are the children of a process, theirs, and so on, and those in its session: one that lost its
// parent still belongs to that.
func family(pid int) []int {
	children := map[int][]int{}
	var found []int
	for _, stat := range allStats() {
		children[stat.PPID] = append(children[stat.PPID], stat.PID)
		if stat.Session == pid && stat.PID != pid {
			found = append(found, stat.PID)
		}
	}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// killRest kills what was not stopped: processes that inherited the marker, for example of an "up" that was
// killed, and those that somebody started by hand, from a program in one of the folders and with a file of
// the cluster.
func (ps *processes) killRest(ctx context.Context, programs []string, log func(string, ...any)) error {
	return poll(ctx, 15*time.Second, "processes of the cluster", func(context.Context) error {
		// They may start others until all are gone.
		left := ps.marked()
		for _, pid := range left {
			killPID(pid)
		}
		for pid, command := range ps.byHand(programs) {
			log("stopping what was not started with the cluster: process %d (%s)", pid, command)
			killPID(pid)
			left = append(left, pid)
		}
		if len(left) > 0 {
			return fmt.Errorf("%d still run: %v", len(left), left)
		}
		return nil
	})
}

func (ps *processes) marked() []int {
	var found []int
	for _, stat := range allStats() {
		if stat.PID != os.Getpid() && !ended(stat) && ps.isMarked(stat.PID) {
			found = append(found, stat.PID)
		}
	}
	return found
}

// isMarked looks at the environment of a process. While the kernel loads a program, that is empty for
// a moment, as if the process had none.
func (ps *processes) isMarked(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	for range 1000 {
		// In this order: between the two the program may be complete.
		stat, err := p.Stat()
		if err != nil {
			return false
		}
		environ, err := p.Environ()
		if err != nil || len(environ) > 0 || stat.StartCode != 0 {
			return slices.Contains(environ, marker+"="+ps.dir)
		}
		// Neither the kernel's own processes nor those that ended have a program.
		if exe, err := p.Executable(); err != nil || exe == "" {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// notByHand are programs that somebody uses to look at a cluster, or to take it down.
var notByHand = []string{"carry", "kubectl"}

// byHand are the command lines of processes that somebody started by hand.
func (ps *processes) byHand(programs []string) map[int]string {
	found := map[int]string{}
	for _, stat := range allStats() {
		p, err := procfs.NewProc(stat.PID)
		if err != nil {
			continue
		}
		exe, _ := p.Executable()
		args, _ := p.CmdLine()
		// It may have been built again since.
		exe = strings.TrimSuffix(exe, " (deleted)")
		command := strings.Join(args, " ")
		if slices.Contains(programs, filepath.Dir(exe)) && !slices.Contains(notByHand, filepath.Base(exe)) && strings.Contains(command, ps.dir+"/") && !ps.isMarked(stat.PID) {
			found[stat.PID] = command
		}
	}
	return found
}

// poll calls check every now and then until it returns no error. The last error is returned with what was
// waited for.
func poll(ctx context.Context, timeout time.Duration, what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not after %s", timeout))
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		var stop stopError
		if errors.As(err, &stop) {
			return fmt.Errorf("%s: %w", what, stop.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stopError ends poll.
type stopError struct{ error }
