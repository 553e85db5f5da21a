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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Down stops the cluster and removes all of it but the logs.
func (c *Cluster) Down(ctx context.Context) error {
	if _, err := os.Stat(c.Options.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	start := time.Now()
	if err := c.down(ctx); err != nil {
		return err
	}
	_ = os.Remove(c.Options.Dir + ".lock")
	c.Log("down after %s; logs stay in %s", time.Since(start).Round(100*time.Millisecond), c.path("logs"))
	return nil
}

// down continues after errors: what can be removed is removed.
func (c *Cluster) down(ctx context.Context) error {
	var errs []error
	// The kubelet first: it would start again what is stopped below it.
	order := []string{Kubelet, Driver, Kwok, Scheduler, ControllerManager, Containerd, APIServer, Etcd}
	for _, name := range order {
		if p := c.process(name); p != nil {
			grace := 3 * time.Second
			if name == Containerd {
				// It is process 1 of a namespace, in which everything ends
				// with it.
				grace = 0
			}
			if err := p.stop(ctx, grace); err != nil {
				errs = append(errs, err)
			}
		}
	}
	// Whatever else there may be, for example of an "up" that was killed. They
	// may start others until all are gone.
	if err := poll(ctx, 10*time.Second, "processes of the cluster", func(context.Context) error {
		pids := c.marked()
		for _, pid := range pids {
			killPID(pid)
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d still run: %v", len(pids), pids)
		}
		return nil
	}); err != nil {
		errs = append(errs, err)
	}
	// Somebody may have started a component once more, by hand.
	left := c.stopHolders(ctx)
	for _, h := range left {
		c.Log("left alone: %s", h)
	}

	// They are children of process 1 of this machine now, which takes its time
	// with them. Where it does not look after them at all, nothing can be done.
	_ = poll(ctx, 10*time.Second, "ended processes", func(context.Context) error {
		for _, p := range c.Processes {
			if stat, err := readStat(p.PID); err == nil && stat.started == p.Started {
				return errors.New("one is left")
			}
		}
		return nil
	})

	if os.Geteuid() == 0 && c.Ports[APIServer] != 0 {
		for _, n := range c.realNodes() {
			if err := RemoveCgroup(ctx, n.of(n.id())); err != nil {
				errs = append(errs, err)
			}
		}
		if err := c.removeNetwork(ctx); err != nil {
			errs = append(errs, err)
		}
		if c.OwnProxyRules {
			if err := c.removeProxyRules(ctx); err != nil {
				errs = append(errs, err)
			}
		}
		if err := c.restoreSysctls(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.removeRemovables(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		// The state is needed for the next attempt.
		return leftBy(errors.Join(errs...), left)
	}
	if err := c.removeFolder(); err != nil {
		return leftBy(err, c.holders())
	}
	c.state = state{Options: c.Options}
	return nil
}

// removeFolder removes what is in the cluster's folder but the logs. The state goes last: it is
// needed for the next attempt if something cannot be removed.
func (c *Cluster) removeFolder() error {
	entries, err := os.ReadDir(c.Options.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() != "logs" && e.Name() != stateFile {
			if err := os.RemoveAll(c.path(e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(c.path(stateFile))
}

// removeRemovables removes what was made outside of the cluster's folder, unless
// somebody uses it.
func (c *Cluster) removeRemovables() error {
	var errs []error
	// The last one was made last.
	for _, path := range slices.Backward(c.Removables) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func killPID(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

func cgroupProcesses(dir string) []int {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(content)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeNetwork removes the bridge of the example and what is still connected to it, and the addresses of
// nodes. The interfaces of pods end with their network namespaces.
func (c *Cluster) removeNetwork(ctx context.Context) error {
	var errs []error
	var names []string
	ports, _ := filepath.Glob(filepath.Join("/sys/class/net", c.NetworkBridge(), "brif", "*"))
	for _, port := range ports {
		names = append(names, filepath.Base(port))
	}
	names = append(names, c.NetworkBridge())
	for _, name := range names {
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
	for _, address := range c.Addresses {
		if !hasAddress(address) {
			continue
		}
		if out, err := exec.CommandContext(ctx, "ip", "address", "delete", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip address delete %s: %w: %s", address, err, strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(errs...)
}
