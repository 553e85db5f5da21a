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

// Package fakeapi is an API server for tests. It serves given objects to those who get and list them, and does
// nothing else.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
)

// Server has objects.
type Server struct {
	URL string
	// Version is that of resource.k8s.io, empty if there is none.
	Version string
	// GitVersion is that of the API server.
	GitVersion string
	// Forbidden are resources that may not be read: "pods", or "resourceclaims in other namespaces".
	Forbidden []string
	// Answer, if it is not nil, may answer a request in place of the server. It returns true if it did.
	Answer func(w http.ResponseWriter, r *http.Request) bool

	mutex   sync.Mutex
	objects map[string]*unstructured.Unstructured
	writes  []string
}

type kind struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
}

func (s *Server) kinds() []kind {
	list := []kind{
		{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", true},
		{schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "nodes", false},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", false},
		{schema.GroupVersionKind{Version: "v1", Kind: "Event"}, "events", true},
		{schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}, "resourcequotas", true},
		{schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, "serviceaccounts", true},
		{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "jobs", true},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "daemonsets", true},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, "replicasets", true},
		{schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PodGroup"}, "podgroups", true},
		{schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, "leases", true},
		{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, "clusterroles", false},
		{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}, "clusterrolebindings", false},
		{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, "roles", true},
		{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, "rolebindings", true},
		{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, "validatingadmissionpolicies", false},
		{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}, "validatingadmissionpolicybindings", false},
	}
	if s.Version != "" {
		group := func(name string) schema.GroupVersionKind {
			return schema.GroupVersionKind{Group: "resource.k8s.io", Version: s.Version, Kind: name}
		}
		list = append(list, kind{group("ResourceClaim"), "resourceclaims", true}, kind{group("ResourceClaimTemplate"), "resourceclaimtemplates", true},
			kind{group("DeviceClass"), "deviceclasses", false}, kind{group("ResourceSlice"), "resourceslices", false})
		if s.Version != "v1beta1" {
			list = append(list, kind{group("DeviceTaintRule"), "devicetaintrules", false})
		}
	}
	return list
}

// New starts a server, which stops with the test.
func New(t testing.TB, version string) *Server {
	t.Helper()
	s := &Server{Version: version, GitVersion: "v1.37.2", objects: map[string]*unstructured.Unstructured{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Writes are the requests that would have changed something.
func (s *Server) Writes() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.writes
}

func key(resource, namespace, name string) string { return resource + "/" + namespace + "/" + name }

// Add creates or changes objects. UIDs and times of creation are filled in. A deleted object stays if it has
// finalizers or is a pod.
func (s *Server) Add(t *testing.T, steps ...cases.Object) {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, step := range steps {
		o := step.DeepCopy()
		i := slices.IndexFunc(s.kinds(), func(k kind) bool { return k.gvk == o.GroupVersionKind() })
		if i < 0 {
			if o.GetKind() == "DeviceTaintRule" {
				// There are none in v1beta1.
				continue
			}
			t.Fatalf("the fake API server has no %s", o.GroupVersionKind())
		}
		err := cases.ResolveUIDs(o, func(object string) (string, error) { return "uid-" + o.GetNamespace() + "-" + object, nil })
		if err != nil {
			t.Fatal(err)
		}
		k := key(s.kinds()[i].resource, o.GetNamespace(), o.GetName())
		if o.GetUID() == "" {
			_ = unstructured.SetNestedField(o.Object, "uid-"+o.GetNamespace()+"-"+strings.ToLower(o.GetKind())+"/"+o.GetName(), "metadata", "uid")
		}
		if old := s.objects[k]; old != nil {
			merge(old.Object, o.Object)
			o = old
		} else if created := o.GetCreationTimestamp(); created.IsZero() {
			_ = unstructured.SetNestedField(o.Object, "2026-01-01T00:00:00Z", "metadata", "creationTimestamp")
		}
		if step.Deleted {
			_ = unstructured.SetNestedField(o.Object, "2026-01-01T01:00:00Z", "metadata", "deletionTimestamp")
		}
		if o.GetKind() == "Pod" {
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase == "" {
				_ = unstructured.SetNestedField(o.Object, "Pending", "status", "phase")
			}
		}
		s.objects[k] = o
	}
}

// merge is that of a JSON merge patch.
func merge(into, from map[string]any) {
	for name, value := range from {
		if value == nil {
			delete(into, name)
			continue
		}
		if a, ok := into[name].(map[string]any); ok {
			if b, ok := value.(map[string]any); ok {
				merge(a, b)
				continue
			}
		}
		into[name] = value
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Answer != nil && s.Answer(w, r) {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		Fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "nothing may be written")
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version":
		Respond(w, map[string]any{"major": "1", "minor": "37", "gitVersion": s.GitVersion})
	case r.URL.Path == "/api":
		Respond(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		Respond(w, s.groups())
	case parts[0] == "api" && len(parts) == 2:
		s.discover(w, schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		s.discover(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case parts[0] == "api":
		s.read(w, r, schema.GroupVersion{Version: parts[1]}, parts[2:])
	case parts[0] == "apis" && len(parts) > 3:
		s.read(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:])
	default:
		Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found: "+r.URL.Path)
	}
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	seen := map[string]bool{"": true}
	for _, k := range s.kinds() {
		if !seen[k.gvk.Group] {
			seen[k.gvk.Group] = true
			version := metav1.GroupVersionForDiscovery{GroupVersion: k.gvk.GroupVersion().String(), Version: k.gvk.Version}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: k.gvk.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		}
	}
	return list
}

func (s *Server) discover(w http.ResponseWriter, gv schema.GroupVersion) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds() {
		if k.gvk.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.resource, Kind: k.gvk.Kind, Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "list"}})
		}
	}
	if len(list.APIResources) == 0 {
		Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is no "+gv.String())
		return
	}
	Respond(w, list)
}

// read gets or lists.
func (s *Server) read(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, path []string) {
	namespace := ""
	if path[0] == "namespaces" && len(path) > 2 {
		namespace, path = path[1], path[2:]
	}
	i := slices.IndexFunc(s.kinds(), func(k kind) bool { return k.gvk.GroupVersion() == gv && k.resource == path[0] })
	switch {
	case i < 0:
		Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case slices.Contains(s.Forbidden, path[0]), namespace == "" && slices.Contains(s.Forbidden, path[0]+" in other namespaces"):
		Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, path[0]+" is forbidden")
	case len(path) == 2:
		o := s.objects[key(path[0], namespace, path[1])]
		if o == nil {
			Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", path[0], path[1]))
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			o = o.DeepCopy()
			o.SetAPIVersion("meta.k8s.io/v1")
			o.SetKind("PartialObjectMetadata")
		}
		Respond(w, o)
	default:
		items := []any{}
		for _, o := range s.objects {
			if o.GroupVersionKind() == s.kinds()[i].gvk && (namespace == "" || o.GetNamespace() == namespace) {
				items = append(items, o.Object)
			}
		}
		kind := s.kinds()[i].gvk.Kind + "List"
		apiVersion := gv.String()
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			kind, apiVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
		}
		Respond(w, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	}
}

// Respond sends an object.
func Respond(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

// Fail sends an error as the API server does.
func Fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
