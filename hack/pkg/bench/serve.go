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
	"net/http"
	"strings"
	"time"
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

// rounds is in how many parts two servers are measured. What else the machine does hits both
// alike if the parts are short.
const rounds = 25

// compare has n requests made by two servers in turn, twice by each in a round. The first one
// is what the second one is compared with.
func compare(what string, goal float64, n int, do func(server int) error) (Comparison, error) {
	var rates [2][]float64
	var ratios []float64
	for range rounds {
		var took [2]float64
		// It matters who was measured before, and there may be a trend. In this order, both
		// have the same of it; with one turn for each, the median of the ratios was that of
		// whichever order came more often.
		for _, i := range []int{0, 1, 1, 0} {
			start := time.Now()
			if err := do(i); err != nil {
				return Comparison{}, fmt.Errorf("%s: %w", what, err)
			}
			seconds := time.Since(start).Seconds()
			took[i] += seconds
			rates[i] = append(rates[i], float64(n)/seconds)
		}
		ratios = append(ratios, took[0]/took[1])
	}
	return Comparison{What: what, Base: median(rates[0]), Measured: median(rates[1]), Ratio: median(ratios), Goal: goal}, nil
}

// object is what a user would write in JSON.
type object = map[string]any

// server is the API server of a TestServe in a tree, or a user of it: a test that starts one, writes
// how to reach it into a file, and ends with its standard input.
type server struct {
	Host, Token, Version, Namespace string
	Drivers                         []driver

	http *http.Client
	// n makes each claim another one.
	n int
}

// driver is a user with a device that is allocated in a claim.
type driver struct {
	// Token is that of its service account.
	Name, Token, Claim, Pool, Device string

	as server
	n  int
}

// serve starts an API server. The variable has the name of the file for its address.
func (b *Bench) serve(ctx context.Context, p program) (*server, func(), error) {
	p.args = []string{"-test.run=^TestServe$", "-test.timeout=20m"}
	running, err := b.start(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { running.stop(20 * time.Second) }
	starting, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("the API server did not start"))
	defer cancel()
	s := &server{}
	if err := running.wait(starting, s); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s: %w", p.log, err)
	}
	s.login(s.Token)
	return s, stop, nil
}

// login makes it a user with a connection of its own.
func (s *server) login(token string) {
	if !strings.Contains(s.Host, "://") {
		s.Host = "https://" + s.Host
	}
	s.Token = token
	// The certificate is self-signed, and the server is ours.
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
}

// claims is the path of the claims in a namespace.
func (s *server) claims(namespace string) string {
	return fmt.Sprintf("/apis/resource.k8s.io/%s/namespaces/%s/resourceclaims", s.Version, namespace)
}

// send makes a request, which must have that status.
func (s *server) send(ctx context.Context, method, path, contentType string, body any, want int) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.Host+path, strings.NewReader(string(content)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	request.Header.Set("Content-Type", contentType)
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: want %d, got %s: %s", method, path, want, response.Status, answer)
	}
	return err
}
