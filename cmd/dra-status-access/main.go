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

// Command dra-status-access says what a ServiceAccount lacks for writing the status
// of ResourceClaims, when the API server has DRAResourceClaimGranularStatusAuthorization
// enabled. It can be asked before that is the case: permissions are only looked up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const usage = `dra-status-access --service-account <namespace>/<name> --driver <name> [--any-node]
dra-status-access --service-account <namespace>/<name> --binding

It prints what the ServiceAccount may do, and the rules that it lacks. The exit code
is 0 if it lacks nothing, 1 if it does, 2 if that could not be found out. The verbs
associated-node:... work only with a token that is bound to a node.

`

func main() {
	lacks, err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "dra-status-access:", err)
		os.Exit(2)
	case lacks:
		os.Exit(1)
	}
}

// run returns true if something is lacking.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (bool, error) {
	flags := flag.NewFlagSet("dra-status-access", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "file that says how to reach the cluster (default: $KUBECONFIG, or ~/.kube/config, or the ServiceAccount of the pod)")
	flags.StringVar(&overrides.CurrentContext, "context", "", "context in that file (default: the current one)")
	account := flags.String("service-account", "", "namespace and name of the ServiceAccount, like example-driver/plugin")
	var need need
	flags.StringVar(&need.driver, "driver", "", "name of the driver whose devices the ServiceAccount reports")
	flags.BoolVar(&need.anyNode, "any-node", false, "also for claims which are allocated for other nodes than its own, or for several")
	flags.BoolVar(&need.binding, "binding", false, "for changing the allocation, or for whom a claim is reserved: schedulers, and controllers of workloads")
	flags.StringVar(&need.namespace, "namespace", "", "namespace of the claims (default: all namespaces)")
	verbs := flags.String("verbs", "update,patch", "how the status gets written; server-side apply is a patch")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var found bool
	if need.account.namespace, need.account.name, found = strings.Cut(*account, "/"); !found || need.account.namespace == "" || need.account.name == "" {
		return false, fmt.Errorf("--service-account must be like example-driver/plugin, not %q", *account)
	}
	if need.driver == "" && !need.binding {
		return false, errors.New("--driver or --binding is needed: what does the ServiceAccount write?")
	}
	if need.anyNode && need.driver == "" {
		return false, errors.New("--any-node is about the devices of a driver: use it with --driver")
	}
	for verb := range strings.SplitSeq(*verbs, ",") {
		if !slices.Contains([]string{"update", "patch"}, verb) {
			return false, fmt.Errorf("--verbs: %q is not a verb that writes the status: use update, patch, or update,patch", verb)
		}
		need.verbs = append(need.verbs, verb)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return false, fmt.Errorf("no cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("no client for %s: %w", config.Host, err)
	}
	answers, err := check(ctx, client, need)
	if err != nil {
		return false, err
	}
	report := newReport(need, answers)
	_, err = io.WriteString(stdout, report.text)
	return report.lacks, err
}
