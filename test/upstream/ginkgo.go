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

package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// exclusion is a filter for labels of specs that cannot pass, and the reason.
type exclusion struct{ filter, reason string }

// markers are labels that look like those for a gate before 1.33, but say something about a gate, or
// about all specs here.
var markers = []string{"DynamicResourceAllocation", "OffByDefault", "Alpha", "Beta"}

// gateOf is the feature gate that a label stands for, empty if it is none.
func gateOf(label string) string {
	kind, gate, _ := strings.Cut(label, ":")
	if kind == "FeatureGate" || kind == "Feature" && !slices.Contains(markers, gate) {
		return gate
	}
	return ""
}

// minCPUs is what the specs about resources of the node want. Each takes up to two, and its
// pod stays: upstream stops the driver first, so the kubelet cannot end the pod. From the
// second spec on, pods would wait for five minutes each on a smaller node.
const minCPUs = 16

// exclusions are for a kubelet of a release, if it is another one, and for a node with so many CPUs.
// Whether enough nodes are there is left to the suite.
func exclusions(labels []string, on func(gate string) bool, kubelet string, cpus int) []exclusion {
	out := []exclusion{{"Flaky", "upstream says that it is flaky"}}
	if cpus < minCPUs {
		out = append(out, exclusion{"Serial && " + exactly("FeatureGate:DRANodeAllocatableResources"),
			fmt.Sprintf("wants %d CPUs: its pod takes up to two, and stays", minCPUs)})
	}
	for _, label := range labels {
		if gate := gateOf(label); gate != "" && !on(gate) {
			out = append(out, exclusion{exactly(label), "needs " + gate + ", which is not on"})
		}
		// Upstream's label of specs that an older kubelet cannot pass.
		version, found := strings.CutPrefix(label, "KubeletMinVersion:")
		if found && kubelet != "" && ledger.Minor(version) > ledger.Minor(kubelet) {
			out = append(out, exclusion{exactly(label), "needs a kubelet of " + version})
		}
	}
	return out
}

// exactly is a filter for a label. Ginkgo takes a colon for something else.
func exactly(label string) string { return "/^" + regexp.QuoteMeta(label) + "$/" }

// without is a filter for what the exclusions leave.
func without(filter string, out []exclusion) string {
	for _, e := range out {
		filter = "(" + filter + ") && !(" + e.filter + ")"
	}
	return filter
}

// reported are the specs in ginkgo's reports, without other nodes of the tree of specs.
func reported(files ...string) (types.SpecReports, error) {
	var specs types.SpecReports
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var reports []types.Report
		if err := json.Unmarshal(content, &reports); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, report := range reports {
			for _, s := range report.SpecReports {
				if s.LeafNodeType.Is(types.NodeTypeIt) {
					specs = append(specs, s)
				} else if s.Failed() && s.LeafNodeType.Is(types.NodeTypesForSuiteLevelNodes) {
					return nil, fmt.Errorf("%s of the suite failed: %s", s.LeafNodeType, s.FailureMessage())
				}
			}
		}
	}
	return specs, nil
}

// outcomes are what came of the specs with some labels and a text in their names. The suite may have
// several of a name, and several reports may know it: the worst one counts.
func outcomes(reports types.SpecReports, filter, only string, out []exclusion) ([]Spec, error) {
	matches, err := types.ParseLabelFilter(filter)
	if err != nil {
		return nil, err
	}
	var filters []types.LabelFilter
	for _, e := range out {
		f, err := types.ParseLabelFilter(e.filter)
		if err != nil {
			return nil, err
		}
		filters = append(filters, f)
	}
	byName := map[string]types.SpecReport{}
	var specs []Spec
	for _, s := range reports {
		if name := s.FullText(); matches(s.Labels()) && strings.Contains(name, only) {
			old, known := byName[name]
			if !known {
				specs = append(specs, Spec{Name: name})
			}
			if !known || severity(s) > severity(old) {
				byName[name] = s
			}
		}
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("no spec has the labels %s and %q in its name", filter, only)
	}
	for i := range specs {
		s := byName[specs[i].Name]
		excluded := slices.IndexFunc(filters, func(f types.LabelFilter) bool { return f(s.Labels()) })
		specs[i].Outcome, specs[i].Reason = outcome(s)
		specs[i].Again = s.NumAttempts > 1
		if excluded >= 0 && severity(s) == 0 {
			specs[i].Outcome, specs[i].Reason = Skipped, out[excluded].reason
		}
	}
	slices.SortFunc(specs, func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
	return specs, nil
}

// severity is 0 for a spec of which a report says nothing but that it did not run.
func severity(s types.SpecReport) int {
	switch {
	case s.Failed():
		return 3
	case s.State == types.SpecStatePassed:
		return 2
	case s.FailureMessage() != "" || s.State == types.SpecStatePending:
		return 1
	}
	return 0
}

func outcome(s types.SpecReport) (outcome, reason string) {
	message := strings.TrimSpace(s.FailureMessage() + " " + s.Failure.ForwardedPanic)
	switch {
	case s.State == types.SpecStatePassed:
		return Passed, ""
	case s.State == types.SpecStatePending:
		return Skipped, "upstream switched it off"
	case s.State == types.SpecStateSkipped && message != "":
		return Skipped, message
	case s.State == types.SpecStateSkipped:
		// The suite ended before its turn.
		return Failed, "it did not run"
	}
	return Failed, fmt.Sprintf("%s at %s: %s", s.State, s.FailureLocation(), message)
}
