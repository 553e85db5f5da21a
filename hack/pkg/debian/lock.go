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

// Package debian makes the base of a container image out of Debian packages,
// without a container engine and without dpkg. Which packages is in a lock
// file, with their checksums, so that the base is always the same.
package debian

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// ProxyLock is the lock file of kube-proxy's image, in the repository.
const ProxyLock = "hack/images/kube-proxy.lock"

// stampFormat is how snapshot.debian.org writes a time.
const stampFormat = "20060102T150405Z"

// Lock is the content of a lock file. Packages and Snapshot are written by
// [Lock.Pin], the rest by people.
type Lock struct {
	// Suite is the release of Debian, for example trixie.
	Suite string `json:"suite,omitempty"`
	// Snapshot is a time at which the archive had all the packages. The
	// snapshot of it keeps them forever.
	Snapshot string `json:"snapshot,omitempty"`
	// Roots are the packages that are wanted for themselves. Of all others
	// there is what they need.
	Roots []Choice `json:"roots,omitempty"`
	// Omit are packages that others depend on, and that are left out.
	Omit []Choice `json:"omit,omitempty"`
	// Links are the symbolic links that the installation of the packages
	// would make: dpkg's scripts do not run here.
	Links []Link `json:"links,omitempty"`
	// Packages has them by architecture, sorted by name.
	Packages map[string][]Package `json:"packages,omitempty"`
}

// Choice is the name of a package, and why it is in a list.
type Choice struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Link is a symbolic link at an absolute path. Its target is relative to its
// folder, or absolute.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Package is a file of the archive.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Architecture is "all" if it is the same for all of them.
	Architecture string `json:"architecture"`
	// Path is where it is in the archive.
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// The packages of an architecture, as Debian and Go call it, have their
// libraries in a folder of its own.
var libraryFolders = map[string]string{
	"amd64": "usr/lib/x86_64-linux-gnu",
	"arm64": "usr/lib/aarch64-linux-gnu",
}

// Architectures are those that a lock file has packages for.
var Architectures = []string{"amd64", "arm64"}

// Load reads a lock file.
func Load(name string) (*Lock, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	l := &Lock{}
	if err := yaml.UnmarshalStrict(content, l); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

const (
	head = `# The Debian packages in kube-proxy's image.

`
	pinned = `
# Written by "make pin-proxy".
`
)

// Write writes a lock file.
func (l *Lock) Write(name string) error {
	byHand, byPin := *l, Lock{Snapshot: l.Snapshot, Packages: l.Packages}
	byHand.Snapshot, byHand.Packages = "", nil
	content := []byte(head)
	for i, part := range []Lock{byHand, byPin} {
		if i > 0 {
			content = append(content, pinned...)
		}
		out, err := yaml.Marshal(part)
		if err != nil {
			return err
		}
		content = append(content, out...)
	}
	fresh := name + ".new"
	if err := os.WriteFile(fresh, content, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

var (
	suiteName   = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	sha256Sum   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// check looks at what comes from people, and at what becomes part of a URL or
// of a path.
func (l *Lock) check() error {
	if !suiteName.MatchString(l.Suite) {
		return fmt.Errorf("suite %q is not the name of a suite", l.Suite)
	}
	if len(l.Roots) == 0 {
		return errors.New("there are no roots")
	}
	for _, c := range slices.Concat(l.Roots, l.Omit) {
		if !packageName.MatchString(c.Name) || c.Reason == "" {
			return fmt.Errorf("%q among the roots or what is omitted: it must be the name of a package, with a reason", c.Name)
		}
	}
	for _, link := range l.Links {
		if link.Path == "/" || filepath.Clean(link.Path) != link.Path || !filepath.IsAbs(link.Path) || link.Target == "" {
			return fmt.Errorf("link %q: its path must be absolute and clean, and it must have a target", link.Path)
		}
	}
	if len(l.Packages) == 0 {
		return nil
	}
	if _, err := time.Parse(stampFormat, l.Snapshot); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	for arch, packages := range l.Packages {
		for _, p := range packages {
			if err := p.check(arch); err != nil {
				return fmt.Errorf("package %q for %s: %w", p.Name, arch, err)
			}
		}
	}
	return nil
}

func (p Package) check(arch string) error {
	switch {
	case !packageName.MatchString(p.Name):
		return errors.New("that is not the name of a package")
	case p.Architecture != arch && p.Architecture != "all":
		return fmt.Errorf("it is for %q", p.Architecture)
	case !strings.HasPrefix(p.Path, "pool/") || filepath.Clean(p.Path) != p.Path:
		return fmt.Errorf("the path %q is not in the pool", p.Path)
	case p.Size <= 0:
		return fmt.Errorf("the size is %d", p.Size)
	case !sha256Sum.MatchString(p.SHA256):
		return fmt.Errorf("%q is not a SHA-256 sum", p.SHA256)
	}
	return nil
}

// SnapshotURL is where a package can always be had.
func (l *Lock) SnapshotURL(p Package) string {
	return snapshotURL(Snapshot, l.Snapshot, p.Path)
}

// PURL is the name of a package for those who look for vulnerabilities.
func (l *Lock) PURL(p Package) string {
	// A colon is to be left as it is.
	version := strings.ReplaceAll(url.QueryEscape(p.Version), "%3A", ":")
	return fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", url.QueryEscape(p.Name), version, p.Architecture, l.Suite)
}

func (l *Lock) isRoot(name string) bool {
	return slices.ContainsFunc(l.Roots, func(c Choice) bool { return c.Name == name })
}
