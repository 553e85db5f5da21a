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

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
)

const accessLong = `Tell what a ServiceAccount lacks for writing the status of ResourceClaims, where the API server has
DRAResourceClaimGranularStatusAuthorization enabled. It can be asked before that is the case: permissions are only looked up.

It prints what the ServiceAccount may do, and the rules that it lacks. The exit code is 0 if it lacks nothing, 1 if it
does, 2 if that could not be found out. The verbs associated-node:... work only with a token that is bound to a node.

With --namespace it is about claims of that namespace, without it about those of all namespaces.`

const accessExample = `  # A DRA driver
  kubectl dra doctor access --service-account example-driver/plugin --driver driver.example.com

  # A controller that gives reservations back
  kubectl dra doctor access --service-account example-workloads/controller --binding`

// exitError ends the program with a code of its own.
type exitError struct {
	error
	code int
}

// ExitCode is what scripts go by.
func (e exitError) ExitCode() int { return e.code }

func (e exitError) Unwrap() error { return e.error }

// newAccessCommand returns the command that asks about one ServiceAccount.
func newAccessCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var account string
	n := need{}
	command := &cobra.Command{
		Use:     "access --service-account NAMESPACE/NAME (--driver NAME [--any-node] | --binding)",
		Short:   "Tell which rules a driver or a controller lacks",
		Long:    accessLong,
		Example: accessExample,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			n.namespace = *config.Namespace
			lacks, err := runAccess(command.Context(), config, streams.Out, account, n)
			if err != nil {
				return exitError{err, 2}
			}
			if lacks {
				return exitError{errors.New("the ServiceAccount lacks rules"), 1}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&account, "service-account", "", "Namespace and name of the ServiceAccount, like example-driver/plugin.")
	flags.StringVar(&n.driver, "driver", "", "Name of the driver whose devices the ServiceAccount reports.")
	flags.BoolVar(&n.anyNode, "any-node", false, "Also for claims which are allocated for other nodes than its own, or for several.")
	flags.BoolVar(&n.binding, "binding", false, "For changing the allocation, or for whom a claim is reserved: schedulers, and controllers of workloads.")
	flags.StringSliceVar(&n.verbs, "verbs", []string{"update", "patch"}, "How the status gets written. Server-side apply is a patch.")
	return command
}

// runAccess returns true if something is lacking.
func runAccess(ctx context.Context, config *genericclioptions.ConfigFlags, out io.Writer, account string, n need) (bool, error) {
	var found bool
	if n.account.Namespace, n.account.Name, found = strings.Cut(account, "/"); !found || n.account.Namespace == "" || n.account.Name == "" {
		return false, fmt.Errorf("--service-account must be like example-driver/plugin, not %q", account)
	}
	if n.driver == "" && !n.binding {
		return false, errors.New("--driver or --binding is needed: what does the ServiceAccount write?")
	}
	if n.anyNode && n.driver == "" {
		return false, errors.New("--any-node is about the devices of a driver: use it with --driver")
	}
	for _, verb := range n.verbs {
		if !slices.Contains([]string{"update", "patch"}, verb) {
			return false, fmt.Errorf("--verbs: %q is not a verb that writes the status: use update, patch, or update,patch", verb)
		}
	}
	rest, err := config.ToRESTConfig()
	if err != nil {
		return false, fmt.Errorf("no cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return false, fmt.Errorf("no client for %s: %w", rest.Host, err)
	}
	answers, err := check(ctx, client, n)
	if err != nil {
		return false, err
	}
	report := newReport(n, answers)
	_, err = io.WriteString(out, report.text)
	return report.lacks, err
}
