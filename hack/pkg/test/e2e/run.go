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

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/sys"
)

// attempts is how often a spec that fails gets run. Specs have deadlines, which
// a busy machine may miss.
const attempts = 2

// Run are the specs to run on a cluster.
type Run struct {
	*Suite
	// Name of the run, for messages and files.
	Name string
	// Tree is the git tree object of the tree that the suite is from.
	Tree  string
	Specs []Spec
	// Only keeps specs out whose name does not have this text.
	Only string
	// Procs is how many specs run at the same time. They mostly wait.
	Procs int
	// Nodes is how many nodes the cluster has.
	Nodes int
	// LogDir gets the output, and the report.
	LogDir string
	// Kubelet is the minor release of an older kubelet, empty if it is none.
	Kubelet string
	// KubeletLacks are feature gates that it does not have although the API server does.
	KubeletLacks []string
}

// Cluster is one for specs: with nodes that have a kubelet.
type Cluster interface {
	NewClient(ctx context.Context) (*cluster.Client, error)
	// Kubeconfig is the path of the administrator's, Kubectl that of the program.
	Kubeconfig() string
	Kubectl() string
	// KubernetesVersion is that of the API server.
	KubernetesVersion() string
}

var _ Cluster = &cluster.Cluster{}

// On runs the specs on a cluster that is up.
func (r *Run) On(ctx context.Context, c Cluster) (*Result, error) {
	client, err := c.NewClient(ctx)
	if err != nil {
		return nil, err
	}
	on, err := gatesOn(ctx, client)
	if err != nil {
		return nil, err
	}
	result := &Result{Name: r.Name, Version: c.KubernetesVersion(), Tree: r.Tree, Only: r.Only, Nodes: r.Nodes}
	keptOut := map[string]string{}
	var selected []Spec
	for _, spec := range r.Specs {
		if !strings.Contains(spec.Name, r.Only) {
			continue
		}
		selected = append(selected, spec)
		if reason := spec.keptOut(func(gate string) bool { return on[gate] && !slices.Contains(r.KubeletLacks, gate) }, r.Kubelet, runtime.NumCPU()); reason != "" {
			keptOut[spec.Name] = reason
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no spec has %q in its name", r.Only)
	}

	if on[statusAuthorization] && !r.Conformance {
		if err := r.allowStatus(ctx, client); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(r.LogDir, 0o755); err != nil {
		return nil, err
	}
	var reports []types.Report
	for _, part := range r.parts(selected, keptOut) {
		report, err := r.run(ctx, c, part)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report...)
	}
	if err := result.read(reports, selected, keptOut); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, r.LogDir)
	}
	return result, nil
}

// part are specs that one run of ginkgo has.
type part struct {
	// name stands before those of its files.
	name         string
	procs, specs int
	// filters are flags of ginkgo.
	filters []string
}

// parts are the specs that are not kept out: first all that may run together, then the others.
func (r *Run) parts(specs []Spec, keptOut map[string]string) []part {
	together, last := part{procs: r.Procs}, part{name: "alone-", procs: 1}
	if r.Only != "" {
		together.filters = []string{"--focus=" + regexp.QuoteMeta(r.Only)}
	}
	for _, spec := range specs {
		// It is matched with the name of the suite before that of the spec.
		filter := "= " + regexp.QuoteMeta(spec.Name) + "$"
		out := keptOut[spec.Name] != ""
		if !out && !spec.alone() {
			together.specs++
			continue
		}
		together.filters = append(together.filters, "--skip"+filter)
		if !out {
			last.specs++
			last.filters = append(last.filters, "--focus"+filter)
		}
	}
	return slices.DeleteFunc([]part{together, last}, func(p part) bool { return p.specs == 0 })
}

// run runs a part.
func (r *Run) run(ctx context.Context, c Cluster, p part) ([]types.Report, error) {
	report := filepath.Join(r.LogDir, p.name+"report.json")
	if err := os.Remove(report); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	args := append([]string{
		"run", "--no-color", "-v", "--timeout=4h",
		"--procs=" + strconv.Itoa(p.procs),
		"--flake-attempts=" + strconv.Itoa(attempts),
		"--label-filter=" + r.labels(),
		"--output-dir=" + r.LogDir, "--json-report=" + filepath.Base(report), "--junit-report=" + p.name + "junit.xml",
	}, p.filters...)
	args = append(args, r.program(suiteProgram), "--",
		"--kubeconfig="+c.Kubeconfig(), "--kubectl-path="+c.Kubectl(), "--provider=skeleton", "--num-nodes="+strconv.Itoa(r.Nodes), "--disable-log-dump=true")
	runErr := r.ginkgo(ctx, p.name+"output.log", args, p.specs)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	reports, err := readReport(report)
	if err != nil {
		// The suite could not even start.
		return nil, errors.Join(runErr, err)
	}
	return reports, nil
}

// ginkgo runs it. Its output goes to a file of that name.
func (r *Run) ginkgo(ctx context.Context, output string, args []string, specs int) error {
	log, err := os.Create(filepath.Join(r.LogDir, output))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	cmd := sys.Command(ctx, r.LogDir, append(os.Environ(), "TMPDIR="+temp), r.program(ginkgoProgram), args...)
	return follow(cmd, log, r.Name, specs, r.Log)
}

// follow runs a command that is ginkgo's, and shows from time to time how many specs are done.
func follow(cmd *exec.Cmd, log io.Writer, name string, specs int, tell func(format string, args ...any)) error {
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var done, failed atomic.Int64
	stop := make(chan struct{})
	go func() {
		ticker := time.NewTicker(30 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				tell("%s: %d of %d specs are done, %d failures so far", name, done.Load(), specs, failed.Load())
			}
		}
	}()
	err = copyOutput(log, out, func(text string, failure bool) {
		if !failure {
			done.Add(1)
			return
		}
		failed.Add(1)
		tell("%s: failed: %s", name, text)
	})
	close(stop)
	return errors.Join(err, cmd.Wait())
}

var (
	specDone = regexp.MustCompile(`^S*(?:•|S \[SKIPPED\]|P \[PENDING\]) ?(?:\[|$)`)
	specFail = regexp.MustCompile(`^S*• \[(?:FAILED|PANICKED|TIMEDOUT|INTERRUPTED|ABORTED)\]`)
)

// copyOutput copies what ginkgo writes. It tells of each spec that is done, and
// of the name of each that failed, which stands in the line after that.
func copyOutput(w io.Writer, from io.Reader, tell func(text string, failure bool)) error {
	in := bufio.NewReader(from)
	failure := false
	for {
		line, err := in.ReadString('\n')
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
		text := strings.TrimSpace(line)
		if failure && text != "" {
			tell(text, true)
		}
		if failure = specFail.MatchString(text); failure || specDone.MatchString(text) {
			tell(text, false)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
