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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/goenv"
)

// ClaimsPackage is the directory with the API server for [Bench.Claims] in a
// tree.
const ClaimsPackage = "test/integration/dra/adminaccess"

const (
	// claims is how many get created of each kind in each tree.
	claims = 1000
	// rounds is in how many parts. What else the machine does hits both trees alike
	// if the parts are short.
	rounds = 25
)

// Goals for the throughput of the patched API server in relation to the unpatched one.
const (
	goalWithoutFlag = 0.98
	goalWithFlag    = 0.8
)

// Claims are the result of creating claims.
type Claims struct {
	// AdminAccess says that the claims had the flag.
	AdminAccess bool `json:"adminAccess"`
	// Unpatched and Patched are claims per second, the median of all rounds.
	Unpatched float64 `json:"unpatched"`
	Patched   float64 `json:"patched"`
	// Ratio is the median of what was compared in each round.
	Ratio float64 `json:"ratio"`
	Goal  float64 `json:"goal"`
}

// Met says whether the goal was met.
func (c Claims) Met() bool { return c.Ratio >= c.Goal }

// ClaimsTable shows them in Markdown.
func ClaimsTable(results []Claims) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %d claims created | unpatched, claims/s | patched, claims/s | ratio | goal | |\n|---|---:|---:|---:|---:|---|\n", claims)
	for _, r := range results {
		what, verdict := "without admin access", "missed"
		if r.AdminAccess {
			what = "with admin access"
		}
		if r.Met() {
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.3f | ≥ %g | %s |\n", what, r.Unpatched, r.Patched, r.Ratio, r.Goal, verdict)
	}
	return b.String()
}

// Claims creates claims in an API server of each tree, a few here and a few there in turn.
func (b *Bench) Claims(ctx context.Context, patched, unpatched Tree) ([]Claims, error) {
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, err
	}
	servers := map[bool]*apiServer{}
	for _, isPatched := range []bool{false, true} {
		tree, name := unpatched, "unpatched"
		if isPatched {
			tree, name = patched, "patched"
		}
		server, err := b.serve(ctx, tree, "claims-"+name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer server.stop()
		servers[isPatched] = server
	}
	// Not counted: connections, caches.
	for _, server := range servers {
		for _, flag := range []bool{false, true} {
			if _, err := server.create(ctx, flag, claims/10); err != nil {
				return nil, err
			}
		}
	}
	var results []Claims
	for _, flag := range []bool{false, true} {
		goal := goalWithoutFlag
		if flag {
			goal = goalWithFlag
		}
		rates := map[bool][]float64{}
		var ratios []float64
		for round := range rounds {
			last := map[bool]float64{}
			// Whoever comes first has no advantage.
			for _, isPatched := range []bool{round%2 == 0, round%2 != 0} {
				took, err := servers[isPatched].create(ctx, flag, claims/rounds)
				if err != nil {
					return nil, err
				}
				last[isPatched] = float64(claims/rounds) / took.Seconds()
				rates[isPatched] = append(rates[isPatched], last[isPatched])
			}
			ratios = append(ratios, last[true]/last[false])
		}
		results = append(results, Claims{AdminAccess: flag, Unpatched: median(rates[false]), Patched: median(rates[true]), Ratio: median(ratios), Goal: goal})
	}
	return results, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// apiServer is one that runs.
type apiServer struct {
	host, token, version string

	client *http.Client
	n      int
	stop   func()
}

// serve starts the API server of a tree.
func (b *Bench) serve(ctx context.Context, tree Tree, name string) (_ *apiServer, finalErr error) {
	// For etcd, whose socket must have a short path.
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return nil, err
	}
	env, err := goenv.TestEnviron(tree.Dir)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.LogDir, name+".log"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(temp, "server.json")
	cmd := exec.Command(tree.Binary, "-test.run=^TestServe$", "-test.timeout=10m")
	cmd.Dir = filepath.Join(tree.Dir, ClaimsPackage)
	cmd.Env = append(env,
		"PATH="+b.Path+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TMPDIR="+temp,
		"KUBE_CACHE_MUTATION_DETECTOR=false",
		"ADMINACCESS_SERVE="+file,
	)
	cmd.Stdout, cmd.Stderr = log, log
	// etcd must not survive.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = log.Close()
		_ = os.RemoveAll(temp)
	}
	defer func() {
		if finalErr != nil {
			stop()
		}
	}()

	s := &apiServer{
		// The certificate is self-signed, and the server is ours.
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}},
		stop:   stop,
	}
	for deadline := time.Now().Add(3 * time.Minute); ; {
		data, err := os.ReadFile(file)
		if err == nil {
			var found struct{ Host, Token, Version string }
			if err := json.Unmarshal(data, &found); err != nil {
				return nil, err
			}
			s.host, s.token, s.version = found.Host, found.Token, found.Version
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the API server did not start, see %s", log.Name())
		}
		select {
		case err := <-ended:
			ended <- err
			return nil, fmt.Errorf("the API server ended: %w, see %s", err, log.Name())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	// This key counts without our changes, too, where the namespace is checked.
	namespace := `{"metadata":{"name":"bench","labels":{"resource.kubernetes.io/admin-access":"true"}}}`
	return s, s.post(ctx, "/api/v1/namespaces", namespace)
}

func (s *apiServer) post(ctx context.Context, path, body string) error {
	host := s.host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s: %s", path, response.Status, answer)
	}
	return nil
}

// create creates claims one after the other, and returns how long it took.
func (s *apiServer) create(ctx context.Context, flag bool, n int) (time.Duration, error) {
	fields := `"deviceClassName":"class"`
	if flag {
		fields += `,"adminAccess":true`
	}
	if s.version == "v1" || s.version == "v1beta2" {
		fields = `"exactly":{` + fields + `}`
	}
	path := "/apis/resource.k8s.io/" + s.version + "/namespaces/bench/resourceclaims"
	start := time.Now()
	for range n {
		s.n++
		if err := s.post(ctx, path, fmt.Sprintf(`{"metadata":{"name":"claim-%d"},"spec":{"devices":{"requests":[{"name":"r",%s}]}}}`, s.n, fields)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
