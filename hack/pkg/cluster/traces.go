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
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kubernetes-dra/hack/pkg/sys"
)

// traces are what a cluster with a real node changes on this machine, outside of its folder. All of it is
// remembered before it is changed. Clusters share folders and sysctls: each puts a file into registry that
// names its folder, and the last one to go puts everything back.
type traces struct {
	// Registered is the file in registry.
	Registered string
	// Folders were made, each after the ones above it.
	Folders []string
	// Sysctls are the values from before.
	Sysctls map[string]string
	// Addresses are those that were added to the loopback interface.
	Addresses []string
	// ProxyRules is true if no kube-proxy but this cluster's has made rules.
	ProxyRules bool
}

// Where clusters register, and where the kernel has its sysctls.
var (
	registry   = "/run/kubernetes-dra"
	sysctlRoot = "/proc/sys"
)

// sysctls are those that a kubelet, kube-proxy, CNI plugins and this program set.
var sysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// neededSysctls are those that a machine has only if it ran containers before, or if its administrator made
// it a node: pods could not reach each other.
var neededSysctls = map[string]string{"net/ipv4/ip_forward": "1"}

func (t *traces) none() bool { return t.Registered == "" && len(t.Addresses) == 0 }

// leave makes folders where they are missing, and remembers them and the sysctls. A bare node has network
// sysctls of its own.
func (t *traces) leave(ctx context.Context, c *Cluster, folders []string) error {
	unlock, err := lockRegistry(ctx, c)
	if err != nil {
		return err
	}
	defer unlock()
	t.Registered = filepath.Join(registry, c.id())
	t.Sysctls = map[string]string{}
	for _, name := range sysctls {
		if content, err := os.ReadFile(filepath.Join(sysctlRoot, name)); err == nil && (!c.Options.Bare || !strings.HasPrefix(name, "net/")) {
			t.Sysctls[name] = strings.TrimSpace(string(content))
		}
	}
	for _, other := range c.otherTraces() {
		for name := range t.Sysctls {
			if before, found := other.Sysctls[name]; found {
				t.Sysctls[name] = before
			}
		}
		t.Folders = append(t.Folders, other.Folders...)
	}
	for _, dir := range folders {
		var missing []string
		for d := dir; ; d = filepath.Dir(d) {
			if _, err := os.Stat(d); err == nil {
				break
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			missing = append(missing, d)
		}
		slices.Reverse(missing)
		t.Folders = append(t.Folders, missing...)
	}
	slices.Sort(t.Folders)
	t.Folders = slices.Compact(t.Folders)
	if err := c.save(); err != nil {
		return err
	}
	if err := os.WriteFile(t.Registered, []byte(c.Options.Dir), 0o644); err != nil {
		return err
	}
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if c.Options.Bare {
		return nil
	}
	return setSysctls(neededSysctls)
}

// lockRegistry keeps other clusters from coming and going.
func lockRegistry(ctx context.Context, c *Cluster) (unlock func(), err error) {
	return sys.Lock(ctx, filepath.Join(registry, "lock"), func() { c.Log("another cluster comes or goes, waiting for it") })
}

// otherTraces are those of other clusters on this machine that have not been taken down.
func (c *Cluster) otherTraces() []traces {
	var found []traces
	own, _ := os.Stat(c.Options.Dir)
	files, _ := filepath.Glob(filepath.Join(registry, "kubernetes-dra-*"))
	for _, file := range files {
		dir, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// One folder may have two names.
		if info, err := os.Stat(string(dir)); err == nil && os.SameFile(own, info) {
			continue
		}
		// Somebody may have removed the folder of a cluster.
		if s, err := readState(string(dir)); err == nil && s.Traces.Registered == file {
			found = append(found, s.Traces)
		}
	}
	return found
}

// remove removes the traces. What other clusters need stays until the last one goes, and so does a folder
// that somebody else uses.
func (t *traces) remove(ctx context.Context, c *Cluster) error {
	if t.none() {
		return nil
	}
	unlock, err := lockRegistry(ctx, c)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	others := c.otherTraces()
	// After this one died, another cluster may have got its port, and what is named after that.
	replaced := slices.ContainsFunc(others, func(o traces) bool { return o.Registered == filepath.Join(registry, c.id()) })
	if !replaced {
		for _, n := range c.realNodes() {
			errs = append(errs, RemoveCgroup(ctx, n.of(c.id())))
		}
		errs = append(errs, removeBridge(ctx, c.NetworkBridge()))
		if t.ProxyRules {
			errs = append(errs, removeProxyRules(ctx))
		}
	}
	for _, address := range t.Addresses {
		if !hasAddress(address) || slices.ContainsFunc(others, func(o traces) bool { return slices.Contains(o.Addresses, address) }) {
			continue
		}
		if out, err := exec.CommandContext(ctx, "ip", "address", "delete", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip address delete %s: %w: %s", address, err, strings.TrimSpace(string(out))))
		}
	}
	if len(others) == 0 {
		errs = append(errs, setSysctls(t.Sysctls))
		for _, dir := range slices.Backward(t.Folders) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, os.RemoveAll(registry))
	} else if !replaced {
		errs = append(errs, os.RemoveAll(t.Registered))
	}
	return errors.Join(errs...)
}

// setSysctls sets those that have another value.
func setSysctls(values map[string]string) error {
	var errs []error
	for name, value := range values {
		file := filepath.Join(sysctlRoot, name)
		if content, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(content)) == value {
			continue
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0); err != nil {
			errs = append(errs, fmt.Errorf("set sysctl %s to %s: %w", strings.ReplaceAll(name, "/", "."), value, err))
		}
	}
	return errors.Join(errs...)
}

// removeBridge removes a bridge of the network driver's example, and what is still connected to it. The
// interfaces of pods end with their network namespaces.
func removeBridge(ctx context.Context, bridge string) error {
	var errs []error
	ports, _ := filepath.Glob(filepath.Join("/sys/class/net", bridge, "brif", "*"))
	for _, name := range append(ports, bridge) {
		name = filepath.Base(name)
		if _, err := net.InterfaceByName(name); err != nil {
			continue
		}
		if out, err := exec.CommandContext(ctx, "ip", "link", "delete", name).CombinedOutput(); err != nil {
			// The kernel may have been faster: the other end of it is gone.
			if _, stillThere := net.InterfaceByName(name); stillThere == nil {
				errs = append(errs, fmt.Errorf("ip link delete %s: %w: %s", name, err, strings.TrimSpace(string(out))))
			}
		}
	}
	return errors.Join(errs...)
}

// iptables are the two that kube-proxy uses.
var iptables = []string{"iptables", "ip6tables"}

// savedRules are those of this machine, as iptables-restore reads them.
func savedRules(ctx context.Context, program string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, program+"-save")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s-save: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// findProxyRules notes whether a kube-proxy or a kubelet was here before: then its rules stay.
func (t *traces) findProxyRules(ctx context.Context) error {
	own := true
	for _, program := range iptables {
		saved, err := savedRules(ctx, program)
		if err != nil {
			return err
		}
		own = own && withoutProxyRules(saved) == ""
	}
	t.ProxyRules = own
	return nil
}

// removeProxyRules removes what kube-proxy made in this machine's network. It does not remove all of that
// itself: a chain of the kubelet's stays, and in some releases much more if ipset is not on the machine.
func removeProxyRules(ctx context.Context) error {
	for _, program := range iptables {
		saved, err := savedRules(ctx, program)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, program+"-restore", "--noflush", "--wait")
		cmd.Stdin = strings.NewReader(withoutProxyRules(saved))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// withoutProxyRules are commands for iptables-restore that remove all chains of
// Kubernetes, and the rules that lead to them, from saved rules. It is empty if there
// are none.
func withoutProxyRules(saved string) string {
	const prefix = "KUBE-"
	var out strings.Builder
	var table string
	var flush, remove, chains []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		chain, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, ":"), "-A "), " ")
		switch {
		case strings.HasPrefix(line, "*"):
			table, flush, remove, chains = line, nil, nil, nil
		case strings.HasPrefix(line, ":") && strings.HasPrefix(chain, prefix):
			flush, chains = append(flush, ":"+chain+" - [0:0]"), append(chains, "-X "+chain)
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(chain, prefix) && strings.Contains(line, "-j "+prefix):
			remove = append(remove, "-D "+strings.TrimPrefix(line, "-A "))
		case line == "COMMIT" && len(chains) > 0:
			out.WriteString(strings.Join(slices.Concat([]string{table}, flush, remove, chains, []string{line}), "\n") + "\n")
		}
	}
	return out.String()
}
