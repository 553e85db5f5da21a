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

package e2edra

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/test/testrun"
)

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestDownloads asks as upstream's tests do, with the address that they have.
func TestDownloads(t *testing.T) {
	dir := t.TempDir()
	if err := writeStable(dir, "1.36", "v1.36.4"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	certFile := filepath.Join(t.TempDir(), "downloads.crt")
	if err := serveDownloads(l, dir, certFile); err != nil {
		t.Fatal(err)
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "dl.k8s.io:443" {
				t.Errorf("asked %s", address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		},
	}}
	for url, want := range map[string]struct {
		status int
		body   string
	}{
		"https://dl.k8s.io/release/stable-1.36.txt": {http.StatusOK, "v1.36.4"},
		// Upstream asks for the latest version then.
		"https://dl.k8s.io/release/stable-1.37.txt": {http.StatusNotFound, "404 page not found\n"},
	} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want.status || string(body) != want.body {
			t.Errorf("%s: %d %q %v, want %v", url, resp.StatusCode, body, err, want)
		}
	}
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, filepath.FromSlash(imageManifest))
	write(t, file, "\tconfigs[Agnhost] = Config{list.PromoterE2eRegistry, \"agnhost\", \"2.66\"}\n"+
		"\tconfigs[BusyBox] = Config{list.PromoterE2eRegistry, \"busybox\", \"1.37.0-2\"}\n", 0o644)
	write(t, filepath.Join(dir, "test/e2e/testing-manifests/storage-csi/plugin.yaml"), "- image: registry.k8s.io/sig-storage/hostpathplugin:v1.17.0\n", 0o644)
	images, err := Images(dir)
	want := []string{"registry.k8s.io/e2e-test-images/busybox:1.37.0-2", "registry.k8s.io/sig-storage/hostpathplugin:v1.17.0"}
	if err != nil || len(images) != 1 || !slices.Equal(images[0].Names, want) {
		t.Errorf("%+v, %v", images, err)
	}
	write(t, file, "package image\n", 0o644)
	if _, err := Images(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no busybox: %v", err)
	}
}

// TestPrograms runs programs that print their arguments.
func TestPrograms(t *testing.T) {
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "programs")
	names := append(slices.Clone(gated), "kube-proxy", "kubectl")
	for _, name := range names {
		write(t, filepath.Join(bin, name), "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\"\n", 0o755)
	}
	run := func(dir, name string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(dir, name), "--a=b c", "--feature-gates=X=false").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if err := (Programs{Bin: bin, Gates: map[string]bool{"B": false, "A": true}}).writeTo(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		want := name + "\n--a=b c\n--feature-gates=X=false"
		if slices.Contains(gated, name) {
			want += "\n--feature-gates=A=true,B=false"
		}
		if got := run(dir, name); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	plain := filepath.Join(t.TempDir(), "programs")
	if err := (Programs{Bin: bin}).writeTo(plain); err != nil {
		t.Fatal(err)
	}
	if got := run(plain, "kubelet"); strings.Contains(got, "A=true") {
		t.Errorf("gates that nobody asked for: %q", got)
	}
	if err := os.Remove(filepath.Join(bin, "kubelet")); err != nil {
		t.Fatal(err)
	}
	if err := (Programs{Bin: bin}).writeTo(t.TempDir()); err == nil || !strings.Contains(err.Error(), "kubelet is not built") {
		t.Errorf("a program is missing: %v", err)
	}
}

// TestPrepare looks for what upstream's tests expect.
func TestPrepare(t *testing.T) {
	bin := t.TempDir()
	for _, name := range append(slices.Clone(gated), "kube-proxy", "kubectl") {
		write(t, filepath.Join(bin, name), "", 0o755)
	}
	r := &Run{
		Current: Programs{Bin: bin}, Previous: Programs{Bin: bin}, PreviousRelease: "1.36", PreviousVersion: "v1.36.4",
		Dir: filepath.Join(t.TempDir(), "run"), LogDir: filepath.Join(t.TempDir(), "logs"),
	}
	// Again is no error.
	for range 2 {
		if err := r.prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"current/kubectl", "previous/v1.36.4/kube-apiserver", "served/release/stable-1.36.txt"} {
		if _, err := os.Stat(r.path(name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(r.path(shimDir, "sudo")); err != nil {
		t.Error(err)
	}
}

func TestSpecs(t *testing.T) {
	got := specs([]testrun.Test{
		{Name: "TestA", Status: "fail", Output: []string{"=== RUN   TestA", "    a_test.go:1: it broke", "--- FAIL: TestA (0.00s)"}},
		{Name: "TestA/b", Status: "skip", Output: []string{"    a_test.go:2: not here ", "    --- SKIP: TestA/b (0.00s)"}},
		{Name: "TestA/c", Status: "pass"},
		{Name: "TestA/d"},
		{Name: "TestB", Status: "fail", Output: []string{"=== RUN   TestB"}},
	})
	want := []e2e.SpecResult{
		{Spec: e2e.Spec{Name: "TestA"}, Outcome: e2e.Failed, Reason: "a_test.go:1: it broke"},
		{Spec: e2e.Spec{Name: "TestA/b"}, Outcome: e2e.Skipped, Reason: "a_test.go:2: not here"},
		{Spec: e2e.Spec{Name: "TestA/c"}, Outcome: e2e.Passed},
		{Spec: e2e.Spec{Name: "TestA/d"}, Outcome: e2e.Failed, Reason: "it did not end"},
		{Spec: e2e.Spec{Name: "TestB"}, Outcome: e2e.Failed, Reason: "it does not say why"},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i].Name != want[i].Name || got[i].Outcome != want[i].Outcome || got[i].Reason != want[i].Reason {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// TestOnly compares with a run that has more test functions.
func TestOnly(t *testing.T) {
	spec := func(name string, outcome e2e.Outcome) e2e.SpecResult {
		return e2e.SpecResult{Spec: e2e.Spec{Name: name}, Outcome: outcome}
	}
	all := &e2e.Result{Name: "unpatched", Specs: []e2e.SpecResult{
		spec("TestA", e2e.Passed), spec("TestA/b", e2e.Passed), spec("TestC", e2e.Passed), spec("TestC/d", e2e.Passed),
	}}
	one := &e2e.Result{Specs: []e2e.SpecResult{spec("TestA", e2e.Failed)}}
	only := Only(all, one)
	if only.Name != all.Name || len(only.Specs) != 2 || len(all.Specs) != 4 {
		t.Errorf("%+v", only)
	}
	if d := e2e.Compare(one, only); !slices.Equal(d.Worse, []string{"TestA"}) || len(d.Other) != 1 || !strings.HasPrefix(d.Other[0], "TestA/b") {
		t.Errorf("%+v", d)
	}
}
