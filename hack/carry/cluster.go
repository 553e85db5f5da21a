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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/dist/binaries"
)

func init() {
	register(command{
		name:  "up",
		args:  "[--release 1.36] [flags]",
		short: "start a cluster on this machine with the features on",
		run:   runUp,
	})
	register(command{
		name:  "down",
		args:  "[--release 1.36 | --all]",
		short: "stop that cluster, and remove all of it but the logs",
		run:   runDown,
	})
}

// clusterFlags are what a cluster is started with.
type clusterFlags struct {
	release, bin, dir string
	gates             string
	noBuild, realNode bool
	options           cluster.Options
}

// addClusterFlags registers the flags with the values of a cluster for
// somebody who works with it.
func addClusterFlags(flags *flagSet) *clusterFlags {
	f := &clusterFlags{}
	flags.StringVar(&f.release, "release", "", "release of Kubernetes (default: that of the ledger)")
	flags.StringVar(&f.bin, "bin", "", "folder with the programs of Kubernetes (default: _output/<release>/bin)")
	flags.BoolVar(&f.noBuild, "no-build", false, "take the programs as they are")
	flags.StringVar(&f.dir, "dir", "", "folder of the cluster (default: _output/<release>/cluster)")
	flags.StringVar(&f.gates, "feature-gates", "", "gates besides those of the carried features, or others for them: A=true,B=false")
	flags.IntVar(&f.options.LogLevel, "log-level", 2, "verbosity of the components of Kubernetes")
	flags.IntVar(&f.options.APIPort, "api-port", 6443, "port of the API server; 0 for any")
	flags.IntVar(&f.options.EtcdPort, "etcd-port", 2379, "port of etcd; 0 for any")
	flags.IntVar(&f.options.SimulatedNodes, "nodes", 100, "number of simulated nodes")
	flags.IntVar(&f.options.ControlPlanes, "control-planes", 1, "number of control planes: 1, 3 or 5, each with a member of etcd and an API server, with leader election")
	flags.BoolVar(&f.realNode, "real-node", false, "refuse to go on without a node with a kubelet (default: where it can be)")
	flags.BoolVar(&f.options.NoRealNode, "no-real-node", false, "only simulated nodes")
	flags.StringVar(&f.options.RuntimeConfig, "runtime-config", "", "the API server's --runtime-config")
	flags.StringVar(&f.options.PodSubnet, "pod-subnet", "", "first two numbers of the addresses of pods, Services and the real node, 10.200 for example (default: any free ones)")
	return f
}

// cluster returns the cluster that the flags describe.
func (f *clusterFlags) cluster() (*cluster.Cluster, error) {
	repo, l, err := openRepository()
	if err != nil {
		return nil, err
	}
	if f.release == "" {
		r, err := l.Default()
		if err != nil {
			return nil, err
		}
		f.release = r.Name
	} else if _, err := l.Release(f.release); err != nil {
		return nil, err
	}
	if f.bin != "" {
		f.noBuild = true
	}
	output := filepath.Join(repo, "_output", f.release)
	for value, standard := range map[*string]string{&f.bin: "bin", &f.dir: "cluster"} {
		if *value == "" {
			*value = filepath.Join(output, standard)
		}
		if *value, err = filepath.Abs(*value); err != nil {
			return nil, err
		}
	}
	gates := map[string]bool{}
	for _, gate := range l.Gates(f.release) {
		gates[gate] = true
	}
	for item := range strings.SplitSeq(f.gates, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		gate, value, _ := strings.Cut(item, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("feature gate %q: want name=true or name=false", item)
		}
		gates[gate] = on
	}
	f.options.Repo, f.options.Release, f.options.Bin, f.options.Dir, f.options.Gates = repo, f.release, f.bin, f.dir, gates
	return cluster.New(f.options, progress())
}

// up starts the cluster if it does not run, with programs that are up to date. What can be refused is
// refused before anything is built.
func (f *clusterFlags) up(ctx context.Context) (c *cluster.Cluster, started bool, err error) {
	if c, err = f.cluster(); err != nil {
		return nil, false, err
	}
	real := c.Options.WantsRealNode()
	running, _ := c.Running()
	switch {
	case f.realNode && !real:
		return nil, false, errors.New("a node with a kubelet needs root, and must not be switched off: call this as root, or leave out REAL_NODE or --real-node")
	case !running && !real && !f.options.NoRealNode:
		progress()("there will be no node with a kubelet: that needs root")
	}
	if !running && !f.noBuild {
		if err := subcommand(ctx, "build", append([]string{"--release", f.release}, f.programs(real)...)...); err != nil {
			return nil, false, err
		}
	}
	started, err = c.Up(ctx)
	return c, started, err
}

// programs are those that the cluster starts, and no more: the others take minutes to compile. If all are
// there already, they are kept up to date.
func (f *clusterFlags) programs(real bool) []string {
	if !slices.ContainsFunc(binaries.Names, func(name string) bool {
		_, err := os.Stat(filepath.Join(f.bin, name))
		return err != nil
	}) {
		return nil
	}
	names := []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, "kubectl"}
	if real {
		names = append(names, cluster.Kubelet)
	}
	return names
}

func runUp(ctx context.Context, args []string) error {
	flags := newFlags("up")
	f := addClusterFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, started, err := f.up(ctx)
	if err != nil {
		return err
	}
	describeCluster(c, started)
	return nil
}

// describeCluster says how to reach it.
func describeCluster(c *cluster.Cluster, started bool) {
	if started {
		fmt.Printf("\nKubernetes %s is up", c.KubernetesVersion())
	} else {
		fmt.Printf("Kubernetes %s runs already", c.KubernetesVersion())
	}
	fmt.Printf(": ")
	if n := c.Options.ControlPlanes; n > 1 {
		fmt.Printf("%d control planes, ", n)
	}
	fmt.Printf("%d simulated nodes", c.Options.SimulatedNodes)
	if real, reason := c.HasRealNode(); real {
		fmt.Printf(", and a real one (%s).\nOn that one the image %s is there, no other can be pulled.\n"+
			"Pods for the simulated ones must tolerate the taint %s.\n", cluster.RealNode, cluster.ShellImage, cluster.SimulatedAnnotation)
	} else {
		fmt.Printf(".\nThere is no real node: %s.\n", reason)
	}
	fmt.Printf(`
  export KUBECONFIG=%s
  export PATH=%s:$PATH
  kubectl get nodes

Logs are in %s; "make demo" shows what it can do, "make down" takes it down.
`, c.Kubeconfig(), filepath.Dir(c.Kubectl()), filepath.Join(c.Options.Dir, "logs"))
}

func runDown(ctx context.Context, args []string) error {
	flags := newFlags("down")
	f := addClusterFlags(flags)
	all := flags.Bool("all", false, "the clusters of all releases in _output, and those that tests left there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *all {
		repo, l, err := openRepository()
		if err != nil {
			return err
		}
		errs := []error{downAll(ctx, filepath.Join(repo, "_output", "*", "cluster-test*"))}
		for _, r := range l.Carried() {
			one := *f
			one.release = r.Name
			c, err := one.cluster()
			if err == nil {
				err = c.Down(ctx)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	c, err := f.cluster()
	if err != nil {
		return err
	}
	return c.Down(ctx)
}

// downAll takes down each cluster whose folder fits the pattern.
func downAll(ctx context.Context, folders string) error {
	states, err := filepath.Glob(filepath.Join(folders, "cluster.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, state := range states {
		c, err := cluster.Open(filepath.Dir(state), progress())
		if err == nil {
			err = c.Down(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// downTestClusters takes down what tests left in the output of a release.
func downTestClusters(ctx context.Context, output string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return downAll(ctx, filepath.Join(output, "cluster-test*"))
}
