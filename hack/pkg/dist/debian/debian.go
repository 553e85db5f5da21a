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

// Package debian makes the base of a container image out of Debian packages.
// apt resolves and downloads them, dpkg-deb unpacks them, and neither needs root.
// A lock file has their checksums, so that the base is always the same.
package debian

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/sys"
)

// Keyring has the keys of Debian. It is in the package debian-archive-keyring.
const Keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Architectures are those that a lock file has packages for.
var Architectures = []string{"amd64", "arm64"}

// Lock is the content of a lock file. [Pin] writes Packages, people the rest.
type Lock struct {
	// Suite is the release of Debian, for example trixie.
	Suite string `json:"suite"`
	// Roots are the packages that are wanted for themselves, and why.
	Roots map[string]string `json:"roots"`
	// Exclude are patterns of paths that are left out.
	Exclude []string `json:"exclude"`
	// Links are what the scripts of the packages would make: paths and targets.
	Links map[string]string `json:"links"`
	// Packages has them by architecture, sorted by name.
	Packages map[string][]Package `json:"packages"`

	byHand []byte // is what people wrote, as it stands in the file.
}

// Package is a file of the archive. Its architecture may be "all".
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	Path         string `json:"path"`
	SHA256       string `json:"sha256"`
}

// Apt says how apt is used.
type Apt struct {
	Mirror  string // is the address of the archive. This machine's apt knows one.
	Keyring string // has the keys that sign the archive. [Pin] needs it.
	Cache   string // is the folder for packages, if they are to be kept.
}

// Load reads a lock file.
func Load(name string) (*Lock, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	byHand, _, _ := bytes.Cut(content, []byte(pinned))
	l := &Lock{byHand: byHand}
	if err := errors.Join(yaml.UnmarshalStrict(content, l), l.check()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

var (
	plainName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	download  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+ pool(/[a-z0-9][A-Za-z0-9.+~_-]*)+ [0-9a-f]{64}$`)
	// uri is a line of apt-get --print-uris. The file's name has the version.
	uri = regexp.MustCompile(`(?m)^'(\S+)' ([^_ ]+)_([^_ ]+)_([^_ ]+)\.deb \d+ SHA256:(\S+)$`)
)

// check looks at what becomes part of a command, of an address or of a path.
func (l *Lock) check() error {
	for _, name := range append(slices.Collect(maps.Keys(l.Roots)), l.Suite) {
		if !plainName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a suite or of a package", name)
		}
	}
	for arch, packages := range l.Packages {
		for _, p := range packages {
			if !download.MatchString(p.Name+" "+p.Path+" "+p.SHA256) || p.Architecture != arch && p.Architecture != "all" {
				return fmt.Errorf("package for %s: name, architecture, path or sum cannot be; \"make pin-images\" writes them: %+v", arch, p)
			}
		}
	}
	return nil
}

// pinned is the line of a lock file after which all is written by [Pin].
const pinned = "# Written by \"make pin-images\".\n"

// Pin writes the packages into a lock file: the roots of today, and what they
// depend on. apt checks the signature of the archive.
func Pin(ctx context.Context, file string, a Apt) (*Lock, error) {
	l, err := Load(file)
	if err != nil {
		return nil, err
	}
	if err := a.FindMirror(ctx); err != nil {
		return nil, err
	}
	l.Packages = map[string][]Package{}
	for _, arch := range Architectures {
		if l.Packages[arch], err = l.resolve(ctx, a, arch); err != nil {
			return nil, fmt.Errorf("%s for %s: %w", l.Suite, arch, err)
		}
	}
	packages, err := yaml.Marshal(map[string]any{"packages": l.Packages})
	if err := errors.Join(err, l.check()); err != nil {
		return nil, err
	}
	return l, sys.WriteFile(file, slices.Concat(l.byHand, []byte(pinned), packages), 0o644)
}

// FindMirror sets the mirror if there is none, to that of this machine's apt.
func (a *Apt) FindMirror(ctx context.Context) error {
	if a.Mirror == "" {
		out, err := run(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian", "Component: main")
		if err != nil {
			return err
		}
		a.Mirror, _, _ = strings.Cut(string(out), "\n")
	}
	if a.Mirror = strings.TrimRight(a.Mirror, "/"); a.Mirror == "" {
		return errors.New("apt of this machine knows no mirror of Debian: on Debian run apt-get update, elsewhere give one with MIRROR=")
	}
	return nil
}

// resolve asks apt what it would install on an empty system. Of the machine's
// configuration only that of downloads counts, such as a proxy.
func (l *Lock) resolve(ctx context.Context, a Apt, arch string) ([]Package, error) {
	acquire, err := run(ctx, "apt-config", "dump", "Acquire")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carry-apt-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chmod(dir, 0o755 /* apt gives up root */), os.MkdirAll(dir+"/lists/partial", 0o755), os.WriteFile(dir+"/status", nil, 0o644),
		os.WriteFile(dir+"/sources", fmt.Appendf(nil, "deb [signed-by=%s] %s %s main\n", a.Keyring, a.Mirror, l.Suite), 0o644),
		os.WriteFile(dir+"/conf", fmt.Appendf(nil, `%[1]s
Dir::Etc "/dev/null"; Dir::Etc::SourceList "%[2]s/sources"; Dir::State "%[2]s"; Dir::State::Status "%[2]s/status"; Dir::Cache "%[2]s";
APT { Architecture "%[3]s"; Architectures { "%[3]s"; }; Install-Recommends "false"; Update::Error-Mode "any"; };
Acquire::ForceHash "SHA256";
`, acquire, dir, arch), 0o644)); err != nil {
		return nil, err
	}
	apt := []string{"APT_CONFIG=" + dir + "/conf", "apt-get", "--quiet"}
	if _, err := run(ctx, "env", append(apt, "update")...); err != nil {
		return nil, err
	}
	out, err := run(ctx, "env", slices.Concat(apt, []string{"--yes", "--print-uris", "install"}, slices.Sorted(maps.Keys(l.Roots)))...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var packages []Package
	for _, m := range uri.FindAllStringSubmatch(string(out), -1) {
		path, _ := url.PathUnescape(strings.TrimPrefix(m[1], a.Mirror+"/"))
		version, _ := url.PathUnescape(m[3])
		packages = append(packages, Package{Name: m[2], Version: version, Architecture: m[4], Path: path, SHA256: m[5]})
	}
	if bytes.Count(out, []byte(".deb ")) != len(packages) {
		return nil, fmt.Errorf("not all packages of apt-get --print-uris have SHA-256 sums: %s", out)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return packages, nil
}

// fetch returns the file of a package in a folder. Its sum is that of the lock file.
func (a *Apt) fetch(ctx context.Context, dir string, p Package) (string, error) {
	name := filepath.Join(dir, p.SHA256+".deb")
	if content, err := os.ReadFile(name); err == nil && fmt.Sprintf("%x", sha256.Sum256(content)) == p.SHA256 {
		return name, nil // What is not right any more is got again.
	}
	if err := a.FindMirror(ctx); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(dir, ".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	from := a.Mirror + "/" + strings.ReplaceAll(p.Path, "+", "%2B") // Some servers take it for a space.
	if _, err := run(ctx, "/usr/lib/apt/apt-helper", "download-file", from, part+"/deb", "SHA256:"+p.SHA256); err != nil {
		return "", fmt.Errorf("if Debian replaced this version, \"make pin-images\" pins the new one, "+
			"or give an archive that keeps old ones with MIRROR=: %w", err)
	}
	return name, os.Rename(part+"/deb", name)
}

// Base is an archive of tar with the packages of an architecture. All is root's.
func (l *Lock) Base(ctx context.Context, arch string, a Apt) ([]byte, error) {
	if len(l.Packages[arch]) == 0 {
		return nil, fmt.Errorf("the lock file has no packages for %s", arch)
	}
	dir, err := os.MkdirTemp("", "carry-debian-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cache := filepath.Join(cmp.Or(a.Cache, dir), "debian")
	if err := errors.Join(os.MkdirAll(cache, 0o755), os.Mkdir(dir+"/root", 0o755)); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir + "/root")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, p := range l.Packages[arch] {
		if err := a.unpack(ctx, p, cache, root); err != nil {
			return nil, fmt.Errorf("package %s %s for %s: %w", p.Name, p.Version, arch, err)
		}
	}
	for _, p := range l.Packages[arch] { // The licence may be that of another one.
		if _, err := root.Stat("usr/share/doc/" + p.Name + "/copyright"); err != nil {
			return nil, fmt.Errorf("package %s has no licence: %w", p.Name, err)
		}
	}
	for name, target := range l.Links {
		err := root.Symlink(target, name)
		if _, errStat := root.Stat(name); err != nil || errStat != nil {
			return nil, fmt.Errorf("link to %s: %w", target, errors.Join(err, errStat))
		}
	}
	args := []string{"--create", "--directory=" + root.Name(), "--format=ustar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
		"--numeric-owner", "--mode=u+w,a-s", "--anchored", "--wildcards", "--no-wildcards-match-slash"}
	for _, pattern := range l.Exclude {
		args = append(args, "--exclude=./"+pattern)
	}
	return run(ctx, "tar", append(args, ".")...)
}

// unpack adds the files of a package, and what it says about itself where scanners
// look for that.
func (a *Apt) unpack(ctx context.Context, p Package, cache string, root *os.Root) error {
	deb, err := a.fetch(ctx, cache, p)
	if err != nil {
		return err
	}
	_, errExtract := run(ctx, "dpkg-deb", "--extract", deb, root.Name())
	control, err := run(ctx, "dpkg-deb", "--field", deb)
	if err := errors.Join(errExtract, err); err != nil {
		return err
	}
	for _, want := range []string{"Package: " + p.Name, "Version: " + p.Version, "Architecture: " + p.Architecture} {
		if !slices.Contains(strings.Split(string(control), "\n"), want) {
			return fmt.Errorf("the lock file has %q, but its control file does not", want)
		}
	}
	const status = "var/lib/dpkg/status.d"
	return errors.Join(root.MkdirAll(status, 0o755), root.WriteFile(status+"/"+p.Name, control, 0o644),
		root.Chmod(status, 0o755), root.Chmod(status+"/"+p.Name, 0o644)) // The umask does not count.
}

// run returns what a program prints.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := sys.Output(ctx, sys.Command(ctx, "", append(os.Environ(), "LC_ALL=C", "TAR_OPTIONS="), name, args...))
	if err != nil {
		return nil, fmt.Errorf("%w; %s is a program of Debian or Ubuntu", err, name)
	}
	return []byte(out), nil
}
