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

// Package kindbase makes the image below a node image of kind on a machine without
// registries: out of Debian packages, the files that kind's own base image has, and the
// container runtime and CNI plugins of hack/tools.
//
// Kind fetches images from registries while it builds a node image. This base image has
// archives of them, and a ctr that takes those.
package kindbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/dist/debian"
	"kubernetes-dra/hack/pkg/sys"
)

// suite is the release of Debian. Its systemd starts with version 1 of control groups, too.
const suite = "bookworm"

// packages are what a node, its container runtime and kind execute.
var packages = []string{
	"bash", "ca-certificates", "conntrack", "e2fsprogs", "ethtool", "iproute2", "iptables", "jq", "kmod", "libseccomp2",
	"mount", "nftables", "pigz", "procps", "systemd", "systemd-sysv", "util-linux",
}

// finish is executed in the root of the image. Only what kind needs starts with a node.
const finish = `set -e
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* /lib/systemd/system/local-fs.target.wants/* \
  /lib/systemd/system/basic.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
  /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
echo ReadKMsg=no >>/etc/systemd/journald.conf
`

// imagesDir is where the image has archives of others, localPrefix what they are called there.
const (
	imagesDir   = "/kind/images"
	localPrefix = "kubernetes-dra.invalid/"
)

// ctr stands before the real one in PATH. Only kind asks it to fetch something.
const ctr = `#!/bin/sh
# Takes images from ` + imagesDir + ` that kind would fetch from a registry.
case "$*" in
*" content fetch "*) ;;
*) exec /usr/local/bin/ctr "$@" ;;
esac
for wanted; do :; done
name=${wanted##*/} name=${name%%:*}
if ! [ -f "` + imagesDir + `/${name}.tar" ]; then
  echo "this base image has no ${name}, and takes nothing from registries" >&2
  exit 1
fi
/usr/local/bin/ctr --namespace=k8s.io images import --no-unpack "` + imagesDir + `/${name}.tar"
exec /usr/local/bin/ctr --namespace=k8s.io images tag --force "` + localPrefix + `${name}:1" "${wanted}"
`

// Name is what the archive of an image has to call it, if its name without registry and tag is this one.
func Name(image string) string { return localPrefix + image + ":1" }

// Docker has the settings of the image that an archive of its files cannot have, for docker import.
var Docker = []string{
	"ENV container=docker",
	`ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`,
}

// Options say what the image is made of.
type Options struct {
	// Files is the folder of kind's own base image in its module: images/base/files.
	Files string
	// Tools is the folder with the programs of hack/tools.
	Tools string
	// Images are archives of those that kind fetches, by their name without registry and tag. In the
	// archive they have the name that [Name] returns.
	Images map[string]string
	// Mirror is the address of Debian's archive. This machine's apt knows one.
	Mirror string
}

// Write writes the files of the image, as an archive for docker import. It needs root and mmdebstrap.
func (o Options) Write(ctx context.Context, archive string) error {
	apt := debian.Apt{Mirror: o.Mirror}
	if err := apt.FindMirror(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	added, script := filepath.Join(dir, "added"), filepath.Join(dir, "finish.sh")
	if err := errors.Join(o.add(ctx, added), os.WriteFile(script, []byte(finish), 0o644)); err != nil {
		return err
	}
	cmd := sys.Command(ctx, "", nil, "mmdebstrap", "--mode=root", "--variant=minbase", "--include="+strings.Join(packages, ","),
		"--customize-hook=tar --create --directory="+added+` --owner=0 --group=0 . | tar --extract --directory="$1" --no-overwrite-dir --keep-directory-symlink`,
		`--customize-hook=chroot "$1" sh -s <`+script, suite, archive, apt.Mirror)
	if err := sys.Run(ctx, cmd); err != nil {
		return fmt.Errorf("packages of Debian %s: %w", suite, err)
	}
	return nil
}

// add writes what is added to Debian into a folder.
func (o Options) add(ctx context.Context, root string) error {
	spec, err := o.containerSpec(ctx)
	if err != nil {
		return err
	}
	if err := os.CopyFS(root, os.DirFS(o.Files)); err != nil {
		return fmt.Errorf("the files of kind's base image: %w", err)
	}
	copies := map[string]string{"usr/local/sbin/runc": filepath.Join(o.Tools, "runc")}
	for dir, names := range map[string][]string{
		"usr/local/bin": {"containerd", "containerd-shim-runc-v2", "ctr"},
		"opt/cni/bin":   {"host-local", "loopback", "portmap", "ptp"},
	} {
		for _, name := range names {
			copies[path.Join(dir, name)] = filepath.Join(o.Tools, name)
		}
	}
	for name, archive := range o.Images {
		copies[path.Join(imagesDir, name+".tar")] = archive
	}
	for name, file := range copies {
		content, err := os.ReadFile(file)
		if err := errors.Join(err, sys.WriteFile(filepath.Join(root, name), content, 0o644)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "etc/kubernetes/manifests"), 0o755),
		sys.WriteFile(filepath.Join(root, "etc/containerd/cri-base.json"), spec, 0o644),
		sys.WriteFile(filepath.Join(root, "usr/local/sbin/ctr"), []byte(ctr), 0o755)); err != nil {
		return err
	}
	// The Go module proxy keeps no modes, and the umask does not count.
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		switch name := strings.TrimPrefix(file, root); {
		case d.IsDir(), strings.HasPrefix(name, "/usr/local/"), strings.HasPrefix(name, "/kind/bin/"), strings.HasPrefix(name, "/opt/cni/bin/"):
			mode = 0o755
		}
		return os.Chmod(file, mode)
	})
}

// containerSpec is what all containers of a node begin with: containerd's default, with kind's hook and
// without limits that the node, itself a container, may not raise.
func (o Options) containerSpec(ctx context.Context) ([]byte, error) {
	out, err := sys.Output(ctx, sys.Command(ctx, "", nil, filepath.Join(o.Tools, "ctr"), "oci", "spec"))
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(out), &spec); err != nil {
		return nil, fmt.Errorf("ctr oci spec: %w", err)
	}
	if process, ok := spec["process"].(map[string]any); ok {
		delete(process, "rlimits")
	}
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{"path": "/kind/bin/mount-product-files.sh"}}}
	return json.Marshal(spec)
}
