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

package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiServer answers reviews, and knows a few ServiceAccounts. It returns a kubeconfig.
func apiServer(t *testing.T, allowed ...string) string {
	t.Helper()
	respond := func(w http.ResponseWriter, code int, o any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(o); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/serviceaccounts/{name}", func(w http.ResponseWriter, r *http.Request) {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure}
		switch r.PathValue("name") {
		case "plugin", "silent", "misconfigured", "unasked":
			respond(w, http.StatusOK, corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}})
		case "secret":
			status.Code, status.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
			respond(w, http.StatusForbidden, status)
		case "broken":
			status.Code, status.Reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
			respond(w, http.StatusInternalServerError, status)
		default:
			status.Code, status.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
			respond(w, http.StatusNotFound, status)
		}
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			// It is protobuf.
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
		}
		if err != nil || review.Spec.ResourceAttributes == nil {
			t.Errorf("unexpected request: %v, %q", err, body)
			respond(w, http.StatusBadRequest, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure})
			return
		}
		a := review.Spec.ResourceAttributes
		if a.Group != "resource.k8s.io" || a.Resource != "resourceclaims" {
			t.Errorf("unexpected review: %+v", a)
		}
		if !strings.HasPrefix(review.Spec.User, "system:serviceaccount:example-driver:") ||
			!slices.Equal(review.Spec.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:example-driver", "system:authenticated"}) {
			t.Errorf("unexpected user: %+v", review.Spec)
		}
		account := strings.TrimPrefix(review.Spec.User, "system:serviceaccount:example-driver:")
		switch {
		case account == "unasked":
			respond(w, http.StatusForbidden, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			})
			return
		case slices.Contains(allowed, fmt.Sprintf("%s %s %s %s", a.Verb, a.Subresource, a.Name, a.Namespace)):
			review.Status.Allowed = true
			review.Status.Reason = "some role"
		case account != "silent":
			review.Status.Reason = "no role"
		}
		if account == "misconfigured" {
			review.Status.EvaluationError = "missing role"
		}
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
		respond(w, http.StatusCreated, review)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	name := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test}}]
clusters: [{name: test, cluster: {server: %q}}]
`, server.URL)
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// runArgs returns true if something is lacking, as the exit code does.
func runArgs(t *testing.T, args []string, stdout, stderr io.Writer) (bool, error) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	config := genericclioptions.NewConfigFlags(true)
	command := newAccessCommand(config, genericiooptions.IOStreams{In: strings.NewReader(""), Out: stdout, ErrOut: stderr})
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetErr(stderr)
	config.AddFlags(command.PersistentFlags())
	command.SetArgs(args)
	err := command.ExecuteContext(t.Context())
	var exit exitError
	if errors.As(err, &exit) && exit.code == 1 {
		return true, nil
	}
	if errors.As(err, &exit) && exit.code != 2 {
		t.Errorf("unexpected exit code %d", exit.code)
	}
	return false, err
}

func TestAccess(t *testing.T) {
	status := []string{"get   ", "update status  ", "patch status  "}
	const driver = "driver.example.com"
	for name, tc := range map[string]struct {
		account string // plugin if empty
		args    []string
		allowed []string
		want    string
		lacks   bool
	}{
		"plugin": {
			args:    []string{"--driver", driver},
			allowed: append(status, "associated-node:update driver driver.example.com ", "associated-node:patch driver driver.example.com "),
			want: `system:serviceaccount:example-driver:plugin, for claims in all namespaces:
  yes  get                     resourceclaims
  yes  update                  resourceclaims/status
  yes  patch                   resourceclaims/status
  yes  associated-node:update  resourceclaims/driver driver.example.com
  yes  associated-node:patch   resourceclaims/driver driver.example.com
` + nodeBound + `It lacks nothing.
`,
		},
		"what was enough before": {
			args:    []string{"--driver", driver},
			allowed: status,
			lacks:   true,
			want: `system:serviceaccount:example-driver:plugin, for claims in all namespaces:
  yes  get                     resourceclaims
  yes  update                  resourceclaims/status
  yes  patch                   resourceclaims/status
  NO   associated-node:update  resourceclaims/driver driver.example.com  no role
  NO   associated-node:patch   resourceclaims/driver driver.example.com  no role
` + nodeBound + `It lacks these rules in a ClusterRole, bound by a ClusterRoleBinding:
rules:
- apiGroups:
  - resource.k8s.io
  resourceNames:
  - driver.example.com
  resources:
  - resourceclaims/driver
  verbs:
  - associated-node:update
  - associated-node:patch
`,
		},
		"any node is also its own": {
			args:    []string{"--driver", driver, "--verbs", "patch"},
			allowed: append(status, "arbitrary-node:patch driver driver.example.com "),
			want: `system:serviceaccount:example-driver:plugin, for claims in all namespaces:
  yes  get                   resourceclaims
  yes  patch                 resourceclaims/status
  yes  arbitrary-node:patch  resourceclaims/driver driver.example.com
It lacks nothing.
`,
		},
		"its own comes first": {
			args:    []string{"--driver", driver, "--verbs", "patch"},
			allowed: append(status, "associated-node:patch driver driver.example.com ", "arbitrary-node:patch driver driver.example.com "),
			want: `system:serviceaccount:example-driver:plugin, for claims in all namespaces:
  yes  get                    resourceclaims
  yes  patch                  resourceclaims/status
  yes  associated-node:patch  resourceclaims/driver driver.example.com
` + nodeBound + `It lacks nothing.
`,
		},
		"one namespace": {
			args:    []string{"--driver", driver, "--verbs", "patch", "--namespace", "ns"},
			allowed: []string{"get   ns", "patch status  ns", "associated-node:patch driver driver.example.com ns"},
			want: `system:serviceaccount:example-driver:plugin, for claims in the namespace ns:
  yes  get                    resourceclaims
  yes  patch                  resourceclaims/status
  yes  associated-node:patch  resourceclaims/driver driver.example.com
` + nodeBound + `It lacks nothing.
`,
		},
		"no reason": {
			account: "silent",
			args:    []string{"--binding", "--verbs", "patch"},
			allowed: []string{"get   ", "patch binding  "},
			lacks:   true,
			want: `system:serviceaccount:example-driver:silent, for claims in all namespaces:
  yes  get    resourceclaims
  NO   patch  resourceclaims/status
  yes  patch  resourceclaims/binding
It lacks these rules in a ClusterRole, bound by a ClusterRoleBinding:
rules:
- apiGroups:
  - resource.k8s.io
  resources:
  - resourceclaims/status
  verbs:
  - patch
`,
		},
		"rules which cannot be evaluated": {
			account: "misconfigured",
			args:    []string{"--binding", "--verbs", "patch"},
			allowed: []string{"get   ", "patch status  "},
			lacks:   true,
			want: `system:serviceaccount:example-driver:misconfigured, for claims in all namespaces:
  yes  get    resourceclaims
  yes  patch  resourceclaims/status
  NO   patch  resourceclaims/binding  no role missing role
It lacks these rules in a ClusterRole, bound by a ClusterRoleBinding:
rules:
- apiGroups:
  - resource.k8s.io
  resources:
  - resourceclaims/binding
  verbs:
  - patch
`,
		},
		"its own is not any node": {
			args:    []string{"--driver", driver, "--verbs", "patch", "--any-node", "--namespace", "ns"},
			allowed: []string{"get   ns", "patch status  ns", "associated-node:patch driver driver.example.com ns"},
			lacks:   true,
			want: `system:serviceaccount:example-driver:plugin, for claims in the namespace ns:
  yes  get                   resourceclaims
  yes  patch                 resourceclaims/status
  NO   arbitrary-node:patch  resourceclaims/driver driver.example.com  no role
It lacks these rules in a Role in the namespace ns:
rules:
- apiGroups:
  - resource.k8s.io
  resourceNames:
  - driver.example.com
  resources:
  - resourceclaims/driver
  verbs:
  - arbitrary-node:patch
`,
		},
		"binding is cluster-wide": {
			args:    []string{"--binding", "--verbs", "update", "--namespace", "ns"},
			allowed: []string{"get   ns", "update status  ns", "update binding  ns"},
			lacks:   true,
			want: `system:serviceaccount:example-driver:plugin, for claims in the namespace ns:
  yes  get     resourceclaims
  yes  update  resourceclaims/status
  NO   update  resourceclaims/binding  no role
It lacks these rules in a ClusterRole, bound by a ClusterRoleBinding:
rules:
- apiGroups:
  - resource.k8s.io
  resources:
  - resourceclaims/binding
  verbs:
  - update
`,
		},
		"binding": {
			args:    []string{"--binding"},
			allowed: append(status, "update binding  ", "patch binding  "),
			want: `system:serviceaccount:example-driver:plugin, for claims in all namespaces:
  yes  get     resourceclaims
  yes  update  resourceclaims/status
  yes  patch   resourceclaims/status
  yes  update  resourceclaims/binding
  yes  patch   resourceclaims/binding
It lacks nothing.
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if tc.account == "" {
				tc.account = "plugin"
			}
			args := append([]string{"--kubeconfig", apiServer(t, tc.allowed...), "--service-account", "example-driver/" + tc.account}, tc.args...)
			lacks, err := runArgs(t, args, &stdout, &stderr)
			if err != nil || stderr.Len() > 0 {
				t.Fatalf("%v, %s", err, stderr.String())
			}
			if stdout.String() != tc.want {
				t.Errorf("want:\n%s\ngot:\n%s", tc.want, stdout.String())
			}
			if lacks != tc.lacks {
				t.Errorf("want lacks %v, got %v", tc.lacks, lacks)
			}
		})
	}
}

func TestAccessErrors(t *testing.T) {
	const account = "--service-account=example-driver/plugin"
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no account":      {[]string{"--driver=d"}, "--service-account must be like"},
		"half an account": {[]string{"--driver=d", "--service-account=plugin"}, `not "plugin"`},
		"no name":         {[]string{"--driver=d", "--service-account=example-driver/"}, "--service-account must be like"},
		"no namespace":    {[]string{"--driver=d", "--service-account=/plugin"}, "--service-account must be like"},
		"broken server":   {[]string{"--driver=d", "--service-account=example-driver/broken"}, "reading the ServiceAccount: "},
		"must not ask":    {[]string{"--driver=d", "--service-account=example-driver/unasked"}, "asking the API server about get resourceclaims (this takes create for subjectaccessreviews"},
		"nothing to ask":  {[]string{account}, "--driver or --binding"},
		"any node":        {[]string{account, "--binding", "--any-node"}, "use it with --driver"},
		"wrong verb":      {[]string{account, "--driver=d", "--verbs=update,delete"}, `"delete"`},
		"argument":        {[]string{account, "--driver=d", "more"}, `"more"`},
		"no such account": {[]string{"--service-account=example-driver/other", "--driver=d"}, "there is no ServiceAccount other in the namespace example-driver"},
		"no kubeconfig":   {[]string{account, "--driver=d", "--kubeconfig=/does/not/exist"}, "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			_, err := runArgs(t, append([]string{"--kubeconfig", apiServer(t)}, tc.args...), &stdout, &stderr)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got: %v", tc.want, err)
			}
			if stdout.Len() > 0 {
				t.Errorf("unexpected output: %s", stdout.String())
			}
		})
	}
	t.Run("ServiceAccount cannot be read", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		args := []string{"--kubeconfig", apiServer(t), "--service-account=example-driver/secret", "--driver=d"}
		if lacks, err := runArgs(t, args, &stdout, &stderr); err != nil || !lacks {
			t.Errorf("want the report all the same, got %v, %v", lacks, err)
		}
	})
}
