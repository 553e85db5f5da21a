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

package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The proxy has no lists, and one number is missing.
func TestNewer(t *testing.T) {
	proxy := t.TempDir()
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(proxy))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw")
	versions := filepath.Join(proxy, "k8s.io/kubernetes/@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1.37.3", "v1.37.5", "v1.36.9"} {
		for end, content := range map[string]string{".info": `{"Version": "` + version + `"}`, ".mod": "module k8s.io/kubernetes\n"} {
			if err := os.WriteFile(filepath.Join(versions, version+end), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for version, want := range map[string]string{"v1.37.2": "v1.37.5", "v1.37.5": "", "v1.36.5": "", "v1.36.7": "v1.36.9"} {
		if got, err := Newer(t.Context(), t.TempDir(), version); err != nil || got != want {
			t.Errorf("after %s: got %q, %v, want %q", version, got, err, want)
		}
	}
	if _, err := Newer(t.Context(), t.TempDir(), "v1.37.x"); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Errorf("got %v", err)
	}
	t.Setenv("GOPROXY", "off")
	if _, err := Newer(t.Context(), t.TempDir(), "v1.35.2"); err == nil || !strings.Contains(err.Error(), "is there a Kubernetes v1.35.3?") {
		t.Errorf("a proxy that does not answer has no newer release: %v", err)
	}
}
