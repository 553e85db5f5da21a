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
	"fmt"
	"time"

	"kubernetes-dra/hack/pkg/cluster/demo"
)

func init() {
	register(command{
		name:  "demo",
		args:  "[--release 1.36] [flags]",
		short: "on that cluster, let the pods of a Job share one ResourceClaim, or give pods network devices",
		run:   runDemo,
	})
}

func runDemo(ctx context.Context, args []string) error {
	flags := newFlags("demo")
	f := addClusterFlags(flags)
	options := demo.Options{}
	flags.IntVar(&options.Pods, "pods", 1000, "number of pods of the Job")
	flags.BoolVar(&options.Network, "network", false, "two pods with an additional interface each instead")
	flags.DurationVar(&options.Timeout, "timeout", 10*time.Minute, "how long the story may take")
	flags.BoolVar(&options.Keep, "keep", false, "stop when all pods run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Its pods need a kubelet.
	f.realNode = f.realNode || options.Network
	c, started, err := f.up(ctx)
	if err != nil {
		return err
	}
	if started {
		describeCluster(c, started)
		fmt.Println()
	}
	return demo.Run(ctx, c, options)
}
