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

// Package e2e runs specs of upstream's end-to-end suite on a cluster with real
// nodes, those about DRA or those of conformance. It compares what came of them with
// another run: of the same suite, on a cluster without our patches.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"

	"kubernetes-dra/hack/pkg/sys"
)

const (
	// draLabels select the specs about DRA. Up to 1.32 they have no label of
	// their own, but require the feature.
	draLabels         = "DRA || /^Feature:DynamicResourceAllocation$/"
	conformanceLabels = "Conformance"
)

// Programs that are built from a tree: the suite, what runs it in parallel,
// and what runs in containers.
const (
	suiteProgram    = "e2e.test"
	ginkgoProgram   = "ginkgo"
	agnhost         = "agnhost"
	devicePlugin    = "sample-device-plugin"
	hostPathProgram = "hostpathplugin"
	pauseProgram    = "pause"
	sampleAPIServer = "sample-apiserver"
)

// Suite is upstream's suite in a tree.
type Suite struct {
	// Repo is the root of this repository, Tree the Kubernetes tree.
	Repo, Tree string
	// Bin gets the programs that are built, Cache what is downloaded.
	Bin, Cache string
	// LDFlags are those for the suite: some specs ask it for its version.
	LDFlags string
	// Conformance selects the specs of conformance in place of those about DRA.
	Conformance bool
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// labels are a filter for ginkgo.
func (s *Suite) labels() string {
	if s.Conformance {
		return conformanceLabels
	}
	return draLabels
}

func (s *Suite) program(name string) string { return filepath.Join(s.Bin, name) }

// Build builds the suite and the other programs.
func (s *Suite) Build(ctx context.Context) error {
	if err := os.MkdirAll(s.Bin, 0o755); err != nil {
		return err
	}
	const stripped = "-ldflags=-s -w"
	images := []string{"./test/images/" + agnhost, "./test/images/" + devicePlugin}
	if s.Conformance {
		images = append(images, "k8s.io/"+sampleAPIServer)
	}
	for _, b := range []struct {
		what, dir string
		env, args []string
	}{
		{"the suite", s.Tree, sys.GoEnviron(), []string{"test", "-c", "-ldflags=" + s.LDFlags, "-o", s.program(suiteProgram), "./test/e2e"}},
		{"what it runs with", s.Tree, sys.GoEnviron(), append([]string{
			"build", stripped, "-o", s.Bin + string(filepath.Separator), "github.com/onsi/ginkgo/v2/ginkgo",
		}, images...)},
		{"our own part", s.Repo, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"), []string{
			"build", stripped, "-o", s.Bin + string(filepath.Separator), "./hack/pkg/test/e2e/" + hostPathProgram, "./test/cluster/" + pauseProgram,
		}},
	} {
		s.Log("compile %s", b.what)
		if err := sys.Run(ctx, sys.Command(ctx, b.dir, b.env, "go", b.args...)); err != nil {
			return fmt.Errorf("%s, in %s: %w", b.what, b.dir, err)
		}
	}
	return nil
}

// Spec is one of the suite.
type Spec struct {
	// Name has the texts of all its containers. The suite may have several
	// specs of a name, which count as one.
	Name string `json:"name"`
	// Labels of it and its containers.
	Labels []string `json:"labels"`
}

// Specs are those with the labels, as the suite itself lists them.
func (s *Suite) Specs(ctx context.Context) ([]Spec, error) {
	return dryRun(ctx, s.Bin, s.program(suiteProgram), s.labels())
}

// dryRun lists the specs of a program that have some labels. The program runs in the folder dir.
func dryRun(ctx context.Context, dir, program, labels string) ([]Spec, error) {
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	file := filepath.Join(temp, "specs.json")
	if err := sys.Run(ctx, sys.Command(ctx, dir, nil, program, "--ginkgo.dry-run", "--ginkgo.label-filter="+labels, "--ginkgo.json-report="+file)); err != nil {
		return nil, err
	}
	reports, err := readReport(file)
	if err != nil {
		return nil, err
	}
	specs := listed(reports)
	if len(specs) == 0 {
		return nil, fmt.Errorf("%s has no specs with the labels %s", program, labels)
	}
	return specs, nil
}

// listed are the specs that a dry run would run.
func listed(reports []types.Report) []Spec {
	var specs []Spec
	for _, report := range reports {
		for _, r := range report.SpecReports {
			if r.LeafNodeType != types.NodeTypeIt || r.State != types.SpecStatePassed {
				continue
			}
			labels := slices.Compact(slices.Sorted(slices.Values(r.Labels())))
			specs = append(specs, Spec{Name: r.FullText(), Labels: labels})
		}
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(specs, func(a, b Spec) bool { return a.Name == b.Name })
}

// ask runs the suite without a cluster.
func (s *Suite) ask(ctx context.Context, args ...string) (string, error) {
	return sys.Output(ctx, sys.Command(ctx, s.Bin, nil, s.program(suiteProgram), args...))
}

func readReport(file string) ([]types.Report, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(reports) == 0 {
		return nil, errors.New(file + " has no report")
	}
	return reports, nil
}
