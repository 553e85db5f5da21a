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
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// machine describes what a cluster could leave behind on this machine. Other
// clusters may run at the same time, so what it contains must not change by
// itself.
func machine(t *testing.T) string {
	t.Helper()
	var lines []string
	add := func(kind string, names ...string) {
		for _, name := range names {
			lines = append(lines, kind+" "+name)
		}
	}

	// Processes of the second cluster are those that have it on their command
	// line or in their environment.
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range pids {
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if filepath.Base(dir) != strconv.Itoa(os.Getpid()) && (bytes.Contains(cmdline, []byte("cluster-test-2")) || bytes.Contains(environ, []byte("cluster-test-2"))) {
			add("process", string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// The number and the place in the list are not interesting.
		if fields := strings.Fields(line); len(fields) > 5 {
			add("mount", fields[4]+" "+fields[5])
		}
	}

	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		// The pods of the shared cluster come and go.
		if !strings.HasPrefix(i.Name, "veth") || i.Flags&net.FlagUp == 0 {
			add("interface", i.Name)
		}
		addresses, err := i.Addrs()
		if err == nil && !strings.HasPrefix(i.Name, "veth") {
			for _, a := range addresses {
				add("address", i.Name+" "+a.String())
			}
		}
	}
	add("cgroup", under("/sys/fs/cgroup", func(path string) bool {
		name := filepath.Base(path)
		return strings.HasPrefix(name, "kubernetes-dra-")
	})...)
	for _, dir := range []string{"/run", "/var/lib", "/var/log", "/opt", "/etc/cni", "/usr/libexec"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				add("folder", filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, dir := range []string{"/run/containerd", "/run/cdi", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"} {
		add("in", under(dir, func(string) bool { return true })...)
	}
	for _, name := range []string{"kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom"} {
		value, _ := os.ReadFile(filepath.Join("/proc/sys", name))
		add("sysctl", name+"="+strings.TrimSpace(string(value)))
	}
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out, err := exec.CommandContext(t.Context(), save).Output()
		for line := range strings.Lines(string(out)) {
			// Counters change, and comments have the time.
			if err == nil && strings.HasPrefix(line, "-A") {
				add(save, strings.TrimSpace(line))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// under lists what is below a folder, three levels deep.
func under(root string, wanted func(path string) bool) []string {
	var found []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if path != root && wanted(path) {
			found = append(found, path)
		}
		if d.IsDir() && strings.Count(strings.TrimPrefix(path, root), "/") >= 3 {
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// difference shows the lines that only one side has.
func difference(before, after string) string {
	var b strings.Builder
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			fmt.Fprintf(&b, "+ %s\n", line)
		}
	}
	return b.String()
}
