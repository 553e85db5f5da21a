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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-dra/hack/pkg/cluster"
)

// testCluster is a cluster of which components are restarted, broken and looked at.
type testCluster struct{ *cluster.Cluster }

// Patched is true if the components that get started have the carry.
func (c *testCluster) Patched() bool { return cluster.IsPatched(c.Version) }

// Restart stops a component and starts it again with other feature gates, over those of the cluster. It
// returns when the component is healthy.
func (c *testCluster) Restart(ctx context.Context, component string, gates map[string]bool) error {
	if err := c.Stop(ctx, component, 20*time.Second); err != nil {
		return err
	}
	return c.Start(ctx, component, gates)
}

// Kill ends a component with all that it started, as a crash does. Nothing starts it again.
func (c *testCluster) Kill(ctx context.Context, component string) error {
	if _, err := c.PIDs(component); err != nil {
		return err
	}
	return c.Stop(ctx, component, 0)
}

// StartScheduler starts one more scheduler, for pods with that scheduler name. It ends when stop is called,
// or with the cluster.
func (c *testCluster) StartScheduler(name string) (stop func(context.Context) error, err error) {
	config := filepath.Join(c.Options.Dir, "config", name+".yaml")
	content := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
leaderElection: {leaderElect: false}
profiles:
- schedulerName: %q
`, c.ComponentKubeconfig(cluster.Scheduler), name)
	if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
		return nil, err
	}
	// It serves nothing, so it needs no port.
	err = c.StartOther(name, append(c.Program(cluster.Scheduler, nil), "--config="+config, "--secure-port=0"))
	return func(ctx context.Context) error { return c.Stop(ctx, name, 20*time.Second) }, err
}

// named are those of the processes of a component that are the program itself, and not what started it.
func (c *testCluster) named(component string) ([]int, error) {
	pids, err := c.PIDs(component)
	if err != nil {
		return nil, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || filepath.Base(exe) != component
	})
	if len(pids) == 0 {
		err = fmt.Errorf("%s does not run", component)
	}
	return pids, err
}

// Pause keeps a component from running, as if its machine hung, until resume is called.
func (c *testCluster) Pause(component string) (resume func(), err error) {
	pids, err := c.PIDs(component)
	if component == cluster.Containerd {
		// Not the pods.
		pids, err = c.named(component)
	}
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

// Slow lets a component run only a small part of the time, as on a disk or a machine that is far too slow,
// until the function returned by it is called.
func (c *testCluster) Slow(component string) (stop func(), err error) {
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

// KillContainerd ends the container runtime of the real node like a crash does. Pods keep running. It
// returns when the next one answers.
func (c *testCluster) KillContainerd(ctx context.Context) error {
	before, err := c.named(cluster.Containerd)
	if err != nil {
		return err
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if now, err := c.named(cluster.Containerd); err == nil && now[0] != before[0] {
			return c.WaitForContainerd(ctx)
		}
		if time.Now().After(deadline) {
			return errors.New("containerd is not started again")
		}
	}
}

// Reboot ends all processes of the real node at once, and what it had in memory only. It returns when its
// kubelet is healthy.
func (c *testCluster) Reboot(ctx context.Context) error {
	node := []string{cluster.Containerd, cluster.Kubelet, cluster.Driver}
	for _, component := range slices.Backward(node) {
		if err := c.Kill(ctx, component); err != nil {
			return err
		}
	}
	for _, component := range node {
		if err := c.Start(ctx, component, nil); err != nil {
			return err
		}
	}
	return nil
}

// Memory is how much memory a component has, in bytes: its resident set.
func (c *testCluster) Memory(component string) (int64, error) {
	pids, err := c.named(component)
	if err != nil {
		return 0, err
	}
	p, err := procfs.NewProc(pids[0])
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return int64(stat.ResidentMemory()), err
}

// Metrics are those of a component of Kubernetes, in the text format of Prometheus.
func (c *testCluster) Metrics(ctx context.Context, component string) (string, error) {
	base, path := component, "/metrics"
	if component == cluster.Kubelet {
		base, path = cluster.APIServer, "/api/v1/nodes/"+cluster.RealNode+"/proxy/metrics"
	}
	return c.Get(ctx, fmt.Sprintf("https://127.0.0.1:%d%s", c.Ports[base], path))
}

// ViaProxy lets the real node's kubelet talk with the API server through another address. The kubelet has to
// be started again for that. An empty address undoes it.
func (c *testCluster) ViaProxy(address string) error {
	name := c.ComponentKubeconfig(cluster.Kubelet)
	config, err := clientcmd.LoadFromFile(name)
	if err != nil {
		return err
	}
	if address == "" {
		address = fmt.Sprintf("127.0.0.1:%d", c.Ports[cluster.APIServer])
	}
	for _, server := range config.Clusters {
		server.Server = "https://" + address
	}
	return clientcmd.WriteToFile(*config, name)
}

// CountWrites counts, through the audit log, the requests that changed a claim or tried to, by their kind.
func (c *testCluster) CountWrites(namespace, name string) (map[string]int, error) {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	counts := map[string]int{}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// Half a line is written completely later.
			return counts, nil
		} else if err != nil {
			return nil, err
		}
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", c.AuditLog(), err)
		}
		if ref := event.ObjectRef; ref.Resource == "resourceclaims" && ref.Namespace == namespace && ref.Name == name {
			what := strings.TrimSpace(event.Verb + " " + ref.Subresource)
			counts[fmt.Sprintf("%s by %s: %d", what, event.User.Username, event.ResponseStatus.Code)]++
		}
	}
}
