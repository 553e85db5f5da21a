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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goCommand runs the go command in a folder, and returns all that it prints.
func goCommand(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS="), env...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// TestVet vets a package which is wrong in two ways. One of them only facts about what it
// imports can tell.
func TestVet(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":       "module example.com/m\n\ngo 1.24\n",
		"log/log.go":   "package log\n\nimport \"fmt\"\n\nfunc Infof(format string, args ...any) { fmt.Printf(format, args...) }\n",
		"main/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/m/log\"\n)\n\nfunc main() {\n\tfmt.Printf(\"%d\\n\", \"direct\")\n\tlog.Infof(\"%d\\n\", \"wrapped\")\n}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tool := filepath.Join(dir, "vettool")
	if output, err := goCommand(t, ".", nil, "build", "-o", tool, "."); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	path, err := goCommand(t, dir, nil, "tool", "-n", "vet")
	if err != nil {
		t.Fatalf("%v\n%s", err, path)
	}
	env := []string{vetVariable + "=" + strings.TrimSpace(path)}

	for _, tt := range []struct {
		name            string
		args            []string
		env             []string
		direct, wrapped bool
	}{
		{name: "upstream", args: []string{"vet", "./main"}, direct: true, wrapped: true},
		{name: "vettool", args: []string{"vet", "-vettool=" + tool, "./main"}, env: env, direct: true},
		// The results of one are not those of the other.
		{name: "upstream again", args: []string{"vet", "./main"}, direct: true, wrapped: true},
	} {
		output, err := goCommand(t, dir, tt.env, tt.args...)
		if err == nil {
			t.Errorf("%s: no findings", tt.name)
		}
		if strings.Contains(output, "main.go:10") != tt.direct || strings.Contains(output, "main.go:11") != tt.wrapped {
			t.Errorf("%s: %s", tt.name, output)
		}
	}

	output, err := exec.Command(tool, "-flags").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "go tool -n vet") {
		t.Errorf("without %s: %v, %s", vetVariable, err, output)
	}
}
