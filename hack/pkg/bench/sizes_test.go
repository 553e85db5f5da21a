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
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestStatusSizes checks that both servers get the same requests: a status as large as it may be, and
// bodies that are refused.
func TestStatusSizes(t *testing.T) {
	b := newBench(t, serveScript, serveScript)
	var servers []*fakeServer
	for _, tree := range []Tree{b.Patched, b.Unpatched} {
		s := newFakeServer(t, func(_, path, body string) int {
			switch {
			case strings.HasPrefix(path, "POST "):
				return http.StatusCreated
			case refusedBody(body):
				return http.StatusUnprocessableEntity
			}
			return http.StatusOK
		})
		writeJSON(t, tree.Dir, "claims", map[string]any{"host": s.URL, "token": "admin", "version": "v1"})
		servers = append(servers, s)
	}
	// The script does nothing for a request.
	t.Cleanup(func(f func(int) (time.Duration, error)) func() { return func() { readCPU = f } }(readCPU))
	var cpu time.Duration
	readCPU = func(int) (time.Duration, error) {
		cpu += time.Second
		return cpu, nil
	}
	largest, hostile, err := b.StatusSizes(t.Context(), b.Patched, b.Unpatched)
	if err != nil {
		t.Fatal(err)
	}
	if len(largest) != 1 || largest[0].Goal != goalLargest || len(hostile) != 2 || hostile[0].Ratio != 1 || hostile[1].Goal != goalHostile {
		t.Errorf("unexpected results: %+v, %+v", largest, hostile)
	}
	for _, s := range servers {
		valid, refused, reasons := 0, 0, map[string]bool{}
		for _, request := range s.seen["admin"] {
			_, body, _ := strings.Cut(request, "/status ")
			switch {
			case refusedBody(body):
				if refused++; len(body) > 3<<20 {
					t.Errorf("%d bytes are more than an API server reads", len(body))
				}
			case strings.Contains(body, "Reason_"):
				valid++
				_, reason, _ := strings.Cut(body, "Reason_")
				reason, _, _ = strings.Cut(reason, "_")
				reasons[reason] = true
			}
		}
		if want := largestWrites + 2; valid != want || len(reasons) != want || refused != 2*2*rounds {
			t.Errorf("want %d valid ones, all different, and %d others, got %d, %d, %d", want, 2*2*rounds, valid, len(reasons), refused)
		}
	}
}

// refusedBody has too many entries, or too much data.
func refusedBody(body string) bool {
	return strings.Count(body, `"data":{}`) > sizeDevices || len(body) > largestBody/2 && !strings.Contains(body, "Reason_")
}

// TestLargestDevices checks that they are valid, and that nothing more fits.
func TestLargestDevices(t *testing.T) {
	devices := largestDevices(1)
	if len(devices) != 32 {
		t.Errorf("%d devices", len(devices))
	}
	for _, device := range append(devices, hostileDevices(sizeData)...) {
		raw := device["data"].(json.RawMessage)
		if !json.Valid(raw) || len(raw) > sizeData || len(raw) < sizeData-128 {
			t.Errorf("%d bytes of data, valid: %v", len(raw), json.Valid(raw))
		}
	}
}

// TestCPUTime checks that it grows with what this process does.
func TestCPUTime(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The kernel may count the time of a running thread only now and then.
	after := before
	for i := 0; i < 100_000 && after == before; i++ {
		_ = manyEntries()
		if after, err = cpuTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if after <= before {
		t.Errorf("%s, then %s", before, after)
	}
	if _, err := cpuTime(-1); err == nil {
		t.Error("there is no such process")
	}
}
