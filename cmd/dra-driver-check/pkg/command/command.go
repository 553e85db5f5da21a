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

// Package command is the command line of dra-driver-check.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
	"kubernetes-dra/cmd/dra-driver-check/pkg/checks"
)

const long = `Check a DRA driver from outside: what pods, claims and ResourceSlices show.

It runs pods with the driver's devices, in a namespace that it makes and removes. Run it on a cluster for tests:
on one node it deletes ResourceSlices of the driver and, with --driver-selector, the driver's pods. Both come back.
For some seconds it taints all devices of the node, and for a while as many pods run there as fit (--pods).

It cannot see into a device. --probe is a shell command that does: it runs in each container, and succeeds only where
the device is. Without it, a driver that prepares nothing and reports success passes.

The exit code is 0 if nothing failed, 1 if a check failed, and 2 if that could not be found out.`

const example = `  # All checks
  dra-driver-check --driver gpu.example.com --device-class gpu.example.com --probe 'env | grep GPU_DEVICE' \
    --driver-selector gpu-driver/app=plugin --service-account gpu-driver/plugin

  # Two of them, for a program
  dra-driver-check --driver gpu.example.com --device-class gpu.example.com --only pod,workload -o json`

// errFailed is for the exit code. What failed was printed.
var errFailed = errors.New("a check failed")

// ExitCode is that of the program.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	}
	return 2
}

type options struct {
	check.Options
	config  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	template, image, selector, account, output string
	only, skip                                 []string
	list                                       bool
}

// New returns the command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: genericclioptions.NewConfigFlags(true), streams: streams}
	command := &cobra.Command{
		Use: "dra-driver-check --driver NAME --device-class CLASS", Short: "Check a DRA driver from outside", Long: long, Example: example,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	o.config.AddFlags(command.Flags())
	f := command.Flags()
	f.Lookup("namespace").Usage = "Namespace for the pods and claims. Without it, one is made and removed."
	f.StringVar(&o.Driver, "driver", "", "Name of the driver.")
	f.StringVar(&o.DeviceClass, "device-class", "", "DeviceClass that selects devices of the driver.")
	f.StringVar(&o.template, "pod-template", "", "File with a pod. Its first container gets the devices, and another command: the image needs sh.")
	f.StringVar(&o.image, "image", "busybox:stable", "Image with sh, unless there is a pod template.")
	f.StringVar(&o.Probe, "probe", "", "Shell command that succeeds only in a container with a device.")
	f.BoolVar(&o.Exclusive, "exclusive", false, "Only one pod at a time can use a device of this driver.")
	f.IntVar(&o.Pods, "pods", 300, "How many pods share a claim, if the node has room for so many.")
	f.StringSliceVar(&o.OnlyNodes, "node", nil, "Nodes to look at. Needed if the driver's slices are not about one node each.")
	f.StringVar(&o.selector, "driver-selector", "", "Namespace and labels of the driver's pods, like gpu-driver/app=plugin. Needed to restart them.")
	f.StringVar(&o.account, "service-account", "", "Namespace and name of the driver's service account. Needed to look at its rights.")
	f.DurationVar(&o.Patience, "patience", 2*time.Minute, "How long something may take that takes seconds.")
	f.StringSliceVar(&o.only, "only", nil, "IDs of the checks to run.")
	f.StringSliceVar(&o.skip, "skip", nil, "IDs of checks not to run.")
	f.BoolVar(&o.list, "list", false, "Only list the checks.")
	f.StringVarP(&o.output, "output", "o", "table", "Output format: table, json or yaml.")
	return command
}

func (o *options) run(ctx context.Context) error {
	if !slices.Contains([]string{"table", "json", "yaml"}, o.output) {
		return fmt.Errorf("--output %q: use table, json or yaml", o.output)
	}
	chosen, err := choose(checks.All(), o.only, o.skip)
	if err != nil {
		return err
	}
	if o.list {
		for _, c := range chosen {
			fmt.Fprintf(o.streams.Out, "%-20s %s\n", c.ID, c.Asks)
		}
		return nil
	}
	if err := o.complete(); err != nil {
		return err
	}
	env, err := o.connect(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.streams.ErrOut, "nodes with devices: %s; namespace: %s\n", strings.Join(env.Nodes(), ", "), env.Namespace)
	// Pods take their time to go.
	told := context.AfterFunc(ctx, func() { fmt.Fprintln(o.streams.ErrOut, "interrupted: removing what was made") })
	defer told()
	results, runErr := check.Run(ctx, env, chosen, func(r check.Result) {
		fmt.Fprintf(o.streams.ErrOut, "%s: %s, %s\n", r.ID, r.Verdict, check.Seconds(r.Took))
	})
	// Also after an interruption, which ends only what is in between.
	err = errors.Join(runErr, env.Close(context.WithoutCancel(ctx)), o.print(results))
	if ctx.Err() != nil {
		return errors.Join(err, fmt.Errorf("interrupted after %d of %d checks: %w", len(results), len(chosen), ctx.Err()))
	}
	if err == nil && check.Count(results, check.Fail) > 0 {
		return errFailed
	}
	return err
}

// choose returns those with the given IDs, all without any, and none that is skipped.
func choose(all []check.Check, only, skip []string) (chosen []check.Check, err error) {
	unknown := sets.New(slices.Concat(only, skip)...)
	for _, c := range all {
		unknown.Delete(c.ID)
		if (len(only) == 0 || slices.Contains(only, c.ID)) && !slices.Contains(skip, c.ID) {
			chosen = append(chosen, c)
		}
	}
	if unknown.Len() > 0 {
		return nil, fmt.Errorf("there is no check %s; --list shows all", strings.Join(sets.List(unknown), ", "))
	}
	return chosen, nil
}

// complete checks the flags, and reads the template.
func (o *options) complete() error {
	if o.Driver == "" || o.DeviceClass == "" {
		return errors.New("--driver and --device-class are needed: what should be checked?")
	}
	if o.Pods < 2 {
		return fmt.Errorf("--pods %d: at least 2 pods share a claim", o.Pods)
	}
	if o.Patience <= 0 {
		return fmt.Errorf("--patience %s: use a time like 2m", o.Patience)
	}
	var err error
	if o.DriverNamespace, o.DriverSelector, err = cut("--driver-selector", o.selector, "gpu-driver/app=plugin"); err != nil {
		return err
	}
	if _, err := labels.Parse(o.DriverSelector); err != nil {
		return fmt.Errorf("--driver-selector %q: %w", o.selector, err)
	}
	if o.AccountNamespace, o.AccountName, err = cut("--service-account", o.account, "gpu-driver/plugin"); err != nil {
		return err
	}
	o.Template, err = o.readTemplate()
	return err
}

// cut splits a flag into a namespace and what is in it.
func cut(flag, value, example string) (namespace, rest string, err error) {
	if value == "" {
		return "", "", nil
	}
	namespace, rest, found := strings.Cut(value, "/")
	if !found || namespace == "" || rest == "" {
		return "", "", fmt.Errorf("%s %q: use something like %s", flag, value, example)
	}
	return namespace, rest, nil
}

func (o *options) readTemplate() (corev1.PodTemplateSpec, error) {
	var t corev1.PodTemplateSpec
	if o.template == "" {
		second, no := int64(1), false
		t.Spec = corev1.PodSpec{
			TerminationGracePeriodSeconds: &second, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "checked", Image: o.image, ImagePullPolicy: corev1.PullIfNotPresent}},
		}
		return t, nil
	}
	data, err := os.ReadFile(o.template)
	if err != nil {
		return t, fmt.Errorf("--pod-template: %w", err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(data, &pod); err != nil {
		return t, fmt.Errorf("--pod-template %s: it is not a pod: %w", o.template, err)
	}
	if len(pod.Spec.Containers) == 0 {
		return t, fmt.Errorf("--pod-template %s: the pod has no container for the devices", o.template)
	}
	t.Labels, t.Annotations, t.Spec = pod.Labels, pod.Annotations, pod.Spec
	return t, nil
}

// connect makes the environment of the checks.
func (o *options) connect(ctx context.Context) (*check.Env, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: %w", err)
	}
	// Hundreds of pods come and go. The API server limits what it cannot bear.
	config.QPS, config.Burst, config.Timeout = 50, 100, 30*time.Second
	// The kind of a consumer that nobody knows is meant.
	config.WarningHandler = rest.NoWarnings{}
	env := check.Env{Options: o.Options, Namespace: *o.config.Namespace}
	if env.Mapper, err = o.config.ToRESTMapper(); err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", config.Host, err)
	}
	if env.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if env.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	return check.Open(ctx, env)
}

func (o *options) print(results []check.Result) error {
	if o.output == "table" {
		return check.Print(o.streams.Out, results)
	}
	printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.output)
	if err != nil {
		return err
	}
	return printer.PrintObj(check.Object(o.Driver, results), o.streams.Out)
}
