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

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/kubectl-dra/pkg/cases"
	"kubernetes-dra/cmd/kubectl-dra/pkg/fakeapi"
)

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	basic := []string{"--driver=driver", "--device-class=class", "--kubeconfig=" + filepath.Join(dir, "missing")}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":       {want: "--driver and --device-class are needed"},
		"output":        {args: []string{"--output=xml"}, want: `--output "xml": use table, json or yaml`},
		"check":         {args: []string{"--only=pod,nope"}, want: "there is no check nope"},
		"skip":          {args: []string{"--skip=nope"}, want: "there is no check nope"},
		"pods":          {args: append(basic, "--pods=1"), want: "at least 2"},
		"patience":      {args: append(basic, "--patience=0s"), want: "use a time like 2m"},
		"selector":      {args: append(basic, "--driver-selector=app=x"), want: "use something like"},
		"labels":        {args: append(basic, "--driver-selector=ns/a=b=c"), want: "--driver-selector"},
		"account":       {args: append(basic, "--service-account=ns/"), want: "use something like"},
		"no template":   {args: append(basic, "--pod-template="+filepath.Join(dir, "nope")), want: "no such file"},
		"no pod":        {args: append(basic, "--pod-template="+write("typo", "spec: {container: []}")), want: "it is not a pod"},
		"no containers": {args: append(basic, "--pod-template="+write("empty", "spec: {}")), want: "no container"},
		"no cluster":    {args: append(basic, "--pod-template="+write("good", "spec: {containers: [{name: main, image: busybox}]}")), want: "missing"},
		"argument":      {args: append(basic, "x"), want: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			command := New(genericiooptions.IOStreams{Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}})
			command.SetArgs(test.args)
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
			if ExitCode(err) != 2 {
				t.Errorf("want exit code 2, got %d", ExitCode(err))
			}
		})
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	command := New(genericiooptions.IOStreams{Out: &out, ErrOut: &bytes.Buffer{}})
	command.SetArgs([]string{"--list", "--only=workload,pod,slices", "--skip=slices"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "pod ") || !strings.HasPrefix(lines[1], "workload ") {
		t.Errorf("got %q", lines)
	}
}

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: fmt.Errorf("here: %w", errFailed), 2: errors.New("no cluster")} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: want %d, got %d", err, want, got)
		}
	}
}

// TestInterrupted has the user stop while the API server stores a taint of all devices. Nobody may remove the taint, so the
// user has to hear of it. It is tried when the taint is there, and not before.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := fakeapi.New(t, "v1")
	object := func(apiVersion, kind, name string, fields map[string]any) cases.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		o.SetName(name)
		for key, value := range fields {
			o.Object[key] = value
		}
		return cases.Object{Unstructured: o}
	}
	server.Add(t,
		object("v1", "Namespace", "mine", nil),
		object("v1", "Node", "node", map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}),
		object("resource.k8s.io/v1", "DeviceClass", "class", nil),
		object("resource.k8s.io/v1", "ResourceSlice", "slice", map[string]any{"spec": map[string]any{
			"driver": "driver", "nodeName": "node", "pool": map[string]any{"name": "node", "generation": int64(1), "resourceSliceCount": int64(1)},
			"devices": []any{map[string]any{"name": "device"}},
		}}),
	)
	var stored, tried atomic.Bool
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		isRule := strings.HasSuffix(r.URL.Path, "/devicetaintrules")
		switch {
		case r.Method == http.MethodPost && isRule:
			cancel()
			time.Sleep(200 * time.Millisecond)
			stored.Store(true)
			fakeapi.Respond(w, object("resource.k8s.io/v1", "DeviceTaintRule", "rule", nil).Object)
		case r.Method == http.MethodDelete && isRule:
			tried.Store(true)
			if !stored.Load() {
				t.Error("the taint was to be removed before it was there")
			}
			fakeapi.Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "devicetaintrules is forbidden")
		case r.Method == http.MethodDelete:
			fakeapi.Respond(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
		default:
			return false
		}
		return true
	}
	command := New(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	command.SetArgs([]string{"--kubeconfig=" + os.DevNull, "--cache-dir=" + t.TempDir(), "--server=" + server.URL, "--namespace=mine",
		"--driver=driver", "--device-class=class", "--only=taint"})
	err := command.ExecuteContext(ctx)
	for _, want := range []string{"clean up after check taint: delete DeviceTaintRules with the label dra-driver-check/run=", "interrupted after 0 of 1 checks"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if ExitCode(err) != 2 || !tried.Load() {
		t.Errorf("exit code %d, tried to remove the taint: %t", ExitCode(err), tried.Load())
	}
}
