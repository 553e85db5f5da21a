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

// Package graph draws how pods, claims, devices and nodes hang together.
package graph

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/internal/terminal"
	"kubernetes-dra/cmd/kubectl-dra/pkg/output"
	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

const long = `Print a graph in the DOT language, or a picture of it: who owns the pods, which claims they have, and which devices
these have on which nodes. Graphviz and many editors show it. For a picture, the program dot of Graphviz has to be there.`

const example = `  # A picture of what a pod has to do with
  kubectl dra graph pod/train-0 -o svg > train-0.svg

  # All devices of a node, and who has them
  kubectl dra graph node/worker-1`

// maxPods is how many pods of a claim are drawn.
const maxPods = 50

type options struct {
	config  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	format  string
}

// NewCommand returns the command. The flags say how to reach the cluster.
func NewCommand(config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{config: config, streams: streams}
	command := &cobra.Command{
		Use:     "graph (claim/NAME | pod/NAME | node/NAME) [-o dot|svg]",
		Short:   "Draw how pods, claims, devices and nodes hang together",
		Long:    long,
		Example: example,
		Args:    cobra.ExactArgs(1),
		RunE:    func(command *cobra.Command, args []string) error { return o.run(command.Context(), args[0]) },
	}
	command.Flags().StringVarP(&o.format, "output", "o", formatDOT, "Output format: dot or svg.")
	return command
}

const formatDOT, formatSVG = "dot", "svg"

func (o *options) run(ctx context.Context, arg string) error {
	if o.format != formatDOT && o.format != formatSVG {
		return fmt.Errorf("--output %q: use dot or svg", o.format)
	}
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("no namespace: %w", err)
	}
	kind, name, found := strings.Cut(arg, "/")
	if !found || name == "" {
		return fmt.Errorf("%q: write pod/%s, claim/%s or node/%s", arg, arg, arg, arg)
	}
	if kind == "node" || kind == "nodes" || kind == "no" {
		// The pods of its devices can be anywhere.
		namespace = ""
	}
	reader, err := view.NewReader(o.config, o.streams.ErrOut)
	if err != nil {
		return err
	}
	s, err := reader.ReadScoped(ctx, namespace, view.Pods, view.Claims, view.Slices)
	if err != nil {
		return err
	}
	g := &graph{s: s, names: map[string]string{}, drawn: sets.New[string]()}
	switch kind {
	case "pod", "pods", "po":
		err = g.pod(name)
	case "claim", "claims", "resourceclaim", "resourceclaims":
		claim := s.Claim(namespace, name)
		if claim == nil {
			return fmt.Errorf("there is no ResourceClaim %q in namespace %q", name, namespace)
		}
		g.claim(claim)
		g.neighbours(claim)
	case "node", "nodes", "no":
		err = g.node(name)
	default:
		err = fmt.Errorf("%q: there are graphs of a pod, a claim and a node", kind)
	}
	if err != nil {
		return err
	}
	fmt.Fprint(o.streams.ErrOut, output.Unseen(output.Gaps(s)))
	if o.format == formatSVG {
		return o.draw(ctx, g)
	}
	_, err = io.WriteString(o.streams.Out, g.String())
	return err
}

// draw lets Graphviz make the picture.
func (o *options) draw(ctx context.Context, g *graph) error {
	dot, err := exec.LookPath("dot")
	if err != nil {
		return fmt.Errorf("--output svg needs the program dot of Graphviz (most distributions have it in the package graphviz), --output dot does not: %w", err)
	}
	command := exec.CommandContext(ctx, dot, "-Tsvg")
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(g.String()), o.streams.Out, o.streams.ErrOut
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s -Tsvg: %w", dot, err)
	}
	return nil
}

// graph has its lines in the order in which they were found, so that it is always the same.
type graph struct {
	s     *view.Snapshot
	lines []string
	// names are those of the graph, by what they stand for.
	names map[string]string
	drawn sets.Set[string]
}

func (g *graph) String() string {
	return "digraph dra {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n" + strings.Join(g.lines, "") + "}\n"
}

// quote makes a string of DOT: others choose what is in it.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(terminal.Clean(text)) + `"`
}

// add draws something once and returns its name.
func (g *graph) add(kind, id, label, shape string) string {
	key := kind + " " + id
	if name := g.names[key]; name != "" {
		return name
	}
	name := fmt.Sprintf("n%d", len(g.names))
	g.names[key] = name
	text := strings.TrimSuffix(quote(kind), `"`) + `\n` + strings.TrimPrefix(quote(label), `"`)
	g.lines = append(g.lines, fmt.Sprintf("  %s [shape=%s, label=%s];\n", name, shape, text))
	return name
}

func (g *graph) edge(from, to, label, style string) {
	line := fmt.Sprintf("  %s -> %s [label=%s, style=%s];\n", from, to, quote(label), style)
	if !g.drawn.Has(line) {
		g.drawn.Insert(line)
		g.lines = append(g.lines, line)
	}
}

func (g *graph) pod(name string) error {
	for _, pod := range g.s.Pods {
		if pod.Name != name {
			continue
		}
		g.addPod(pod)
		for entry, claimName := range view.ClaimNames(pod) {
			if claim := g.s.Claim(pod.Namespace, claimName); claim != nil {
				g.edge(g.addPod(pod), g.claim(claim), entry, "solid")
				g.neighbours(claim)
			}
		}
		return nil
	}
	return fmt.Errorf("there is no pod %q in namespace %q", name, g.s.Namespace)
}

func (g *graph) addPod(pod *corev1.Pod) string {
	name := g.add("Pod", pod.Namespace+"/"+pod.Name, pod.Name, "box")
	if owner := metav1.GetControllerOf(pod); owner != nil {
		g.edge(g.add(owner.Kind, pod.Namespace+"/"+owner.Name, owner.Name, "folder"), name, "controls", "dotted")
	}
	return name
}

// claim draws a claim, its pods and its devices.
func (g *graph) claim(claim *view.Claim) string {
	key := "ResourceClaim " + claim.Namespace + "/" + claim.Name
	if name := g.names[key]; name != "" {
		return name
	}
	name := g.add("ResourceClaim", claim.Namespace+"/"+claim.Name, claim.Namespace+"/"+claim.Name, "ellipse")
	pods := g.s.PodsOf(claim)
	for i, pod := range pods {
		if i == maxPods {
			g.edge(g.add("and more", claim.Namespace+"/"+claim.Name, fmt.Sprintf("%d pods", len(pods)-maxPods), "box"), name, "", "solid")
			break
		}
		for entry, claimName := range view.ClaimNames(pod) {
			if claimName == claim.Name {
				g.edge(g.addPod(pod), name, entry, "solid")
			}
		}
	}
	for _, ref := range claim.Status.ReservedFor {
		if !view.IsPod(ref) {
			g.edge(name, g.add("workload", claim.Namespace+"/"+view.Consumer(ref), view.Consumer(ref), "folder"), "reserved for", "dotted")
		}
	}
	if claim.Status.Allocation == nil {
		return name
	}
	for i := range claim.Status.Allocation.Devices.Results {
		h := view.Holder{Claim: claim, Result: &claim.Status.Allocation.Devices.Results[i]}
		label, style := h.Result.Request, "bold"
		if h.IsAdmin() {
			label, style = label+" (admin access)", "dashed"
		}
		g.edge(name, g.device(view.ID{Driver: h.Result.Driver, Pool: h.Result.Pool, Device: h.Result.Device}), label, style)
	}
	return name
}

func (g *graph) device(id view.ID) string {
	key := "Device " + id.String()
	if name := g.names[key]; name != "" {
		return name
	}
	name := g.add("Device", id.String(), id.String(), "component")
	for _, d := range g.s.Devices() {
		if d.ID == id && d.NodeName() != "" {
			g.edge(name, g.add("Node", d.NodeName(), d.NodeName(), "box3d"), "on", "solid")
		}
	}
	return name
}

// neighbours draws other claims with the same devices.
func (g *graph) neighbours(claim *view.Claim) {
	if claim.Status.Allocation == nil {
		return
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		for _, h := range g.s.Holders()[view.ID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}] {
			g.claim(h.Claim)
		}
	}
}

func (g *graph) node(name string) error {
	found := false
	for _, d := range g.s.Devices() {
		if d.NodeName() != name {
			continue
		}
		found = true
		g.device(d.ID)
		for _, h := range g.s.Holders()[d.ID] {
			g.claim(h.Claim)
		}
	}
	if !found {
		return fmt.Errorf("node %q has no devices in ResourceSlices", name)
	}
	return nil
}
