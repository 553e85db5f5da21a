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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/dist/image"
)

const cgroupRoot = "/sys/fs/cgroup"

// requirement is something of the distribution that the real node needs.
type requirement struct {
	what string
	// packages have it on Debian and Ubuntu.
	packages []string
	present  func(ctx context.Context) bool
}

var requirements = []requirement{
	{"a C compiler", []string{"gcc", "libc6-dev"}, func(context.Context) bool { return hasProgram("cc") || hasProgram("gcc") }},
	{"pkg-config", []string{"pkg-config"}, func(context.Context) bool { return hasProgram("pkg-config") }},
	{"libseccomp with its headers", []string{"libseccomp-dev"}, func(ctx context.Context) bool {
		return exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil
	}},
	{"a static busybox", []string{"busybox-static"}, func(context.Context) bool { return image.Busybox() != "" }},
	{"ip", []string{"iproute2"}, func(context.Context) bool { return hasProgram("ip") }},
	{"unshare and nsenter", []string{"util-linux"}, func(context.Context) bool { return hasProgram("unshare") && hasProgram("nsenter") }},
	{"mount", []string{"mount"}, func(context.Context) bool { return hasProgram("mount") && hasProgram("umount") }},
}

// proxyRequirements are what a cluster with a kube-proxy needs besides. Its rules are removed with
// this machine's own programs.
var proxyRequirements = []requirement{
	{"iptables", []string{"iptables"}, func(context.Context) bool { return hasProgram("iptables-save") && hasProgram("ip6tables-save") }},
}

// bareRequirements are what upstream's hack/local-up-cluster.sh needs besides. The rules of its kube-proxy
// end with the network of the node.
var bareRequirements = []requirement{
	{"curl", []string{"curl"}, func(context.Context) bool { return hasProgram("curl") }},
	{"openssl", []string{"openssl"}, func(context.Context) bool { return hasProgram("openssl") }},
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// prepareMachine installs what is missing. It returns the reason why there
// cannot be a real node, or nothing.
func (c *Cluster) prepareMachine(ctx context.Context) (reason string, err error) {
	if c.Options.NoRealNode {
		return "it is switched off", nil
	}
	if os.Geteuid() != 0 {
		return "it needs root", nil
	}
	if err := c.install(ctx); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return err.Error(), nil
	}
	if reason := missingControllers(); reason != "" {
		return reason, nil
	}
	// Containers often have neither the capability nor the permission.
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "--make-rshared", "/").CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return fmt.Sprintf("no namespaces: %v: %s", err, strings.TrimSpace(string(out))), nil
	}
	return "", nil
}

// install gets missing packages from the distribution.
func (c *Cluster) install(ctx context.Context) error {
	wanted := slices.Clone(requirements)
	if c.Options.Kubeadm != nil || c.Options.Services || c.Options.Bare {
		wanted = append(wanted, proxyRequirements...)
	}
	if c.Options.Bare {
		wanted = append(wanted, bareRequirements...)
	}
	missing := func() (what, packages []string) {
		for _, r := range wanted {
			if !r.present(ctx) {
				what = append(what, r.what)
				packages = append(packages, r.packages...)
			}
		}
		return what, packages
	}
	what, packages := missing()
	if len(what) == 0 {
		return nil
	}
	if !hasProgram("apt-get") {
		return fmt.Errorf("%s not found; the packages are called %s on Debian and Ubuntu", strings.Join(what, ", "), strings.Join(packages, ", "))
	}
	start := time.Now()
	c.Log("installing %s ...", strings.Join(packages, ", "))
	env := append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	apt := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)
	if _, err := apt(install...); err != nil {
		// The lists of a fresh machine are empty or old.
		if out, err := apt("update", "-q"); err != nil {
			return fmt.Errorf("apt-get update: %w: %s", err, lastLine(out))
		}
		if out, err := apt(install...); err != nil {
			return fmt.Errorf("apt-get install %s: %w: %s", strings.Join(packages, " "), err, lastLine(out))
		}
	}
	if what, _ := missing(); len(what) > 0 {
		return fmt.Errorf("%s not found, although %s was installed", strings.Join(what, ", "), strings.Join(packages, ", "))
	}
	c.Log("installed in %s", time.Since(start).Round(100*time.Millisecond))
	return nil
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// missingControllers says what the kernel or the container in which this runs
// lacks.
func missingControllers() string {
	if UnifiedCgroups() {
		content, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
		if err != nil {
			return err.Error()
		}
		have := strings.Fields(string(content))
		for _, want := range []string{"cpu", "cpuset", "memory", "pids"} {
			if !slices.Contains(have, want) {
				return "no cgroup controller " + want
			}
		}
	} else {
		for _, want := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} {
			if _, err := os.Stat(filepath.Join(cgroupRoot, want, "cgroup.procs")); err != nil {
				return "no cgroup controller " + want + " at " + cgroupRoot
			}
		}
	}
	for _, dir := range hierarchies() {
		probe := filepath.Join(dir, fmt.Sprintf("kubernetes-dra-probe-%d", os.Getpid()))
		if err := os.Mkdir(probe, 0o755); err != nil {
			return fmt.Sprintf("cgroups cannot be created: %v", err)
		}
		_ = os.Remove(probe)
	}
	return ""
}

// UnifiedCgroups is true for version 2.
func UnifiedCgroups() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// hierarchies are the roots of all cgroup hierarchies: one in version 2.
func hierarchies() []string {
	if UnifiedCgroups() {
		return []string{cgroupRoot}
	}
	var dirs []string
	procs, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.procs"))
	for _, name := range procs {
		dir := filepath.Dir(name)
		// cpu and cpuacct may be two names of one hierarchy.
		if resolved, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, resolved) {
			dirs = append(dirs, resolved)
		}
	}
	return dirs
}

// createCgroup makes one for all pods of a node, in all hierarchies.
func createCgroup(name string) error {
	if UnifiedCgroups() {
		// What the kubelet does for cgroups below its root.
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
			err := os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+"+controller), 0)
			if err != nil && controller != "io" && controller != "hugetlb" {
				return fmt.Errorf("cgroup controller %s: %w", controller, err)
			}
		}
	}
	for _, root := range hierarchies() {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			// In version 1 nothing can run in a new cgroup before these
			// are set.
			value, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || UnifiedCgroups() {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveCgroup removes one from all hierarchies, and kills what is in it.
func RemoveCgroup(ctx context.Context, name string) error {
	for _, root := range hierarchies() {
		dir := filepath.Join(root, name)
		err := poll(ctx, 15*time.Second, "remove cgroup "+dir, func(context.Context) error {
			return removeCgroupTree(dir)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func removeCgroupTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroupTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, pid := range cgroupProcesses(dir) {
		killPID(pid)
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
