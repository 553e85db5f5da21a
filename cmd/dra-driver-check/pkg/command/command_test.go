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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
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
