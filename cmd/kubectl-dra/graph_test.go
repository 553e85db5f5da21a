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
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestGraph(t *testing.T) {
	server := newServer(t, "v1", nil)
	admin := result("a", "gpu-0")
	admin["adminAccess"] = true
	pod := func(name, claim string) map[string]any {
		return object("v1", "Pod", name, map[string]any{
			"metadata": map[string]any{"uid": name, "ownerReferences": []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": `evil"]; x`, "uid": "u", "controller": true}}},
			"spec":     map[string]any{"resourceClaims": []any{map[string]any{"name": "gpu", "resourceClaimName": claim}}},
		})
	}
	add(t, server,
		slice("a", map[string]any{"nodeName": "node-a", "devices": []any{device("gpu-0"), device("gpu-1")}}),
		holder("train", []any{consumer("batch", "jobs", "train")}, result("a", "gpu-0")),
		holder("monitor", []any{consumer("", "pods", "monitor")}, admin),
		holder("other", []any{consumer("", "pods", "other")}, result("a", "gpu-1")),
		pod("train-0", "train"), pod("monitor", "monitor"), pod("other", "other"),
	)
	for _, tc := range []struct {
		about       string
		has, hasNot []string
	}{
		{"pod/train-0", []string{"train-0", "test/train", "a/gpu-0", "node-a", "admin access", "reserved for", `evil\"]; x`}, []string{"gpu-1"}},
		{"claim/monitor", []string{"test/monitor", "test/train", "train-0"}, []string{"gpu-1"}},
		{"node/node-a", []string{"gpu-0", "gpu-1", "test/other"}, nil},
	} {
		out := mustDRA(t, server, "graph", tc.about)
		for _, text := range tc.has {
			if !strings.Contains(out, text) {
				t.Errorf("%s: no %q in\n%s", tc.about, text, out)
			}
		}
		for _, text := range tc.hasNot {
			if strings.Contains(out, text) {
				t.Errorf("%s: %q in\n%s", tc.about, text, out)
			}
		}
		statement := regexp.MustCompile(`^  (rankdir=LR;|node \[.*\];|n\d+( -> n\d+)? \[(shape=\w+, )?label="([^"\\]|\\.)*"(, style=\w+)?\];)$`)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines[1 : len(lines)-1] {
			if !statement.MatchString(line) {
				t.Errorf("%s: that is no DOT: %s", tc.about, line)
			}
		}
	}
	for _, about := range []string{"train-0", "pod/none", "claim/none", "node/none", "job/x"} {
		if _, _, err := dra(t, server, "graph", about); err == nil {
			t.Errorf("%s: want an error", about)
		}
	}
}

// TestGraphPicture lets Graphviz draw, and a program that only looks like it.
func TestGraphPicture(t *testing.T) {
	server := newServer(t, "v1", nil)
	add(t, server, slice("a", map[string]any{"nodeName": "node-<script>&", "devices": []any{device("gpu-0")}}), holder("train", nil, result("a", "gpu-0")))
	if _, err := exec.LookPath("dot"); err == nil {
		out := mustDRA(t, server, "graph", "claim/train", "-o", "svg")
		decoder := xml.NewDecoder(strings.NewReader(out))
		var text strings.Builder
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("that is no SVG: %v\n%s", err, out)
			}
			if data, ok := token.(xml.CharData); ok {
				text.Write(data)
			}
		}
		if !strings.Contains(text.String(), "test/train") || !strings.Contains(text.String(), "node-<script>&") || strings.Contains(out, "<script>") {
			t.Error(out)
		}
	}

	path := t.TempDir()
	t.Setenv("PATH", path)
	if _, _, err := dra(t, server, "graph", "claim/train", "-o", "svg"); err == nil || !strings.Contains(err.Error(), "package graphviz") {
		t.Errorf("want to be told what to install, got %v", err)
	}
	if err := os.WriteFile(filepath.Join(path, "dot"), []byte("#!/bin/sh\necho $1\n/bin/cat\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, _, err := dra(t, server, "graph", "claim/train", "-o", "svg"); err == nil || !strings.HasPrefix(out, "-Tsvg\ndigraph dra {\n") {
		t.Errorf("want an error, and what was sent to dot, got %v and\n%s", err, out)
	}
	if _, _, err := dra(t, server, "graph", "claim/train", "-o", "png"); err == nil || !strings.Contains(err.Error(), "use dot or svg") {
		t.Errorf("want to be told the formats, got %v", err)
	}
}

// TestHelp checks that help reads like that of kubectl, and that no verb writes without saying so.
func TestHelp(t *testing.T) {
	server := newServer(t, "v1", nil)
	out := mustDRA(t, server, "-h")
	for _, text := range []string{"kubectl dra [command]", "why ", "who ", "doctor ", "graph ", "downgrade ", "completion ", "--context", "--namespace"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in:\n%s", text, out)
		}
	}
	if out := mustDRA(t, server, "why", "--help"); !strings.Contains(out, "kubectl dra why train-0") || !strings.Contains(out, "--output") {
		t.Error(out)
	}
	add(t, server, holder("train", nil, result("a", "gpu-0")))
	var completion bytes.Buffer
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &completion, ErrOut: io.Discard})
	command.SetArgs([]string{"__complete", "--server=" + server.URL, "--namespace=test", "why", "claim/"})
	if err := command.ExecuteContext(t.Context()); err != nil || !strings.Contains(completion.String(), "claim/train\n:4\n") {
		t.Errorf("completion: %v, %s", err, completion.String())
	}
	for _, args := range [][]string{{"why", "-o", "nothing"}, {"who", "-o", "nothing"}, {"doctor", "--fail-on=x"}, {"why", "-l", "a=b=c"}, {"who", "a", "b"}, {"why", "x/y"}, {"why", "none"}} {
		if _, _, err := dra(t, server, args...); err == nil {
			t.Errorf("%q: want an error", args)
		}
	}
}
