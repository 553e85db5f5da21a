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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/dist/image"
)

var cgroupRoot = "/sys/fs/cgroup"

// requirements are packages of the distribution that a real node needs, by their names on Debian and Ubuntu,
// with the programs that show that they are there.
var requirements = map[string][]string{
	"gcc":            {"cc"},
	"libc6-dev":      {"cc"},
	"pkg-config":     {"pkg-config"},
	"libseccomp-dev": nil,
	"busybox-static": nil,
	"iproute2":       {"ip"},
	"util-linux":     {"unshare", "nsenter"},
	"mount":          {"mount", "umount"},
}

// missing are the packages that are wanted, but not there.
func (c *Cluster) missing(ctx context.Context) []string {
	wanted := maps.Clone(requirements)
	if c.Options.Services || c.Options.Bare {
		// The rules of kube-proxy are removed with this machine's own programs.
		wanted["iptables"] = []string{"iptables-save", "ip6tables-save"}
	}
	if c.Options.Bare {
		// Upstream's hack/local-up-cluster.sh needs these.
		wanted["curl"], wanted["openssl"] = []string{"curl"}, []string{"openssl"}
	}
	var packages []string
	for name, programs := range wanted {
		there := !slices.ContainsFunc(programs, func(program string) bool {
			_, err := exec.LookPath(program)
			return err != nil
		})
		switch name {
		case "libseccomp-dev":
			there = exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil
		case "busybox-static":
			there = image.Busybox() != ""
		}
		if !there {
			packages = append(packages, name)
		}
	}
	slices.Sort(packages)
	return packages
}

// noRealNode is the reason why there cannot be a real node, or nothing. It installs what is missing.
func (c *Cluster) noRealNode(ctx context.Context) (reason string, err error) {
	if c.Options.NoRealNode {
		return "it is switched off", nil
	}
	if os.Geteuid() != 0 {
		return "it needs root", nil
	}
	if err := c.install(ctx); err != nil {
		return err.Error(), context.Cause(ctx)
	}
	if reason := missingControllers(); reason != "" {
		return reason, nil
	}
	// Containers often have neither the capability nor the permission.
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "--make-rshared", "/").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("no namespaces: %v: %s", err, strings.TrimSpace(string(out))), context.Cause(ctx)
	}
	return "", nil
}

// install gets missing packages from the distribution.
func (c *Cluster) install(ctx context.Context) error {
	packages := c.missing(ctx)
	if len(packages) == 0 {
		return nil
	}
	names := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these are missing, as they are called on Debian and Ubuntu: %s", names)
	}
	start := time.Now()
	c.Log("installing %s ...", names)
	apt := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
		}
		return nil
	}
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)
	if apt(install...) != nil {
		// The lists of a fresh machine are empty or old.
		if err := apt("update", "-q"); err != nil {
			return err
		}
		if err := apt(install...); err != nil {
			return err
		}
	}
	if left := c.missing(ctx); len(left) > 0 {
		return fmt.Errorf("%s: installed, but still missing", strings.Join(left, " "))
	}
	c.Log("installed in %s", since(start))
	return nil
}

// missingControllers says what the kernel or the container in which this runs lacks.
func missingControllers() string {
	dirs, controllers := hierarchies(), []string{"cpu", "cpuset", "memory", "pids"}
	have, _ := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if !UnifiedCgroups() {
		controllers = append(controllers, "cpuacct", "devices", "freezer")
	}
	for _, want := range controllers {
		_, err := os.Stat(filepath.Join(cgroupRoot, want, "cgroup.procs"))
		if err != nil && !slices.Contains(strings.Fields(string(have)), want) {
			return "no cgroup controller " + want + " at " + cgroupRoot
		}
	}
	for _, dir := range dirs {
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
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range strings.FieldsSeq(string(procs)) {
		// 0 is a process of another namespace.
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			killPID(pid)
		}
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
