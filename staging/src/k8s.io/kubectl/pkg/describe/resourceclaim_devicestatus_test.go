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

package describe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// claimServer answers for the objects of one manifest, as an API server does.
type claimServer struct {
	t *testing.T
	// version is that of the claim, the only one in which it can be read.
	version, name, namespace string
	// versions of the API group which the server has, if it is not only that.
	versions []string
	claim    map[string]any
	// lists are pods and events.
	lists map[string][]map[string]any
	// forbidden are the resources which may not be listed, broken those for which
	// that fails.
	forbidden, broken map[string]bool
	// pages counts the requests for each list.
	pages map[string]int
}

// newClaimServer reads a manifest, in which ago(3h) is a time.
func newClaimServer(t *testing.T, manifest string) *claimServer {
	t.Helper()
	manifest = regexp.MustCompile(`ago\((\w+)\)`).ReplaceAllStringFunc(manifest, func(ago string) string {
		value := strings.NewReplacer("ago(", "", ")", "", "2d", "48h").Replace(ago)
		d, err := time.ParseDuration(value)
		if err != nil {
			t.Fatal(err)
		}
		return time.Now().Add(-d).UTC().Format(time.RFC3339)
	})
	s := &claimServer{t: t, lists: map[string][]map[string]any{}, pages: map[string]int{}, forbidden: map[string]bool{}, broken: map[string]bool{}}
	for _, document := range strings.Split(manifest, "\n---\n") {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(document), &obj); err != nil {
			t.Fatal(err)
		}
		switch kind := obj["kind"].(string); kind {
		case "ResourceClaim":
			s.setClaim(obj)
		default:
			resource := strings.ToLower(kind) + "s"
			s.lists[resource] = append(s.lists[resource], obj)
		}
	}
	return s
}

func (s *claimServer) setClaim(obj map[string]any) {
	metadata := obj["metadata"].(map[string]any)
	s.claim = obj
	s.version = strings.TrimPrefix(obj["apiVersion"].(string), "resource.k8s.io/")
	s.name, s.namespace = metadata["name"].(string), metadata["namespace"].(string)
}

func (s *claimServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	claims := "/apis/resource.k8s.io/" + s.version + "/namespaces/" + s.namespace + "/resourceclaims/"
	core := "/api/v1/namespaces/" + s.namespace + "/"
	switch {
	case r.URL.Path == "/api":
		s.answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		if s.broken["groups"] {
			s.fail(w, apierrors.NewInternalError(errors.New("no groups today")))
			return
		}
		versions := []metav1.GroupVersionForDiscovery{{GroupVersion: "resource.k8s.io/v1alpha1", Version: "v1alpha1"}}
		for _, version := range append(s.versions, s.version) {
			versions = append(versions, metav1.GroupVersionForDiscovery{GroupVersion: "resource.k8s.io/" + version, Version: version})
		}
		s.answer(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "batch", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "batch/v1", Version: "v1"}}},
			{Name: "resource.k8s.io", Versions: versions},
		}})
	case r.URL.Path == claims+s.name:
		s.answer(w, http.StatusOK, s.claim)
	case strings.HasPrefix(r.URL.Path, claims):
		s.fail(w, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, strings.TrimPrefix(r.URL.Path, claims)))
	case r.URL.Path == core+"pods", r.URL.Path == core+"events":
		s.list(w, r, strings.TrimPrefix(r.URL.Path, core))
	default:
		http.NotFound(w, r)
	}
}

// list answers with one object at a time if the client wants chunks.
func (s *claimServer) list(w http.ResponseWriter, r *http.Request, resource string) {
	s.pages[resource]++
	if s.forbidden[resource] {
		s.fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("user %q cannot list them", "alice")))
		return
	}
	if s.broken[resource] {
		s.fail(w, apierrors.NewInternalError(errors.New("broken\x1b[31m")))
		return
	}
	if want, got := "involvedObject.uid="+string(s.uid()), r.URL.Query().Get("fieldSelector"); resource == "events" && !strings.Contains(got, want) {
		s.t.Errorf("events of %q are listed, want %s", got, want)
	}
	items, next := s.lists[resource], ""
	if r.URL.Query().Get("limit") != "" && len(items) > 0 {
		var first int
		fmt.Sscan(r.URL.Query().Get("continue"), &first)
		items = items[first:]
		if len(items) > 1 {
			next = fmt.Sprint(first + 1)
		}
		items = items[:1]
	}
	kind := map[string]string{"pods": "PodList", "events": "EventList"}[resource]
	s.answer(w, http.StatusOK, map[string]any{"kind": kind, "apiVersion": "v1", "metadata": map[string]any{"continue": next}, "items": items})
}

func (s *claimServer) uid() string {
	return s.claim["metadata"].(map[string]any)["uid"].(string)
}

// fail answers with an error that a client recognizes as one of an API server.
func (s *claimServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.answer(w, int(status.Code), status)
}

func (s *claimServer) answer(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(obj); err != nil {
		s.t.Error(err)
	}
}

// describe asks the describer that kubectl has for the kind.
func (s *claimServer) describe(name string) (string, error) {
	s.t.Helper()
	return s.describeWith(name, DescriberSettings{ShowEvents: true, ChunkSize: 500})
}

func (s *claimServer) describeWith(name string, settings DescriberSettings) (string, error) {
	s.t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	describer, ok := DescriberFor(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}, &rest.Config{Host: server.URL})
	if !ok {
		s.t.Fatal("ResourceClaims have no describer")
	}
	return describer.Describe(s.namespace, name, settings)
}

// longLines returns the lines that do not fit into a terminal. Events come from
// the code for all kinds.
func longLines(description string) []string {
	var long []string
	description, _, _ = strings.Cut(description, "\nEvents:")
	for _, line := range strings.Split(description, "\n") {
		if utf8.RuneCountInString(line) > 80 {
			long = append(long, line)
		}
	}
	return long
}

// TestDescribeResourceClaim compares descriptions with those in testdata. With
// UPDATE_GOLDEN=1, it writes them.
func TestDescribeResourceClaim(t *testing.T) {
	for _, tc := range []struct {
		// manifest and golden are names in testdata.
		manifest, golden string
		forbidden        []string
		// longLines is the number of lines with a word that is too long.
		longLines int
	}{
		{manifest: "pending"},
		{manifest: "workload"},
		{manifest: "workload", golden: "workload-forbidden", forbidden: []string{"pods", "events"}},
		{manifest: "network"},
		{manifest: "everything", longLines: 1},
		{manifest: "flat"},
		{manifest: "odd", longLines: 1},
	} {
		if tc.golden == "" {
			tc.golden = tc.manifest
		}
		t.Run(tc.golden, func(t *testing.T) {
			dir := filepath.Join("testdata", "devicestatus")
			manifest, err := os.ReadFile(filepath.Join(dir, tc.manifest+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			s := newClaimServer(t, string(manifest))
			for _, resource := range tc.forbidden {
				s.forbidden[resource] = true
			}
			got, err := s.describe(s.name)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(dir, tc.golden+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("not as in %s (-want +got):\n%s", golden, diff)
			}
			if long := longLines(got); len(long) != tc.longLines {
				t.Errorf("%d lines with more than 80 characters, want %d:\n%s", len(long), tc.longLines, strings.Join(long, "\n"))
			}
		})
	}
}

// TestDescribeResourceClaimPods checks when pods are listed: not for a claim that
// lists its pods itself, and in chunks otherwise.
func TestDescribeResourceClaimPods(t *testing.T) {
	for manifest, want := range map[string]int{"everything": 0, "network": 0, "pending": 1, "workload": 5} {
		content, err := os.ReadFile(filepath.Join("testdata", "devicestatus", manifest+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s := newClaimServer(t, string(content))
		if _, err := s.describe(s.name); err != nil {
			t.Fatal(err)
		}
		if got := s.pages["pods"]; got != want {
			t.Errorf("%s: pods were listed with %d requests, want %d", manifest, got, want)
		}
	}
}

// TestDescribeResourceClaimWorkloads checks for which claims pods are counted. Each of
// the fields is enough: a client may not be allowed to set all of them, and they are
// not set at the same time.
func TestDescribeResourceClaimWorkloads(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, status string
		counted      bool
	}{
		"workload":     {`{"reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "a"}}`, `{}`, true},
		"any pod":      {`{}`, `{"allocation": {"reservedForAnyPod": true}}`, true},
		"reserved":     {`{}`, `{"allocation": {}, "reservedFor": [{"resource": "pods", "name": "a"}, {"apiGroup": "batch", "resource": "jobs", "name": "a"}]}`, true},
		"for pods":     {`{}`, `{"allocation": {}, "reservedFor": [{"resource": "pods", "name": "a"}]}`, false},
		"not reserved": {`{}`, `{"allocation": {}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": `+tc.spec+`, "status": `+tc.status+`}`)
			got, err := s.describe("a")
			if err != nil {
				t.Fatal(err)
			}
			if counted := strings.Contains(got, "\nPods:  "); counted != tc.counted {
				t.Errorf("pods are counted: %v, want %v\n%s", counted, tc.counted, got)
			}
		})
	}
}

// TestDescribeResourceClaimPhases checks the line with the number of pods.
func TestDescribeResourceClaimPhases(t *testing.T) {
	for want, phases := range map[string][]string{
		"1 refers to this claim: 1 Failed":                         {"Failed"},
		"3 refer to this claim: 1 Pending, 1 Succeeded, 1 Unknown": {"Unknown", "Succeeded", "Pending"},
		"1 refers to this claim":                                   {""},
	} {
		s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"reservedFor": {"resource": "x", "name": "y"}}}`)
		claim := func(name string) []any { return []any{map[string]any{"name": "claim", "resourceClaimName": name}} }
		for _, phase := range phases {
			s.lists["pods"] = append(s.lists["pods"],
				map[string]any{"spec": map[string]any{"resourceClaims": claim("a")}, "status": map[string]any{"phase": phase}},
				map[string]any{"spec": map[string]any{"resourceClaims": claim("other")}, "status": map[string]any{"phase": phase, "resourceClaimStatuses": claim("another")}},
			)
		}
		got, err := s.describe("a")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, "\nPods:          "+want+"\n") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"reservedFor": {"resource": "x", "name": "y"}}}`)
	s.broken["pods"], s.broken["events"] = true, true
	got, err := s.describe("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nPods:          unknown: listing pods: Internal error occurred: broken\uFFFD[31m\n",
		"\nEvents:  unknown: Internal error occurred: broken\uFFFD[31m\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestDescribeResourceClaimEvents checks that they are listed in chunks, if at all.
func TestDescribeResourceClaimEvents(t *testing.T) {
	s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}`)
	for _, reason := range []string{"First", "Second"} {
		s.lists["events"] = append(s.lists["events"], map[string]any{"metadata": map[string]any{"name": reason, "namespace": "b"}, "reason": reason})
	}
	got, err := s.describe("a")
	if err != nil {
		t.Fatal(err)
	}
	if s.pages["events"] != 2 || !strings.Contains(got, "First") || !strings.Contains(got, "Second") {
		t.Errorf("%d requests for events:\n%s", s.pages["events"], got)
	}
	got, err = s.describeWith("a", DescriberSettings{ChunkSize: 500})
	if err != nil {
		t.Fatal(err)
	}
	if s.pages["events"] != 2 || strings.Contains(got, "Events") {
		t.Errorf("events are not wanted, but there were %d requests:\n%s", s.pages["events"], got)
	}
}

// TestDescribeResourceClaimVersions checks that each version which a server
// may have is found, and that errors are those of the version it has.
func TestDescribeResourceClaimVersions(t *testing.T) {
	s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c", "deletionTimestamp": "ago(3h)"}}`)
	if got, err := s.describe("a"); err != nil || !strings.Contains(got, "State:         deleted\n") {
		t.Errorf("not allocated, and deleted: %v\n%s", err, got)
	}
	for _, version := range []string{"v1", "v1beta2", "v1beta1", "v1alpha3"} {
		t.Run(version, func(t *testing.T) {
			s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/`+version+`", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}`)
			got, err := s.describe("a")
			if err != nil {
				t.Fatal(err)
			}
			if want := "State:         pending\n"; !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
			// Older versions are of no use, a server may have them for other resources.
			s.versions = claimVersions[slices.Index(claimVersions, version):]
			if _, err := s.describe("a"); err != nil {
				t.Errorf("with older versions: %v", err)
			}
			_, err = s.describe("missing")
			if want := `resourceclaims.resource.k8s.io "missing" not found`; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
	s = newClaimServer(t, `{"apiVersion": "resource.k8s.io/v2", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}`)
	want := "the server has ResourceClaims in none of the versions v1, v1beta2, v1beta1, v1alpha3 of resource.k8s.io"
	if got, err := s.describe("a"); err == nil || err.Error() != want {
		t.Errorf("a version that kubectl does not know: error %v, want %s\n%s", err, want, got)
	}
	s.broken["groups"] = true
	if got, err := s.describe("a"); err == nil || !apierrors.IsInternalError(err) {
		t.Errorf("groups cannot be read: error %v\n%s", err, got)
	}
	s = newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": []}`)
	want = "ResourceClaim b/a is not as its API version resource.k8s.io/v1 has it: "
	if got, err := s.describe("a"); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("spec is a list: error %v, want %s...\n%s", err, want, got)
	}
}

// TestDescribeResourceClaimLargest describes a claim with as much as validation
// permits of everything, and more.
func TestDescribeResourceClaimLargest(t *testing.T) {
	s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}`)
	var results, statuses, reservedFor []any
	for i := range 32 {
		device := map[string]any{"driver": "net.example.com", "pool": "worker-1", "device": fmt.Sprintf("vf-%d", i)}
		results = append(results, device, map[string]any{"request": fmt.Sprintf("nic-%d", i), "driver": "other.example.com", "pool": "worker-1", "device": fmt.Sprintf("vf-%d", i)})
		var ips, conditions []any
		for j := range 16 {
			ips = append(ips, fmt.Sprintf("2001:db8:aaaa:bbbb:cccc:dddd:%x:%x/64", 0x1000+i, 0x1000+j))
		}
		for j := range 8 {
			conditions = append(conditions, metav1.Condition{
				Type: fmt.Sprintf("Type%d", j), Status: metav1.ConditionFalse, Reason: strings.Repeat("R", 20),
				Message: strings.Repeat("a long message ", 32*1024/15),
			})
		}
		statuses = append(statuses, map[string]any{
			"driver": "net.example.com", "pool": "worker-1", "device": fmt.Sprintf("vf-%d", i),
			"conditions":  conditions,
			"data":        map[string]any{"blob": strings.Repeat("x", 10*1024-len(`{"blob":""}`))},
			"networkData": map[string]any{"interfaceName": fmt.Sprintf("net%d", i), "ips": ips, "hardwareAddress": "0a:58:0a:14:00:11"},
		})
	}
	for i := range 256 {
		reservedFor = append(reservedFor, map[string]any{"resource": "pods", "name": fmt.Sprintf("worker-%d", i), "uid": fmt.Sprint(i)})
	}
	s.claim["spec"] = map[string]any{"devices": map[string]any{"requests": []any{map[string]any{"name": "nic", "exactly": map[string]any{
		"deviceClassName": "net", "selectors": []any{map[string]any{"cel": map[string]any{"expression": strings.Repeat("true && ", 10*1024/8)}}},
	}}}}}
	s.claim["status"] = map[string]any{
		"allocation":  map[string]any{"devices": map[string]any{"results": results}},
		"reservedFor": reservedFor,
		"devices":     statuses,
	}
	got, err := s.describe("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"256 Pods: worker-0, worker-1, ",
		"worker-255\n",
		"  net.example.com/worker-1/vf-31:\n",
		"2001:db8:aaaa:bbbb:cccc:dddd:101f:100f/64\n",
		"10240 bytes, which -o yaml shows\n",
		" bytes more, which -o yaml shows)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if got, want := strings.Count(got, " bytes more, which -o yaml shows)"), 1+32*8; got != want {
		t.Errorf("%d texts are cut, want that of the selector and %d messages", got, want-1)
	}
	if long := longLines(got); len(long) > 0 {
		t.Errorf("%d lines with more than 80 characters:\n%s", len(long), long[0])
	}
	// 32 devices, with eight conditions of a page of text each.
	if size := len(got); size > 32*8*3*1024 {
		t.Errorf("%d bytes are not readable", size)
	}
}

// TestDescribeResourceClaimRequests has requests as other releases may have them: without
// a class, or without a mode.
func TestDescribeResourceClaimRequests(t *testing.T) {
	s := newClaimServer(t, `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a", "namespace": "b", "uid": "c"},
		"spec": {"devices": {"requests": [{"name": "any", "exactly": {"allocationMode": "All"}}, {"name": "two", "exactly": {"deviceClassName": "c", "count": 2}},
		{"name": "\u001b[1m"}, {"name": "\u001b[2m", "firstAvailable": [{"name": "\u001b[3m", "deviceClassName": "c"}]}]}}}`)
	got, err := s.describe("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n  \uFFFD[1m: <unknown>\n", "\n  \uFFFD[2m: the first available of\n", "\n    \uFFFD[3m:\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if want := "  any:\n    Device Class:  <none>\n    Count:         All\n  two:\n    Device Class:  c\n    Count:         2\n"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestClaimFields checks how a block uses its 80 columns.
func TestClaimFields(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("a ", n)) }
	var f claimFields
	f.add("Short", "one")
	f.add(strings.Repeat("l", claimLabelMax), words(23))
	f.add(strings.Repeat("L", claimLabelMax+3), "two")
	f.addList("List", []string{words(60), "three"})
	f.addList("None", nil)
	f.add("Empty", "")
	var out bytes.Buffer
	p := &claimPrinter{PrefixWriter: NewPrefixWriter(&out)}
	p.fields(LEVEL_1, f)
	p.text(LEVEL_1, words(50))
	column := strings.Repeat(" ", claimLabelMax)
	want := "  Short:" + column[3:] + "one\n" +
		"  " + strings.Repeat("l", claimLabelMax) + ":  " + words(23) + "\n" +
		"  " + strings.Repeat("L", claimLabelMax+3) + ":\n" +
		"     " + column + "two\n" +
		"  List:" + column[2:] + "- " + words(22) + "\n" +
		"     " + column + "  " + words(22) + "\n" +
		"     " + column + "  " + words(16) + "\n" +
		"     " + column + "- three\n" +
		"  " + words(38) + "\n" +
		"    " + words(12) + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if long := longLines(out.String()); len(long) > 0 {
		t.Errorf("too long: %q", long)
	}
}

func TestWrapText(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 6, []string{"one", "two", "three"}},
		{"one   two", 4, []string{"one", "two"}},
		{"incomprehensible", 5, []string{"incomprehensible"}},
		{"an incomprehensible word", 5, []string{"an", "incomprehensible", "word"}},
		{" a\n  b  ", 5, []string{"a", "b"}},
		{"äöü äöü", 8, []string{"äöü", "äöü"}},
	} {
		if diff := cmp.Diff(tc.want, wrapText(tc.text, tc.width)); diff != "" {
			t.Errorf("%q in %d columns (-want +got):\n%s", tc.text, tc.width, diff)
		}
	}
}

func TestShortData(t *testing.T) {
	longest := `"` + strings.Repeat("x", claimDataMax-2) + `"`
	for data, want := range map[string]string{
		"":                       "",
		"null":                   "",
		"{}":                     "{}",
		`{"a":[1,"b\u003c"]}`:    `{ "a": [ 1, "b\u003c" ] }`,
		longest:                  longest,
		" " + longest:            "161 bytes, which -o yaml shows",
		`not JSON, as from etcd`: `not JSON, as from etcd`,
	} {
		if got := shortData(json.RawMessage(data)); got != want {
			t.Errorf("%s: got %q, want %q", data, got, want)
		}
	}
}

func TestCleanText(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb":              "a b",
		"a\r\nb\x00\x1b[2J": "a\uFFFD\uFFFDb\uFFFD\uFFFD[2J",
		"\u009b31m\x7f":     "\uFFFD31m\uFFFD",
		// It would turn around the rest of the line.
		"\u202etxt.exe": "\uFFFDtxt.exe",
		"äöü 網絡 🙂":      "äöü 網絡 🙂",
	} {
		if got := cleanText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLimitText(t *testing.T) {
	if longest := strings.Repeat("x", claimTextMax); limitText(longest) != longest {
		t.Error("the longest text is cut")
	}
	// The limit is in the middle of a character.
	text := "x" + strings.Repeat("ä", claimTextMax)
	got := limitText(text)
	if !utf8.ValidString(got) || !strings.HasPrefix(got, "xä") {
		t.Errorf("not valid: %q", got)
	}
	if want := fmt.Sprintf("ä ... (%d bytes more, which -o yaml shows)", len(text)-claimTextMax+1); !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
}
