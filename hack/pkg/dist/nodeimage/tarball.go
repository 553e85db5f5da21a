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

package nodeimage

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// versionFile is where the tarball says what it is.
const versionFile = "kubernetes/version"

// wanted are the files that kind takes out of the tarball.
var wanted = []string{
	versionFile,
	"kubernetes/server/bin/kubeadm",
	"kubernetes/server/bin/kubectl",
	"kubernetes/server/bin/kubelet",
	"kubernetes/server/bin/kube-apiserver.tar",
	"kubernetes/server/bin/kube-controller-manager.tar",
	"kubernetes/server/bin/kube-proxy.tar",
	"kubernetes/server/bin/kube-scheduler.tar",
}

// checkTarball finds out whether the tarball has what kind wants, in the version
// that is wanted. A tarball of another version would become an image with the
// wrong name.
func (o Options) checkTarball() error {
	version, missing, err := inspect(o.Tarball)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("there is no %s", o.Tarball)
	case err != nil:
		err = fmt.Errorf("%s: %w", o.Tarball, err)
	case len(missing) > 0:
		err = fmt.Errorf("%s does not contain %s", o.Tarball, strings.Join(missing, ", "))
	case version != o.Version:
		err = fmt.Errorf("%s has version %q, and this is %s", o.Tarball, version, o.Version)
	default:
		return nil
	}
	return fmt.Errorf("%w: build it with make release RELEASE=%s", err, o.Release)
}

// inspect returns the version of a tarball, and which of the wanted files are
// missing.
func inspect(name string) (version string, missing []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return "", nil, err
	}
	missing = slices.Clone(wanted)
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return version, missing, nil
		} else if err != nil {
			return "", nil, err
		}
		// Kind does not follow links.
		if header.Typeflag != tar.TypeReg {
			continue
		}
		name := path.Clean(header.Name)
		missing = slices.DeleteFunc(missing, func(w string) bool { return w == name })
		if name == versionFile {
			content, err := io.ReadAll(io.LimitReader(r, 1<<10))
			if err != nil {
				return "", nil, err
			}
			version = strings.TrimSpace(string(content))
		}
	}
}
