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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func slice(name string, spec map[string]any) map[string]any {
	spec["driver"] = "gpu.example.com"
	spec["pool"] = map[string]any{"name": name, "generation": 1, "resourceSliceCount": 1}
	return map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": map[string]any{"name": name}, "spec": spec}
}

func device(name string) map[string]any { return map[string]any{"name": name} }

// holder is a claim with devices of a pool.
func holder(name string, reservedFor []any, results ...map[string]any) map[string]any {
	var list []any
	for _, r := range results {
		r["request"], r["driver"] = "gpu", "gpu.example.com"
		list = append(list, r)
	}
	return map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": map[string]any{"name": name, "labels": map[string]any{"team": name}},
		"spec": map[string]any{"devices": map[string]any{"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{"deviceClassName": "gpu"}}}}},
		"status": map[string]any{
			"allocation":  map[string]any{"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": map[string]any{"results": list}},
			"reservedFor": reservedFor,
		},
	}
}

func consumer(group, resource, name string) map[string]any {
	return map[string]any{"apiGroup": group, "resource": resource, "name": name, "uid": name}
}

func result(pool, device string) map[string]any {
	return map[string]any{"pool": pool, "device": device}
}

// rowsOf are the cells of a table without its times.
func rowsOf(out string) []string {
	var rows []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

func expect(t *testing.T, out string, want ...string) {
	t.Helper()
	got := rowsOf(out)
	if len(got) != len(want) {
		t.Fatalf("want %d rows, got %d:\n%s", len(want), len(got), out)
	}
	for i := range want {
		for _, part := range strings.Split(want[i], "…") {
			if !strings.Contains(got[i], part) {
				t.Errorf("row %d: want %q, got %q", i, want[i], got[i])
			}
		}
	}
}

func TestWho(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		server := newServer(t, version, nil)
		admin := result("a", "gpu-0")
		admin["adminAccess"] = true
		add(t, server,
			slice("a", map[string]any{"nodeName": "node-a", "devices": []any{device("gpu-0"), device("gpu-1"), device("gpu-2")}}),
			slice("shared", map[string]any{"allNodes": true, "devices": []any{device("fabric-0")}}),
			holder("train", []any{consumer("", "pods", "train-0")}, result("a", "gpu-0")),
			holder("monitor", []any{consumer("", "pods", "monitor-x")}, admin),
			holder("fabric", []any{consumer("batch", "jobs", "big")}, result("shared", "fabric-0")),
			holder("idle", nil, result("a", "gpu-1")),
			holder("lost", []any{consumer("", "pods", "old")}, result("gone", "gpu-9")),
		)
		expect(t, mustWho(t, server.URL),
			"<all> shared fabric-0 test/fabric job.batch/big …",
			"<unknown> gone gpu-9 test/lost pod/old …",
			"node-a a gpu-0 test/monitor pod/monitor-x (admin access) …",
			"node-a a gpu-0 test/train pod/train-0 …",
			"node-a a gpu-1 test/idle <nobody> …",
			"node-a a gpu-2 <none> <none>",
		)
		expect(t, mustWho(t, server.URL, "--free"), "node-a a gpu-2 <none> <none>")
		for _, arg := range []string{"gpu-0", "device/gpu-0", "a/gpu-0", "gpu.example.com/a/gpu-0"} {
			expect(t, mustWho(t, server.URL, arg), "monitor-x", "train-0")
		}
		expect(t, mustWho(t, server.URL, "claim/idle"), "gpu-1")
		expect(t, mustWho(t, server.URL, "pod/train-0"), "gpu-0")
		expect(t, mustWho(t, server.URL, "node/node-a", "-l", "team=idle"), "gpu-1")
		expect(t, mustWho(t, server.URL, "pool/shared"), "fabric-0")
		expect(t, mustWho(t, server.URL, "pool/shared", "-o", "wide"), "gpu.example.com gpu")
		if _, _, err := dra(t, server, "who", "no-such-thing"); err == nil || !strings.Contains(err.Error(), "no-such-thing") {
			t.Errorf("want an error that names it, got %v", err)
		}
		if len(server.Writes()) > 0 {
			t.Errorf("it wrote: %q", server.Writes())
		}
	}
}

// TestWhoUnseen is about a user who may see one namespace only: nothing is called free.
func TestWhoUnseen(t *testing.T) {
	server := newServer(t, "v1", nil)
	add(t, server, slice("a", map[string]any{"nodeName": "node-a", "devices": []any{device("gpu-0")}}), holder("train", []any{consumer("", "pods", "train-0")}, result("a", "gpu-0")))
	for _, forbidden := range []string{"resourceclaims in other namespaces", "resourceslices"} {
		server.Forbidden = []string{forbidden}
		out, stderr, err := dra(t, server, "who")
		if err != nil || !strings.Contains(stderr, "could not see") {
			t.Errorf("%s: %v, %s", forbidden, err, stderr)
		}
		expect(t, out, "gpu-0 test/train pod/train-0")
		if out, _, err := dra(t, server, "who", "-o", "json"); err != nil || !strings.Contains(out, `"unseen"`) {
			t.Errorf("%s: a program is not told: %v, %s", forbidden, err, out)
		}
		if _, stderr, err := dra(t, server, "graph", "claim/train"); err != nil || !strings.Contains(stderr, "could not see "+strings.Replace(forbidden, " in ", " of ", 1)) {
			t.Errorf("%s: the graph does not say: %v, %s", forbidden, err, stderr)
		}
		if _, _, err := dra(t, server, "who", "--free"); err == nil {
			t.Errorf("without %s nobody knows what is free", forbidden)
		}
	}
}

func mustWho(t *testing.T, url string, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	command.SetArgs(append([]string{"who", "--server=" + url}, args...))
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("kubectl dra who %q: %v", args, err)
	}
	return out.String()
}

// TestWhoShared is about what is left where several claims share something.
func TestWhoShared(t *testing.T) {
	server := newServer(t, "v1", nil)
	quarter := func(name string) map[string]any {
		return map[string]any{"name": name, "consumesCounters": []any{map[string]any{
			"counterSet": "gpu", "counters": map[string]any{"slots": map[string]any{"value": "2"}},
		}}}
	}
	share := result("network", "vf")
	share["shareID"], share["consumedCapacity"] = "5c2f1a8e-3f6a-4ec5-9a5e-0d6f6a6b3a01", map[string]any{"bandwidth": "10Gi"}
	add(t, server,
		slice("mig", map[string]any{
			"nodeName": "node-a", "devices": []any{quarter("part-0"), quarter("part-1")},
			"sharedCounters": []any{map[string]any{"name": "gpu", "counters": map[string]any{"slots": map[string]any{"value": "3"}}}},
		}),
		slice("network", map[string]any{"nodeName": "node-b", "devices": []any{map[string]any{
			"name": "vf", "allowMultipleAllocations": true, "capacity": map[string]any{"bandwidth": map[string]any{"value": "40Gi"}},
		}}}),
		holder("part", []any{consumer("", "pods", "p")}, result("mig", "part-0")),
		holder("vf", []any{consumer("", "pods", "q")}, share),
	)
	expect(t, mustWho(t, server.URL),
		"node-a mig part-0 test/part pod/p …gpu/slots: 1",
		"node-a mig part-1 <none> <none> gpu/slots: 1",
		"node-b network vf test/vf pod/q …bandwidth: 30Gi of 40Gi",
	)
	// One slot is left, and the other part needs two.
	expect(t, mustWho(t, server.URL, "--free"), "node-b network vf …")
}

// TestWhoWatchUnseen is about a user who may see one namespace only.
func TestWhoWatchUnseen(t *testing.T) {
	server := newServer(t, "v1", nil)
	server.Forbidden = []string{"resourceclaims in other namespaces"}
	add(t, server, slice("a", map[string]any{"nodeName": "node-a", "devices": []any{device("gpu-0")}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out lockedBuffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	command.SetArgs([]string{"who", "--watch", "--server=" + server.URL})
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(ctx) }()
	for !strings.Contains(out.String(), "gpu-0") && len(done) == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	err := <-done
	if !strings.Contains(out.String(), "could not see resourceclaims of other namespaces") || !strings.Contains(out.String(), "gpu-0") {
		t.Errorf("%v, %s", err, out.String())
	}
}

// TestWhoEscaped checks that what drivers write cannot do anything to a terminal.
func TestWhoEscaped(t *testing.T) {
	server := newServer(t, "v1", nil)
	evil := "gpu\x1b[31m\u202e\x07\u009b" + strings.Repeat("x", 100_000)
	add(t, server, slice("a", map[string]any{"nodeName": "node\na", "devices": []any{device(evil)}}))
	out := mustWho(t, server.URL)
	if strings.ContainsAny(out, "\x1b\u202e\x07\u009b") || strings.Count(out, "\n") != 2 || len(out) > 5000 {
		t.Errorf("%.300q, %d bytes", out, len(out))
	}
	var object struct{ Items []struct{ Device string } }
	if err := json.Unmarshal([]byte(mustWho(t, server.URL, "-o", "json")), &object); err != nil || object.Items[0].Device != evil {
		t.Errorf("programs get what is there: %v", err)
	}
}

type lockedBuffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

// TestWhoWatch changes something while it watches. The server ends each watch at once.
func TestWhoWatch(t *testing.T) {
	server := newServer(t, "v1", nil)
	add(t, server, slice("a", map[string]any{"nodeName": "node-a", "devices": []any{device("gpu-0"), device("gpu-1")}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out lockedBuffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	command.SetArgs([]string{"who", "--watch", "--server=" + server.URL})
	done := make(chan error)
	go func() { done <- command.ExecuteContext(ctx) }()
	waitFor := func(text string) {
		for !strings.Contains(out.String(), text) {
			if ctx.Err() != nil {
				t.Fatalf("no %q in:\n%s", text, out.String())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	waitFor("gpu-1")
	add(t, server, holder("train", []any{consumer("", "pods", "train-0")}, result("a", "gpu-1")))
	waitFor("pod/train-0")
	cancel()
	if err := <-done; err == nil {
		t.Error("want the error of the context")
	}
	if n := strings.Count(out.String(), "gpu-0"); n != 1 {
		t.Errorf("a row that did not change is there %d times:\n%s", n, out.String())
	}
}
