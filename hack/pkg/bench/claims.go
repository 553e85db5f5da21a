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
	"fmt"
	"net/http"
	"time"
)

// ClaimsPackage is the directory with the API server for [Bench.Claims] in a
// tree.
const ClaimsPackage = "test/integration/dra/adminaccess"

// claims is how many get created of each kind in each tree.
const claims = 1000

// Goals for the throughput of the patched API server in relation to the unpatched one.
const (
	goalWithoutFlag = 0.98
	goalWithFlag    = 0.8
)

// ClaimsTable shows the results of [Bench.Claims] in Markdown.
func ClaimsTable(results []Comparison) string {
	return comparisonTable([3]string{fmt.Sprintf("%d claims created", claims), "unpatched, claims/s", "patched, claims/s"}, results)
}

// Claims creates claims in an API server of each tree, a few here and a few there in turn.
func (b *Bench) Claims(ctx context.Context, patched, unpatched Tree) ([]Comparison, error) {
	var servers [2]*claimServer
	for i, name := range []string{"unpatched", "patched"} {
		server := &claimServer{}
		stop, err := b.serve(ctx, []Tree{unpatched, patched}[i], "claims-"+name, service{pkg: ClaimsPackage, variable: "ADMINACCESS_SERVE"}, server)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer stop()
		server.client = newClient(server.Host, server.Token)
		// This key counts without our changes, too, where the namespace is checked.
		namespace := `{"metadata":{"name":"bench","labels":{"resource.kubernetes.io/admin-access":"true"}}}`
		if err := server.post(ctx, "/api/v1/namespaces", namespace); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		servers[i] = server
	}
	// Not counted: connections, caches.
	for _, server := range servers {
		for _, flag := range []bool{false, true} {
			if _, err := server.create(ctx, flag, claims/10); err != nil {
				return nil, err
			}
		}
	}
	var results []Comparison
	for _, flag := range []bool{false, true} {
		what, goal := "without admin access", goalWithoutFlag
		if flag {
			what, goal = "with admin access", goalWithFlag
		}
		create := func(server *claimServer) func() (time.Duration, error) {
			return func() (time.Duration, error) { return server.create(ctx, flag, claims/rounds/2) }
		}
		result, err := compare(what, goal, claims/rounds/2, [2]func() (time.Duration, error){create(servers[0]), create(servers[1])})
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// claimServer is an API server in which claims get created.
type claimServer struct {
	Host, Token, Version string

	client client
	n      int
}

func (s *claimServer) post(ctx context.Context, path, body string) error {
	return s.client.send(ctx, http.MethodPost, path, "application/json", body, http.StatusCreated)
}

// create creates claims one after the other, and returns how long it took.
func (s *claimServer) create(ctx context.Context, flag bool, n int) (time.Duration, error) {
	fields := `"deviceClassName":"class"`
	if flag {
		fields += `,"adminAccess":true`
	}
	if s.Version == "v1" || s.Version == "v1beta2" {
		fields = `"exactly":{` + fields + `}`
	}
	path := "/apis/resource.k8s.io/" + s.Version + "/namespaces/bench/resourceclaims"
	start := time.Now()
	for range n {
		s.n++
		if err := s.post(ctx, path, fmt.Sprintf(`{"metadata":{"name":"claim-%d"},"spec":{"devices":{"requests":[{"name":"r",%s}]}}}`, s.n, fields)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
