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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/tools"
)

// holder is a process that has to do with the cluster, although it may not have been started with it.
type holder struct {
	pid     int
	command string
	// why it is one: the files below the cluster's folder, and the ports.
	why []string
	// ours is set if it is one of the cluster's programs that runs from its folder.
	ours bool
}

func (h holder) String() string {
	// The kubelet alone has dozens.
	const shown = 3
	why := strings.Join(h.why[:min(shown, len(h.why))], ", ")
	if more := len(h.why) - shown; more > 0 {
		why += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("process %d (%s) has %s", h.pid, h.command, why)
}

// holders finds them. This process and those that started it are none.
func (c *Cluster) holders() []holder {
	sockets := listeners(c.Ports)
	mine := ancestors(os.Getpid())
	var found []holder
	for _, pid := range allProcesses() {
		if slices.Contains(mine, pid) {
			continue
		}
		if h := c.holder(pid, sockets); len(h.why) > 0 {
			found = append(found, h)
		}
	}
	return found
}

// holder looks at a process. It finds nothing if that ends meanwhile.
func (c *Cluster) holder(pid int, sockets map[string]string) holder {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	commandLine, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	args := strings.Split(strings.TrimRight(string(commandLine), "\x00"), "\x00")
	h := holder{pid: pid, command: shorten(strings.Join(args, " "), 120)}
	if err != nil || len(commandLine) == 0 {
		// It ended, or is one of the kernel's.
		return h
	}
	add := func(what string) {
		if !slices.Contains(h.why, what) {
			h.why = append(h.why, what)
		}
	}
	fromFolder := false
	for _, arg := range args {
		if i := strings.Index(arg, c.Options.Dir+"/"); i >= 0 && c.isProgram(proc) {
			fromFolder = true
			add("the argument " + shorten(arg, 120))
		}
	}
	links := []string{filepath.Join(proc, "exe"), filepath.Join(proc, "cwd")}
	fds, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
	for _, link := range append(links, fds...) {
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if c.inFolder(target) {
			fromFolder = true
			add(target)
		} else if port := sockets[target]; port != "" {
			add(port)
		}
	}
	h.ours = fromFolder && c.isProgram(proc)
	return h
}

// inFolder tells whether a path is in the cluster's folder. The logs stay there, whoever reads them.
func (c *Cluster) inFolder(path string) bool {
	logs := c.path("logs")
	return (path == c.Options.Dir || strings.HasPrefix(path, c.Options.Dir+"/")) && path != logs && !strings.HasPrefix(path, logs+"/")
}

// isProgram tells whether a process is one of the programs of which clusters are made.
func (c *Cluster) isProgram(proc string) bool {
	exe, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil {
		return false
	}
	// It may have been built again since.
	exe = strings.TrimSuffix(exe, " (deleted)")
	if filepath.Base(exe) == "kubectl" {
		// Somebody looks at the cluster.
		return false
	}
	for _, dir := range []string{c.Options.Bin, c.Options.Dir, tools.Dir(c.Options.Repo), filepath.Join(c.Options.Repo, "_output", "bin")} {
		if strings.HasPrefix(exe, dir+"/") {
			return true
		}
	}
	return false
}

// stopHolders stops the cluster's programs that somebody started by hand from its folder, and says
// which. It returns those processes that are left.
func (c *Cluster) stopHolders(ctx context.Context) []holder {
	var left []holder
	signals := map[int]int{}
	_ = poll(ctx, 15*time.Second, "processes started by hand", func(context.Context) error {
		left = c.holders()
		waiting := false
		for _, h := range left {
			if !h.ours {
				continue
			}
			waiting = true
			// First politely: a few looks later, not.
			const polite = 30
			signal := syscall.SIGTERM
			if signals[h.pid] == 0 {
				c.Log("stopping what was not started with the cluster: %s", h)
			} else if signals[h.pid] > polite {
				signal = syscall.SIGKILL
			}
			if signals[h.pid]++; signals[h.pid] == 1 || signal == syscall.SIGKILL {
				_ = syscall.Kill(h.pid, signal)
			}
		}
		if waiting {
			return errors.New("they do not end")
		}
		return nil
	})
	return left
}

// leftBy makes an error of what is left say who may be the reason.
func leftBy(err error, left []holder) error {
	if err == nil || len(left) == 0 {
		return err
	}
	var lines []string
	for _, h := range left {
		lines = append(lines, h.String())
	}
	return fmt.Errorf("%w; these may be in the way, stop them and try again:\n  %s", err, strings.Join(lines, "\n  "))
}

// listeners are the sockets that listen on ports, as /proc shows them to the process that has one,
// with what they are.
func listeners(ports map[string]int) map[string]string {
	components := map[int]string{}
	for component, port := range ports {
		components[port] = component
	}
	found := map[string]string{}
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(filepath.Join("/proc/net", table))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(content) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			fields := strings.Fields(string(line))
			if len(fields) <= inode || fields[state] != listening {
				continue
			}
			_, hex, _ := strings.Cut(fields[address], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				continue
			}
			if component, ok := components[int(port)]; ok {
				found["socket:["+fields[inode]+"]"] = fmt.Sprintf("port %d of %s", port, component)
			}
		}
	}
	return found
}

// ancestors are a process, the one that started it, and so on.
func ancestors(pid int) []int {
	var found []int
	for pid > 0 && !slices.Contains(found, pid) {
		found = append(found, pid)
		stat, err := readStat(pid)
		if err != nil {
			break
		}
		pid = stat.parent
	}
	return found
}

func shorten(text string, length int) string {
	if len(text) > length {
		return text[:length] + "..."
	}
	return text
}
