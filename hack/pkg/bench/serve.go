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

package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Comparison is how one API server did beside another one.
type Comparison struct {
	What string `json:"what"`
	// Base and Measured are requests per second, the median of all rounds.
	Base     float64 `json:"base"`
	Measured float64 `json:"measured"`
	// Ratio is the median of what was compared in each round.
	Ratio float64 `json:"ratio"`
	Goal  float64 `json:"goal"`
}

// Met says whether the goal was met.
func (c Comparison) Met() bool { return c.Ratio >= c.Goal }

// comparisonTable shows them in Markdown. The columns are what was done, and
// the throughput of the two servers.
func comparisonTable(columns [3]string, results []Comparison) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s | %s | ratio | goal | |\n|---|---:|---:|---:|---:|---|\n", columns[0], columns[1], columns[2])
	for _, r := range results {
		verdict := "missed"
		if r.Met() {
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.3f | ≥ %g | %s |\n", r.What, r.Base, r.Measured, r.Ratio, r.Goal, verdict)
	}
	return b.String()
}

// rounds is in how many parts two servers are measured. What else the machine does hits both
// alike if the parts are short.
const rounds = 25

// compare has n requests made by two servers in turn, twice by each in a round. The first one
// is what the second one is compared with. Each call returns how long it took.
func compare(what string, goal float64, n int, servers [2]func() (time.Duration, error)) (Comparison, error) {
	var rates [2][]float64
	var ratios []float64
	for range rounds {
		var took [2]time.Duration
		// It matters who was measured before, and there may be a trend. In this order, both
		// have the same of it; with one turn for each, the median of the ratios was that of
		// whichever order came more often.
		for _, i := range []int{0, 1, 1, 0} {
			t, err := servers[i]()
			if err != nil {
				return Comparison{}, err
			}
			took[i] += t
			rates[i] = append(rates[i], float64(n)/t.Seconds())
		}
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	return Comparison{What: what, Base: median(rates[0]), Measured: median(rates[1]), Ratio: median(ratios), Goal: goal}, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// service is a TestServe in a tree: a test that starts an API server, writes how to reach it
// into a file, and ends with its standard input.
type service struct {
	// pkg is the directory in the tree.
	pkg string
	// variable has the name of the file.
	variable string
	// env are further variables.
	env []string
}

// serve starts an API server of a tree. The file is decoded into found.
func (b *Bench) serve(ctx context.Context, tree Tree, name string, s service, found any) (stop func(), err error) {
	stop, _, err = b.serveProcess(ctx, tree, name, s, found)
	return stop, err
}

// serveProcess does that, and returns the process, too.
func (b *Bench) serveProcess(ctx context.Context, tree Tree, name string, s service, found any) (_ func(), pid int, finalErr error) {
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, 0, err
	}
	// For etcd, whose socket must have a short path.
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return nil, 0, err
	}
	env, err := b.environ(tree, temp)
	if err != nil {
		return nil, 0, err
	}
	log, err := os.Create(filepath.Join(b.LogDir, name+".log"))
	if err != nil {
		return nil, 0, err
	}
	file := filepath.Join(temp, "server.json")
	// It ends when its standard input does, also after ctx.
	cmd := sys.Command(context.WithoutCancel(ctx), filepath.Join(tree.Dir, s.pkg), slices.Concat(env, []string{s.variable + "=" + file}, s.env), tree.Binary, "-test.run=^TestServe$", "-test.timeout=10m")
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
		}
		// etcd must not survive.
		_ = sys.Signal(cmd, syscall.SIGKILL)
		_ = log.Close()
		_ = os.RemoveAll(temp)
	}
	defer func() {
		if finalErr != nil {
			stop()
		}
	}()

	for deadline := time.Now().Add(3 * time.Minute); ; {
		data, err := os.ReadFile(file)
		if err == nil {
			return stop, cmd.Process.Pid, json.Unmarshal(data, found)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, err
		}
		if time.Now().After(deadline) {
			return nil, 0, fmt.Errorf("the API server did not start, see %s", log.Name())
		}
		select {
		case err := <-ended:
			ended <- err
			return nil, 0, fmt.Errorf("the API server ended: %w, see %s", err, log.Name())
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// client is one user of an API server.
type client struct {
	host, token string
	http        *http.Client
}

// newClient returns one with a connection of its own.
func newClient(host, token string) client {
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	// The certificate is self-signed, and the server is ours.
	return client{host, token, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}}
}

// send makes a request, which must have that status.
func (c client) send(ctx context.Context, method, path, contentType, body string, want int) error {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != want {
		return fmt.Errorf("%s %s: want %d, got %s: %s", method, path, want, response.Status, answer)
	}
	return nil
}
