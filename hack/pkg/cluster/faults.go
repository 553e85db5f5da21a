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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill ends a component with all that it started, as a crash does. Nothing starts it again.
func (c *Cluster) Kill(ctx context.Context, component string) error {
	p := c.process(component)
	if p == nil || !p.alive() {
		return fmt.Errorf("%s does not run", component)
	}
	return p.stop(ctx, 0)
}

// Pause keeps a component from running, as if its machine hung, until resume is called.
func (c *Cluster) Pause(component string) (resume func(), err error) {
	pids, err := c.pids(component)
	if err != nil {
		return nil, err
	}
	signal := func(signal syscall.Signal) (err error) {
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, signal))
		}
		return err
	}
	if err := signal(syscall.SIGSTOP); err != nil {
		return nil, errors.Join(err, signal(syscall.SIGCONT))
	}
	return func() { _ = signal(syscall.SIGCONT) }, nil
}

// pids are the processes of a component. On the real node, a parent enters the namespaces of the node.
func (c *Cluster) pids(component string) ([]int, error) {
	p := c.process(component)
	if p == nil || !p.alive() {
		return nil, fmt.Errorf("%s does not run", component)
	}
	if component == Containerd {
		pid, err := c.containerd()
		return []int{pid}, err
	}
	return append([]int{p.PID}, descendants(p.PID)...), nil
}

// Memory is how much memory a component has, in bytes: its resident set.
func (c *Cluster) Memory(component string) (int64, error) {
	pids, err := c.pids(component)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || filepath.Base(exe) != component {
			continue
		}
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(content))
		if len(fields) < 2 {
			return 0, fmt.Errorf("/proc/%d/statm: %q", pid, content)
		}
		pages, err := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize()), err
	}
	return 0, fmt.Errorf("%s is none of the processes %v", component, pids)
}

// Metrics are those of a component of Kubernetes, in the text format of Prometheus.
func (c *Cluster) Metrics(ctx context.Context, component string) (string, error) {
	url := "https://" + c.address(component) + "/metrics"
	switch component {
	case APIServer, ControllerManager, Scheduler:
	case Kubelet:
		url = "https://" + c.address(APIServer) + "/api/v1/nodes/" + RealNode + "/proxy/metrics"
	default:
		return "", fmt.Errorf("%s is no component of Kubernetes", component)
	}
	client, err := c.probeClient()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	return get(ctx, client, url, 1<<26)
}

// Slow lets a component run only a small part of the time, as on a disk or a machine that is far
// too slow, until the function returned by it is called.
func (c *Cluster) Slow(component string) (stop func(), err error) {
	const run, pause = 10 * time.Millisecond, 90 * time.Millisecond
	resume, err := c.Pause(component)
	if err != nil {
		return nil, err
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				resume()
				return
			case <-time.After(pause):
			}
			resume()
			time.Sleep(run)
			var err error
			if resume, err = c.Pause(component); err != nil {
				return // It ended.
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}, nil
}

// ViaProxy lets the real node's kubelet talk with the API server through another address. The kubelet
// has to be started again for that. An empty address undoes it.
func (c *Cluster) ViaProxy(address string) error {
	name := c.kubeconfig(Kubelet)
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if address == "" {
		address = c.address(APIServer)
	}
	lines := strings.Split(string(content), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "server: ") })
	if i < 0 {
		return fmt.Errorf("%s has no server", name)
	}
	indent, _, _ := strings.Cut(lines[i], "server: ")
	lines[i] = indent + "server: https://" + address
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o600)
}
