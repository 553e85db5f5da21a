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

// Command kubectl-dra is a plugin of kubectl for clusters with devices in claims, with the carry or without. It
// tells who has which device, why a pod waits and what is wrong. Only its verbs downgrade and try-cases change something.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"kubernetes-dra/cmd/kubectl-dra/pkg/doctor"
	"kubernetes-dra/cmd/kubectl-dra/pkg/downgrade"
	"kubernetes-dra/cmd/kubectl-dra/pkg/graph"
	"kubernetes-dra/cmd/kubectl-dra/pkg/trycases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/who"
	"kubernetes-dra/cmd/kubectl-dra/pkg/why"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := newCommand(streams).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var exit interface{ ExitCode() int }
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

const long = `Look after devices in ResourceClaims: tell who has them, why a pod waits for them, and what is wrong.

All verbs but downgrade and try-cases only read. They work with Kubernetes 1.32 and later, patched or not.`

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	command := &cobra.Command{
		Use:           "kubectl-dra",
		Short:         "Look after devices in ResourceClaims",
		Long:          long,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl dra"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	flags.AddFlags(command.PersistentFlags())
	command.AddCommand(
		why.NewCommand(flags, streams), who.NewCommand(flags, streams), doctor.NewCommand(flags, streams),
		graph.NewCommand(flags, streams), downgrade.NewCommand(flags, streams),
		trycases.NewCommand(flags, streams),
	)
	return command
}
