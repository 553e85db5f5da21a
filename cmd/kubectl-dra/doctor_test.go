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
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/fakeapi"
)

// components answers for those that serve no objects.
func components(gates map[string]bool, deprecated bool) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/metrics":
			fmt.Fprintln(w, "# TYPE kubernetes_feature_enabled gauge")
			for name, on := range gates {
				value := 0
				if on {
					value = 1
				}
				fmt.Fprintf(w, "kubernetes_feature_enabled{name=%q,stage=\"ALPHA\"} %d\n", name, value)
			}
			if deprecated {
				fmt.Fprint(w, "# TYPE apiserver_requested_deprecated_apis gauge\n"+
					"apiserver_requested_deprecated_apis{group=\"resource.k8s.io\",removed_release=\"1.40\",resource=\"resourceslices\",subresource=\"\",version=\"v1beta1\"} 1\n")
			}
		case strings.HasSuffix(r.URL.Path, "/proxy/configz"):
			name := strings.Split(r.URL.Path, "/")[4]
			switch {
			case strings.HasPrefix(name, "lost"):
				http.Error(w, "no route to host", http.StatusServiceUnavailable)
			case strings.HasPrefix(name, "off"):
				_, _ = io.WriteString(w, `{"kubeletconfig":{"featureGates":{"AllAlpha":true,"DRAReservedForWorkloads":false}}}`)
			default:
				_, _ = io.WriteString(w, `{"kubeletconfig":{"featureGates":{"DRAReservedForWorkloads":true}}}`)
			}
		default:
			return false
		}
		return true
	}
}

func object(apiVersion, kind, name string, more map[string]any) map[string]any {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	for key, value := range more {
		if key == "metadata" {
			for key, value := range value.(map[string]any) {
				o["metadata"].(map[string]any)[key] = value
			}
			continue
		}
		o[key] = value
	}
	return o
}

// roleFor gives a service account of the namespace test some rules.
func roleFor(account string, rules ...any) []map[string]any {
	return []map[string]any{
		object("rbac.authorization.k8s.io/v1", "ClusterRole", account, map[string]any{"rules": rules}),
		object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", account, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "test", "name": account}},
		}),
	}
}

func allow(group, resource string, verbs ...any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}

// healthy are objects of a cluster where nothing is wrong. They have what looks a little like each fault.
func healthy() []map[string]any {
	shared := result("a", "gpu-1")
	list := []map[string]any{
		slice("a", map[string]any{"nodeName": "sim-0000", "devices": []any{device("gpu-0"), device("gpu-1"), device("gpu-2")}}),
		holder("train", []any{consumer("", "pods", "train")}, result("a", "gpu-0")),
		holder("team", []any{consumer("batch", "jobs", "team")}, shared),
		object("v1", "Pod", "train", map[string]any{"metadata": map[string]any{"uid": "train"}}),
		object("batch/v1", "Job", "team", map[string]any{"metadata": map[string]any{"uid": "team"}}),
		object("v1", "Namespace", "x", map[string]any{"metadata": map[string]any{"labels": map[string]any{"resource.kubernetes.io/admin-access": "true"}}}),
		object("v1", "Node", "patched", map[string]any{"status": map[string]any{
			"nodeInfo": map[string]any{"kubeletVersion": "v1.37.2+dra.1"}, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "dra-admin-access-guard", nil),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "dra-node-driver-slices", nil),
	}
	driver := allow("resource.k8s.io", "resourceclaims/driver", "associated-node:update", "associated-node:patch")
	driver["resourceNames"] = []any{"gpu.example.com"}
	list = append(list, roleFor("driver", allow("resource.k8s.io", "resourceclaims/status", "update", "patch"), driver)...)
	return append(list, roleFor("reader", allow("", "namespaces", "get", "list"))...)
}

func TestDoctor(t *testing.T) {
	old := "2026-01-01T00:00:00Z"
	for check, tc := range map[string]struct {
		objects    []map[string]any
		without    string
		deprecated bool
	}{
		"":                    {},
		"claim-idle":          {objects: []map[string]any{holder("idle", nil, result("a", "gpu-2"))}},
		"reserved-for-nobody": {objects: []map[string]any{holder("nobody", []any{consumer("", "pods", "gone"), consumer("batch", "jobs", "gone")}, result("a", "gpu-2"))}},
		"claim-stuck": {objects: []map[string]any{object("resource.k8s.io/v1", "ResourceClaim", "stuck", map[string]any{
			"metadata": map[string]any{"deletionTimestamp": old, "finalizers": []any{"example.com/x"}},
		})}},
		"device-gone": {objects: []map[string]any{holder("lost", []any{consumer("", "pods", "train")}, result("a", "gpu-9"))}},
		"driver-dead": {objects: []map[string]any{slice("lost", map[string]any{"nodeName": "no-such-node", "devices": []any{device("gpu-0")}})}},
		"pool-incomplete": {objects: []map[string]any{object("resource.k8s.io/v1", "ResourceSlice", "half", map[string]any{"spec": map[string]any{
			"driver": "gpu.example.com", "pool": map[string]any{"name": "half", "generation": 1, "resourceSliceCount": 2}, "allNodes": true,
		}})}},
		"driver-refuses-workloads": {objects: []map[string]any{
			object("resource.k8s.io/v1", "ResourceSlice", "net", map[string]any{"spec": map[string]any{
				"driver": "dra.net", "pool": map[string]any{"name": "net", "generation": 1, "resourceSliceCount": 1}, "allNodes": true, "devices": []any{device("eth1")},
			}}),
			object("resource.k8s.io/v1", "ResourceClaim", "net", map[string]any{"status": map[string]any{
				"allocation":  map[string]any{"devices": map[string]any{"results": []any{map[string]any{"request": "r", "driver": "dra.net", "pool": "net", "device": "eth1"}}}},
				"reservedFor": []any{consumer("batch", "jobs", "team")},
			}}),
		}},
		"driver-locked-out":     {objects: roleFor("old-driver", allow("resource.k8s.io", "resourceclaims/status", "patch"))},
		"admin-label-unguarded": {objects: roleFor("tenant", allow("", "namespaces", "patch")), without: "dra-admin-access-guard"},
		"policy-missing":        {without: "dra-node-driver-slices"},
		"old-api":               {deprecated: true},
		"versions-differ":       {objects: []map[string]any{object("v1", "Node", "new", map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "v1.38.0+dra.1"}}})}},
		"gates-differ": {objects: []map[string]any{
			object("v1", "Node", "off", map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "v1.37.2+dra.1"}}}),
			object("v1", "Node", "lost", map[string]any{"status": map[string]any{
				"nodeInfo": map[string]any{"kubeletVersion": "v1.37.2+dra.1"}, "conditions": []any{map[string]any{"type": "Ready", "status": "Unknown"}},
			}}),
		}},
	} {
		t.Run(check, func(t *testing.T) {
			server := newServer(t, "v1", nil)
			server.GitVersion = "v1.37.2+dra.1"
			server.Answer = components(map[string]bool{"DRAReservedForWorkloads": true}, tc.deprecated)
			for _, o := range append(healthy(), tc.objects...) {
				if o["metadata"].(map[string]any)["name"] != tc.without {
					add(t, server, o)
				}
			}
			out, stderr, err := dra(t, server, "doctor", "--fail-on=warning", "-o", "json")
			var answer struct {
				Items  []struct{ Check, Level, Object, Text string }
				Checks []string
			}
			if err := json.Unmarshal([]byte(out), &answer); err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr)
			}
			var found []string
			for _, f := range answer.Items {
				found = append(found, f.Check)
				t.Log(f)
			}
			found = slices.Compact(found)
			want := []string{check}
			if check == "" {
				want = nil
			}
			if !slices.Equal(found, want) {
				t.Errorf("want %q, got %q", want, found)
			}
			if fails := check != "" && check != "policy-missing"; fails != (err != nil) {
				t.Errorf("want an error: %v, got %v", fails, err)
			}
			if len(server.Writes()) > 0 {
				t.Errorf("it wrote: %q", server.Writes())
			}
		})
	}
}

// TestHealthy looks at clusters in which nothing is wrong, each of another kind: doctor raises no alarm.
func TestHealthy(t *testing.T) {
	files, err := filepath.Glob("testdata/healthy/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("want ten clusters: %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			var c struct {
				What, Version, API string
				Gates              map[string]bool
				// Infos are checks whose advice is not about something wrong.
				Infos     []string
				Forbidden []string
				Objects   []map[string]any
			}
			if err := cases.Read(file, "test", &c); err != nil {
				t.Fatal(err)
			}
			server := newServer(t, cmp.Or(c.API, "v1"), nil)
			server.GitVersion, server.Forbidden = cmp.Or(c.Version, server.GitVersion), c.Forbidden
			server.Answer = components(c.Gates, false)
			add(t, server, c.Objects...)
			out, stderr, err := dra(t, server, "doctor", "--fail-on=warning", "-o", "json")
			var answer struct {
				Items  []struct{ Check, Level, Object, Text string }
				Checks []string
			}
			if err := json.Unmarshal([]byte(out), &answer); err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr)
			}
			var found []string
			for _, f := range answer.Items {
				found = append(found, f.Check)
			}
			if err != nil || !slices.Equal(found, c.Infos) {
				t.Errorf("%s: want only %q, got %v: %+v", c.What, c.Infos, err, answer.Items)
			}
			if len(answer.Checks) < 8 && len(c.Forbidden) == 0 {
				t.Errorf("only %q were looked at", answer.Checks)
			}
		})
	}
}

// TestDoctorLooksAgain has faults that are there for a moment, as in each cluster where something goes on.
func TestDoctorLooksAgain(t *testing.T) {
	server := newServer(t, "v1", nil)
	add(t, server, healthy()...)
	add(t, server,
		slice("new", map[string]any{"nodeName": "new", "devices": []any{device("gpu-0")}}),
		holder("released", nil, result("a", "gpu-2")),
		holder("early", []any{consumer("", "pods", "late")}, result("late", "gpu-0")),
	)
	server.GitVersion = "v1.37.2+dra.1"
	answer := components(nil, false)
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		// That is asked between the two looks.
		if r.URL.Path == "/metrics" {
			add(t, server,
				object("resource.k8s.io/v1", "ResourceClaim", "released", map[string]any{"status": map[string]any{"allocation": nil}}),
				object("v1", "Node", "new", nil), object("v1", "Pod", "late", map[string]any{"metadata": map[string]any{"uid": "late"}}),
				slice("late", map[string]any{"allNodes": true, "devices": []any{device("gpu-0")}}))
		}
		return answer(w, r)
	}
	out, stderr, err := dra(t, server, "doctor", "--fail-on=warning")
	if err != nil || !strings.Contains(out, "checks found nothing") {
		t.Errorf("want no finding after two looks: %v\n%s%s", err, out, stderr)
	}
}

// TestDoctorCannotLookAgain checks that a finding that could not be confirmed is none, and that this is said.
func TestDoctorCannotLookAgain(t *testing.T) {
	server := newServer(t, "v1", nil)
	server.GitVersion = "v1.37.2+dra.1"
	add(t, server, healthy()...)
	add(t, server, holder("idle", nil, result("a", "gpu-2")), slice("lost", map[string]any{"nodeName": "lost", "devices": []any{device("gpu-0")}}))
	answer := components(nil, false)
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/metrics" {
			server.Forbidden = []string{"nodes"}
		}
		return answer(w, r)
	}
	out, stderr, err := dra(t, server, "doctor", "--fail-on=warning")
	if err == nil || !strings.Contains(out, "claim-idle") || strings.Contains(out, "driver-dead") || !strings.Contains(stderr, "could not see nodes (forbidden), left out: driver-dead") {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}
}

// TestDoctorUnseenWorkloads is about workloads that may not be read, and about more of them than are looked up.
func TestDoctorUnseenWorkloads(t *testing.T) {
	for name, tc := range map[string]struct {
		workloads int
		forbidden string
		want      string
	}{
		"forbidden": {1, "jobs", "could not see controllers (forbidden), left out: reserved-for-nobody"},
		"too-many":  {201, "", "could not see more workloads that claims are reserved for (200 were looked up), left out: reserved-for-nobody"},
		"few":       {1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, "v1", nil)
			server.Answer, server.GitVersion = components(nil, false), "v1.37.2+dra.1"
			add(t, server, healthy()...)
			for i := range tc.workloads {
				job := fmt.Sprintf("job-%d", i)
				add(t, server, map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": job, "uid": job}})
				add(t, server, holder(job, []any{consumer("batch", "jobs", job)}))
			}
			server.Forbidden = []string{tc.forbidden}
			_, stderr, err := dra(t, server, "doctor", "--fail-on=never")
			if err != nil || !strings.Contains(stderr, tc.want) || tc.want == "" && strings.Contains(stderr, "could not see") {
				t.Errorf("%v, %s", err, stderr)
			}
		})
	}
}

// TestDoctorUnseen checks that nothing is found because something may not be read.
func TestDoctorUnseen(t *testing.T) {
	server := newServer(t, "v1", nil)
	server.Answer, server.GitVersion = components(nil, false), "v1.37.2+dra.1"
	add(t, server, healthy()...)
	for _, resource := range []string{"pods", "resourceslices", "deviceclasses", "nodes", "namespaces", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies"} {
		server.Forbidden = []string{resource}
		out, stderr, err := dra(t, server, "doctor", "--fail-on=warning")
		if err != nil || !strings.Contains(out, "found nothing") || !strings.Contains(stderr, "could not see") || !strings.Contains(stderr, "left out") {
			t.Errorf("without %s: %v, %s, %s", resource, err, out, stderr)
		}
	}
	server.Forbidden = []string{"resourceclaims"}
	if _, _, err := dra(t, server, "doctor"); err == nil || !strings.Contains(err.Error(), "resourceclaims") {
		t.Errorf("without claims there is nothing to look at: %v", err)
	}
}

// TestNoAPI is about clusters without DRA, and about no cluster.
func TestNoAPI(t *testing.T) {
	server := newServer(t, "", nil)
	for _, verb := range [][]string{{"why", "x"}, {"who"}, {"doctor"}} {
		if _, _, err := dra(t, server, verb...); err == nil || !strings.Contains(err.Error(), "no API for Dynamic Resource Allocation") {
			t.Errorf("%q: %v", verb, err)
		}
	}
	server.URL = "http://127.0.0.1:1"
	for _, verb := range [][]string{{"why", "x"}, {"who"}, {"doctor"}} {
		if _, _, err := dra(t, server, verb...); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%q: %v", verb, err)
		}
	}
}

// TestBusyServer answers 429 at first, and breaks off at last.
func TestBusyServer(t *testing.T) {
	server := newServer(t, "v1", nil)
	add(t, server, healthy()...)
	n := 0
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/resourceslices") {
			return false
		}
		if n++; n == 1 {
			w.Header().Set("Retry-After", "1")
			fakeapi.Fail(w, http.StatusTooManyRequests, "TooManyRequests", "busy")
			return true
		}
		return false
	}
	expect(t, mustDRA(t, server, "who"), "gpu-0", "gpu-1")
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/resourceslices") {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"kind":"ResourceSli`)
		return true
	}
	out, stderr, err := dra(t, server, "who")
	if err != nil || !strings.Contains(out, "gpu-0") || !strings.Contains(stderr, "could not see resourceslices") {
		t.Errorf("want what could be read, and what could not: %v\n%s%s", err, out, stderr)
	}
}
