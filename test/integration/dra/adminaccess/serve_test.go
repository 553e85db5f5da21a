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

package adminaccess

import (
	"encoding/json"
	"io"
	"os"
	"testing"
)

// serveVariable is the name of a file. If it is set, TestServe starts an API server for
// somebody else, and writes into the file how to reach it.
const serveVariable = "ADMINACCESS_SERVE"

// TestServe is for the benchmark: two such servers, with and without our changes, are compared by one
// client which talks to them in turn. It ends with its standard input.
func TestServe(t *testing.T) {
	name := os.Getenv(serveVariable)
	if name == "" {
		t.Skipf("%s is not set", serveVariable)
	}
	s := startServer(t, withoutAudit)
	data, err := json.Marshal(map[string]any{
		"host":    s.admin.Host,
		"token":   s.admin.BearerToken,
		"version": s.versions[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	// Whoever waits for it must not see half of it.
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
