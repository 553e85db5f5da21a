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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
)

// Up starts the cluster and waits until it is healthy. A cluster that runs already is left alone; what
// remains of one that does not is removed first.
func (c *Cluster) Up(ctx context.Context) (started bool, err error) {
	if err := os.MkdirAll(c.Options.Dir, 0o755); err != nil {
		return false, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := c.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	switch running, dead := c.Running(); {
	case running && len(dead) == 0 && c.Ready:
		return false, nil
	case running && c.Ready:
		return false, fmt.Errorf("the cluster in %s was started, but %s ended since; take it down first (make down).%s",
			c.Options.Dir, strings.Join(dead, ", "), c.Processes.logEnd(dead[0]))
	case len(c.Processes.Started) > 0 || !c.Traces.none():
		c.Log("removing what an earlier cluster left")
		if err := c.down(ctx); err != nil {
			return false, err
		}
	}
	start := time.Now()
	if err := c.up(ctx); err != nil {
		// Whatever runs would be in the way of the next attempt.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if downErr := c.down(cleanup); downErr != nil {
			err = errors.Join(err, fmt.Errorf("and taking down what was started: %w", downErr))
		}
		return false, err
	}
	c.Log("up after %s", since(start))
	return true, nil
}

// up makes all of the cluster, one part after the other.
func (c *Cluster) up(ctx context.Context) error {
	opts := c.Options
	c.state = state{Options: opts, Ports: ports{}, Processes: processes{dir: opts.Dir}}
	steps := []func(context.Context) error{c.findVersion, c.prepareFolder, c.prepareMachine, c.buildTools, c.choosePorts, c.choosePodSubnet}
	if !opts.Bare {
		steps = append(steps, c.writeIdentities, c.startControlPlanes)
	}
	steps = append(steps, c.startRealNodes)
	if !opts.Bare {
		steps = append(steps, services{c}.up, simulatedNodes{c}.up, c.waitForNodes)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.Ready = true
	return c.save()
}

func (c *Cluster) prepareFolder(context.Context) error {
	if err := os.RemoveAll(c.path("logs")); err != nil {
		return err
	}
	for _, dir := range []string{"logs", "pki", "config"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// prepareMachine decides whether there is a real node.
func (c *Cluster) prepareMachine(ctx context.Context) error {
	reason, err := c.noRealNode(ctx)
	if err != nil {
		return err
	}
	c.state.RealNode, c.state.NoRealNode = reason == "", reason
	if reason != "" && c.Options.Bare {
		return fmt.Errorf("there is no real node: %s", reason)
	} else if reason != "" {
		c.Log("no real node: %s", reason)
	}
	return nil
}

// buildTools builds the third-party programs, and our own ones for the real node.
func (c *Cluster) buildTools(ctx context.Context) error {
	wanted := slices.Clone(tools.ControlPlane)
	if c.state.RealNode {
		wanted = append(wanted, tools.Node...)
		if c.Options.Services {
			wanted = append(wanted, DNS)
		}
	}
	if err := tools.Build(ctx, c.Options.Repo, wanted, c.Log); err != nil || !c.state.RealNode {
		return err
	}
	start := time.Now()
	// Images have no C library.
	env := append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	build := sys.Command(ctx, c.Options.Repo, env, "go", "build", "-o", c.Own("")+"/", "./test/cluster/pause", "./test/cluster/driver", "./cmd/"+NetworkDaemonSet)
	if err := sys.Run(ctx, build); err != nil {
		return fmt.Errorf("programs of the real node: %w", err)
	}
	c.Log("programs of the real node are built after %s", since(start))
	return nil
}

// waitForNodes waits until all nodes are ready.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	client, err := c.clientset()
	if err != nil {
		return err
	}
	want := map[string]int{"simulated": c.Options.SimulatedNodes}
	if c.state.RealNode {
		want["real"] = len(c.realNodes())
	}
	start, shown := time.Now(), time.Now()
	err = poll(ctx, 5*time.Minute, "nodes", func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := map[string]int{}
		for _, node := range nodes.Items {
			if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				ready[node.Labels[TypeLabel]]++
			}
		}
		if ready["simulated"] >= want["simulated"] && ready["real"] >= want["real"] {
			return nil
		}
		if dead := c.Processes.dead(); len(dead) > 0 {
			return stopError{fmt.Errorf("%s ended%s", dead[0], c.Processes.logEnd(dead[0]))}
		}
		err = fmt.Errorf("these are ready: %v, but these are wanted: %v", ready, want)
		if time.Since(shown) > 5*time.Second {
			shown = time.Now()
			c.Log("%v", err)
		}
		return err
	})
	if err != nil {
		if c.state.RealNode && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w%s", err, c.Processes.logEnd(Kubelet))
		}
		return err
	}
	c.Log("%d nodes are ready after %s", want["simulated"]+want["real"], since(start))
	return nil
}

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
	c.Log("down after %s; logs stay in %s", since(start), c.path("logs"))
	return nil
}

// down continues after errors: what can be removed is removed.
func (c *Cluster) down(ctx context.Context) error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	// The kubelet first: it would start again what is stopped below it. Containerd is process 1 of a
	// namespace, in which everything ends with it.
	for _, name := range []string{Kubelet, Driver, Kwok, Scheduler, ControllerManager, Containerd, APIServer, Etcd} {
		for i := range max(1, c.Options.ControlPlanes, c.Options.RealNodes) {
			if p := c.Processes.find(numbered(name, i)); p != nil {
				grace := 3 * time.Second
				if name == Containerd {
					grace = 0
				}
				note(p.stop(ctx, grace))
			}
		}
	}
	note(c.Processes.killRest(ctx, []string{c.Options.Bin, tools.Dir(c.Options.Repo), c.Own("")}, c.Log))
	// They are children of process 1 of this machine now, which takes its time with them. Where it
	// does not look after them at all, nothing can be done.
	_ = poll(ctx, 10*time.Second, "ended processes", func(context.Context) error {
		for _, p := range c.Processes.Started {
			if stat, err := stat(p.PID); err == nil && stat.Starttime == p.Clock {
				return errors.New("one is left")
			}
		}
		return nil
	})
	if os.Geteuid() == 0 && c.Ports[APIServer] != 0 {
		note(c.Traces.remove(ctx, c))
	}
	if err := errors.Join(errs...); err != nil {
		// The state is needed for the next attempt.
		return err
	}
	if err := c.removeFolder(); err != nil {
		return fmt.Errorf("%w; somebody may use the folder (fuser -v %s): stop that, and try again", err, c.Options.Dir)
	}
	opts := c.Options
	c.state = state{Options: opts, Processes: processes{dir: opts.Dir}}
	return nil
}

// removeFolder removes what is in the cluster's folder but the logs. The state goes last: it is needed for
// the next attempt if something cannot be removed.
func (c *Cluster) removeFolder() error {
	entries, err := os.ReadDir(c.Options.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() != "logs" && e.Name() != stateFile {
			if err := os.RemoveAll(filepath.Join(c.Options.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(c.path(stateFile))
}

// lock waits until no other process starts or stops the cluster.
func (c *Cluster) lock(ctx context.Context) (func(), error) {
	return sys.Lock(ctx, c.Options.Dir+".lock", func() { c.Log("another process starts or stops this cluster, waiting for it") })
}

func since(start time.Time) time.Duration { return time.Since(start).Round(100 * time.Millisecond) }
