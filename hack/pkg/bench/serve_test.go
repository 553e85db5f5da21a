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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServer counts requests, and answers with what a test wants.
type fakeServer struct {
	*httptest.Server
	mutex sync.Mutex
	// seen has the requests of each user.
	seen map[string][]string
}

func newFakeServer(t *testing.T, status func(user, path, body string) int) *fakeServer {
	t.Helper()
	s := &fakeServer{seen: map[string][]string{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		user, path := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Method+" "+r.URL.RequestURI()
		s.mutex.Lock()
		s.seen[user] = append(s.seen[user], path+" "+string(body))
		s.mutex.Unlock()
		w.WriteHeader(status(user, path, string(body)))
	}))
	t.Cleanup(s.Close)
	return s
}

// serveScript is a TestServe that writes what it finds in a file beside itself, and waits
// for the end of its input.
const serveScript = `
cd "$(dirname "$0")"
test "$1" = "-test.run=^TestServe$"
cp "${DEVICESTATUS_SERVE_GATE:-claims}.json" "$DEVICESTATUS_SERVE$ADMINACCESS_SERVE"
cat >/dev/null
echo ended >> calls
`

func writeJSON(t *testing.T, dir, name string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// statusServers starts one for each state of the gate. A driver which writes what is not its own gets
// that answer.
func statusServers(t *testing.T, b *Bench, off, on int) map[string]*fakeServer {
	t.Helper()
	servers := map[string]*fakeServer{}
	for gate, foreign := range map[string]int{"off": off, "on": on} {
		s := newFakeServer(t, func(user, path, _ string) int {
			if !strings.Contains(path, "fieldManager="+user+"&") {
				return foreign
			}
			return http.StatusOK
		})
		var drivers []map[string]string
		for i := range 3 {
			name := fmt.Sprintf("driver-%d", i)
			drivers = append(drivers, map[string]string{"name": name, "token": name, "claim": "claim-" + name, "pool": "pool", "device": "device"})
		}
		writeJSON(t, b.Patched.Dir, gate, map[string]any{"host": s.URL, "version": "v1", "namespace": "ns", "drivers": drivers})
		servers[gate] = s
	}
	return servers
}

// TestStatusWrites checks that all drivers write to both servers alike, and something else each time.
func TestStatusWrites(t *testing.T) {
	b := newBench(t, serveScript, "")
	servers := statusServers(t, b, http.StatusOK, http.StatusUnprocessableEntity)
	result, err := b.StatusWrites(t.Context(), b.Patched)
	if err != nil {
		t.Fatal(err)
	}
	if result.What != "3 drivers at the same time" || result.Goal != 0.9 || result.Ratio <= 0 || result.Base <= 0 || result.Measured <= 0 {
		t.Errorf("unexpected result: %+v", result)
	}
	for gate, s := range servers {
		for i := range 3 {
			user := fmt.Sprintf("driver-%d", i)
			different := map[string]bool{}
			foreign := 0
			for _, request := range s.seen[user] {
				if strings.Contains(request, "dryRun=All") {
					foreign++
					continue
				}
				different[request] = true
				want := fmt.Sprintf("PATCH /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/claim-%s/status?fieldManager=%s&force=true ", user, user)
				if !strings.HasPrefix(request, want) || !strings.Contains(request, fmt.Sprintf(`"driver":"%s"`, user)) {
					t.Fatalf("gate %s: want a request of its own by %s, got: %s", gate, user, request)
				}
			}
			if want := (2*rounds + 1) * statusWrites; len(different) != want {
				t.Errorf("gate %s: want %d different writes by %s, got %d", gate, want, user, len(different))
			}
			if want := map[bool]int{true: 1, false: 0}[i == 0]; foreign != want {
				t.Errorf("gate %s: want %d writes by %s in the name of another one, got %d", gate, want, user, foreign)
			}
		}
	}
	calls, err := os.ReadFile(filepath.Join(b.Patched.Dir, "calls"))
	if err != nil || string(calls) != "ended\nended\n" {
		t.Errorf("want both servers to end by themselves, got: %q, %v", calls, err)
	}
}

// TestStatusWritesWrongServer checks that nothing is measured if the servers do not differ as
// they should, or a write fails.
func TestStatusWritesWrongServer(t *testing.T) {
	for name, test := range map[string]struct {
		off, on int
		want    string
	}{
		"both with checks":    {http.StatusUnprocessableEntity, http.StatusUnprocessableEntity, "gate off: a driver that writes the status of another one's device"},
		"both without checks": {http.StatusOK, http.StatusOK, "gate on: a driver that writes the status of another one's device"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, serveScript, "")
			statusServers(t, b, test.off, test.on)
			if _, err := b.StatusWrites(t.Context(), b.Patched); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, got: %v", test.want, err)
			}
		})
	}
	b := newBench(t, serveScript, "")
	s := newFakeServer(t, func(user, _, _ string) int {
		if user == "b" {
			return http.StatusConflict
		}
		return http.StatusOK
	})
	writeJSON(t, b.Patched.Dir, "off", map[string]any{"host": s.URL, "drivers": []any{map[string]any{"name": "a", "token": "a"}, map[string]any{"name": "b", "token": "b"}}})
	if _, err := b.StatusWrites(t.Context(), b.Patched); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("want the error of the server, got: %v", err)
	}
}

// TestClaims checks that as many claims are created in each tree, with and without the flag.
func TestClaims(t *testing.T) {
	b := newBench(t, serveScript, serveScript)
	var servers []*fakeServer
	for _, tree := range []Tree{b.Patched, b.Unpatched} {
		s := newFakeServer(t, func(_, _, _ string) int { return http.StatusCreated })
		writeJSON(t, tree.Dir, "claims", map[string]any{"host": s.URL, "token": "admin", "version": "v1"})
		servers = append(servers, s)
	}
	results, err := b.Claims(t.Context(), b.Patched, b.Unpatched)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || results[0].What != "without admin access" || results[1].What != "with admin access" {
		t.Errorf("unexpected results: %+v", results)
	}
	for _, s := range servers {
		names, flags := map[string]bool{}, 0
		for _, request := range s.seen["admin"] {
			if strings.Contains(request, "/namespaces/bench/resourceclaims") {
				names[request] = true
			}
			if strings.Contains(request, `"exactly":{"deviceClassName":"class","adminAccess":true}`) {
				flags++
			}
		}
		if each := claims + claims/10; len(names) != 2*each || flags != each {
			t.Errorf("want %d claims, half of them with the flag, got %d and %d", 2*each, len(names), flags)
		}
	}
}

func TestComparisonTable(t *testing.T) {
	table := comparisonTable([3]string{"what", "off", "on"}, []Comparison{
		{What: "a", Base: 200, Measured: 190, Ratio: 0.95, Goal: 0.9},
		{What: "b", Base: 200, Measured: 100, Ratio: 0.5, Goal: 0.9},
	})
	for _, want := range []string{"| what | off | on | ratio |", "| a | 200 | 190 | 0.950 | ≥ 0.9 | met |", "| b | 200 | 100 | 0.500 | ≥ 0.9 | missed |"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
}

// TestCompare checks that the two servers take turns, and in each round the ratio is that of
// the second one to the first.
func TestCompare(t *testing.T) {
	var calls []int
	server := func(i int, took time.Duration) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			calls = append(calls, i)
			return took, nil
		}
	}
	result, err := compare("x", 0.9, 10, [2]func() (time.Duration, error){server(0, time.Second), server(1, 2*time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Comparison{What: "x", Base: 10, Measured: 5, Ratio: 0.5, Goal: 0.9}); result != want {
		t.Errorf("want %+v, got %+v", want, result)
	}
	if fmt.Sprint(calls[:4]) != "[0 1 1 0]" || len(calls) != 4*rounds {
		t.Errorf("unexpected order: %v", calls)
	}
}
