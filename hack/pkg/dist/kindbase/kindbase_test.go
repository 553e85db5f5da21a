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

package kindbase

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, file, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAdded(t *testing.T) {
	dir := t.TempDir()
	o := Options{Files: filepath.Join(dir, "files"), Tools: filepath.Join(dir, "tools"), Images: map[string]string{
		"etcd": write(t, filepath.Join(dir, "etcd.tar"), "archive of etcd", 0o600),
	}}
	write(t, filepath.Join(o.Files, "usr/local/bin/entrypoint"), "#!/bin/sh", 0o444)
	write(t, filepath.Join(o.Files, "kind/bin/hook.sh"), "#!/bin/sh", 0o444)
	write(t, filepath.Join(o.Files, "etc/crictl.yaml"), "x: y", 0o444)
	for _, name := range []string{"runc", "containerd", "containerd-shim-runc-v2", "host-local", "loopback", "portmap", "ptp"} {
		write(t, filepath.Join(o.Tools, name), name, 0o755)
	}
	write(t, filepath.Join(o.Tools, "ctr"), "#!/bin/sh\necho '{\"ociVersion\": \"1.2.0\", \"process\": {\"cwd\": \"/\", \"rlimits\": [{}]}}'\n", 0o755)
	root := filepath.Join(dir, "added")
	if err := o.add(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for name, mode := range map[string]os.FileMode{
		"./usr/local/bin/entrypoint":  0o755,
		"./kind/bin/hook.sh":          0o755,
		"./etc/crictl.yaml":           0o644,
		"./usr/local/bin/ctr":         0o755,
		"./usr/local/sbin/ctr":        0o755,
		"./usr/local/sbin/runc":       0o755,
		"./opt/cni/bin/ptp":           0o755,
		"./kind/images/etcd.tar":      0o644,
		"./etc/kubernetes/manifests/": 0o755,
	} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: want mode %o, got %v, %v", name, mode, info, err)
		}
	}
	if got := read("kind/images/etcd.tar"); got != "archive of etcd" {
		t.Errorf("the image is %q", got)
	}
	var spec struct {
		Process map[string]any
		Hooks   map[string][]struct{ Path string }
	}
	if err := json.Unmarshal([]byte(read("etc/containerd/cri-base.json")), &spec); err != nil {
		t.Fatal(err)
	}
	if _, found := spec.Process["rlimits"]; found || spec.Process["cwd"] != "/" {
		t.Errorf("want containerd's process without limits, got %v", spec.Process)
	}
	if hooks := spec.Hooks["createContainer"]; len(hooks) != 1 || hooks[0].Path != "/kind/bin/mount-product-files.sh" {
		t.Errorf("want kind's hook, got %v", spec.Hooks)
	}
}

// The ctr of the image takes what kind wants to fetch from archives, and leaves all else to the real one.
func TestCtr(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "images", "etcd.tar"), "", 0o644)
	ran := filepath.Join(dir, "ran")
	real := write(t, filepath.Join(dir, "ctr"), "#!/bin/sh\necho \"$*\" >>"+ran+"\n", 0o755)
	script := write(t, filepath.Join(dir, "script"),
		strings.NewReplacer(imagesDir, filepath.Join(dir, "images"), "/usr/local/bin/ctr", real).Replace(ctr), 0o755)
	for _, test := range []struct {
		name, args, want string
		fails            bool
	}{
		{
			name: "an image", args: "--namespace=k8s.io content fetch --platform=linux/amd64 registry.k8s.io/etcd:3.6.6-0",
			want: "--namespace=k8s.io images import --no-unpack " + dir + "/images/etcd.tar\n" +
				"--namespace=k8s.io images tag --force kubernetes-dra.invalid/etcd:1 registry.k8s.io/etcd:3.6.6-0\n",
		},
		{name: "another image", args: "--namespace=k8s.io content fetch docker.io/other:1", fails: true},
		{name: "something else", args: "--namespace=k8s.io images list", want: "--namespace=k8s.io images list\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := os.RemoveAll(ran); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), script, strings.Fields(test.args)...).CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("%v: %s", err, out)
			}
			got, _ := os.ReadFile(ran)
			if string(got) != test.want {
				t.Errorf("want:\n%s\ngot:\n%s", test.want, got)
			}
		})
	}
}
