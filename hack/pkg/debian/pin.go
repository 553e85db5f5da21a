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

package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pault.ag/go/debian/control"
	"pault.ag/go/debian/dependency"
	"pault.ag/go/debian/version"
)

// Archive is what packages are pinned from. The zero value is Debian's.
type Archive struct {
	// URI is where the archive is, instead of [Pool].
	URI string
	// Keyring has the keys that sign it, instead of [Keyring].
	Keyring string
}

// Keyring is Debian's, on Debian and Ubuntu.
const Keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Pin looks up the roots and what they depend on, and sets the packages and the
// snapshot of the lock file. apt gets the lists of packages: it knows how to
// check the archive's signature, and the lists' checksums.
func (l *Lock) Pin(ctx context.Context, archive Archive) error {
	if err := l.check(); err != nil {
		return err
	}
	if archive.URI == "" {
		archive.URI = Pool
	}
	if archive.Keyring == "" {
		archive.Keyring = Keyring
	}
	dir, err := os.MkdirTemp("", "carry-apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lists, err := archive.update(ctx, dir, l.Suite)
	if err != nil {
		return err
	}
	date, err := releaseDate(filepath.Join(dir, "lists"))
	if err != nil {
		return err
	}
	packages := map[string][]Package{}
	used := map[string]bool{}
	for arch, list := range lists {
		index, err := readIndex(list)
		if err != nil {
			return fmt.Errorf("packages of %s for %s: %w", l.Suite, arch, err)
		}
		if packages[arch], err = l.follow(index, used); err != nil {
			return fmt.Errorf("%s for %s: %w", l.Suite, arch, err)
		}
		for _, p := range packages[arch] {
			if err := p.check(arch); err != nil {
				return fmt.Errorf("package %q of %s for %s: %w", p.Name, l.Suite, arch, err)
			}
		}
	}
	for _, c := range l.Omit {
		if !used[c.Name] {
			return fmt.Errorf("nothing depends on %s, which is omitted: take it out of the lock file", c.Name)
		}
	}
	// There is one some hours after each release: a day later it has this one.
	// The same release always gives the same lock file.
	l.Snapshot, l.Packages = date.AddDate(0, 0, 1).Format(stampFormat), packages
	return nil
}

// update returns the files with the lists of packages by architecture. They are
// in a folder of their own, and nothing of the machine's configuration is used.
func (a Archive) update(ctx context.Context, dir, suite string) (map[string]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("apt-get is not on this machine; packages can be pinned on Debian and Ubuntu")
	}
	if _, err := os.Stat(a.Keyring); err != nil {
		return nil, fmt.Errorf("the keys of the archive are missing: %w; on Debian and Ubuntu: apt-get install debian-archive-keyring", err)
	}
	lists := filepath.Join(dir, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return nil, err
	}
	// apt gives up root to download.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	sources := filepath.Join(dir, "apt.sources")
	configuration := filepath.Join(dir, "apt.conf")
	for name, content := range map[string]string{
		filepath.Join(dir, "status"): "",
		sources: fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nArchitectures: %s\nTargets: Packages\nSigned-By: %s\n",
			a.URI, suite, strings.Join(Architectures, " "), a.Keyring),
		configuration: fmt.Sprintf(`Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList %q;
Dir::Etc::SourceParts "/dev/null";
Dir::State %q;
Dir::State::Lists %q;
Dir::State::Status %q;
Dir::Cache %q;
APT::Update::Error-Mode "any";
`, sources, dir, lists, filepath.Join(dir, "status"), filepath.Join(dir, "cache")),
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "apt-get", "--quiet=2", "update")
	cmd.Env = append(os.Environ(), "APT_CONFIG="+configuration, "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, fmt.Errorf("apt-get update for %s %s: %w: %s", a.URI, suite, err, strings.TrimSpace(string(out)))
	}
	found := map[string]string{}
	for _, arch := range Architectures {
		names, err := filepath.Glob(filepath.Join(lists, "*_main_binary-"+arch+"_Packages"))
		if err != nil {
			return nil, err
		}
		if len(names) != 1 {
			return nil, fmt.Errorf("%s %s has no packages for %s", a.URI, suite, arch)
		}
		found[arch] = names[0]
	}
	return found, nil
}

// releaseDate is when the suite was published.
func releaseDate(lists string) (time.Time, error) {
	names, err := filepath.Glob(filepath.Join(lists, "*_InRelease"))
	if err != nil {
		return time.Time{}, err
	}
	if len(names) != 1 {
		return time.Time{}, errors.New("the archive has no signed file InRelease")
	}
	f, err := os.Open(names[0])
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	// apt checked the signature.
	r, err := control.NewParagraphReader(f, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("InRelease: %w", err)
	}
	release, err := r.Next()
	if err != nil {
		return time.Time{}, fmt.Errorf("InRelease: %w", err)
	}
	date, err := time.Parse(time.RFC1123, release.Values["Date"])
	if err != nil {
		return time.Time{}, fmt.Errorf("InRelease: %w", err)
	}
	return date, nil
}

// index has the packages of an architecture.
type index struct {
	packages map[string]*candidate
	// providers are the names of those that provide a name.
	providers map[string][]string
}

type candidate struct {
	Package
	version version.Version
	depends []dependency.Relation
}

func readIndex(name string) (*index, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := control.NewParagraphReader(f, nil)
	if err != nil {
		return nil, err
	}
	x := &index{packages: map[string]*candidate{}, providers: map[string][]string{}}
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return x, nil
		} else if err != nil {
			return nil, err
		}
		if err := x.add(p.Values); err != nil {
			return nil, fmt.Errorf("package %q: %w", p.Values["Package"], err)
		}
	}
}

// add takes a package into the index. If there are several versions, the highest
// one counts.
func (x *index) add(fields map[string]string) error {
	size, err := strconv.ParseInt(fields["Size"], 10, 64)
	if err != nil {
		return fmt.Errorf("size: %w", err)
	}
	c := &candidate{Package: Package{
		Name: fields["Package"], Version: fields["Version"], Architecture: fields["Architecture"],
		Path: fields["Filename"], Size: size, SHA256: fields["SHA256"],
	}}
	if c.version, err = version.Parse(c.Version); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	if old := x.packages[c.Name]; old != nil && version.Compare(old.version, c.version) >= 0 {
		return nil
	}
	for _, field := range []string{"Pre-Depends", "Depends"} {
		found, err := dependency.Parse(fields[field])
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		c.depends = append(c.depends, found.Relations...)
	}
	provides, err := dependency.Parse(fields["Provides"])
	if err != nil {
		return fmt.Errorf("provides: %w", err)
	}
	for _, p := range provides.GetAllPossibilities() {
		x.providers[p.Name] = append(x.providers[p.Name], c.Name)
	}
	x.packages[c.Name] = c
	return nil
}

// follow returns the roots and what they depend on, sorted by name. It notes what
// was omitted.
func (l *Lock) follow(x *index, omitted map[string]bool) ([]Package, error) {
	chosen := map[string]Package{}
	var todo []*candidate
	choose := func(c *candidate) {
		if _, ok := chosen[c.Name]; !ok {
			chosen[c.Name] = c.Package
			todo = append(todo, c)
		}
	}
	for _, root := range l.Roots {
		c := x.packages[root.Name]
		if c == nil {
			return nil, fmt.Errorf("there is no package %s", root.Name)
		}
		choose(c)
	}
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		for _, relation := range c.depends {
			name := l.omits(relation)
			if name != "" {
				omitted[name] = true
				continue
			}
			found := x.satisfy(relation)
			if found == nil {
				return nil, fmt.Errorf("package %s depends on %s, which is not there", c.Name, relation)
			}
			choose(found)
		}
	}
	packages := make([]Package, 0, len(chosen))
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		packages = append(packages, chosen[name])
	}
	return packages, nil
}

// omits is the name of an omitted package that would be enough for a relation.
func (l *Lock) omits(relation dependency.Relation) string {
	for _, p := range relation.Possibilities {
		for _, c := range l.Omit {
			if c.Name == p.Name {
				return c.Name
			}
		}
	}
	return ""
}

// satisfy is the first package that is enough for a relation, nil if there is
// none. Of those that provide a name it takes the first one of the alphabet.
func (x *index) satisfy(relation dependency.Relation) *candidate {
	for _, p := range relation.Possibilities {
		c := x.packages[p.Name]
		if c != nil && (p.Version == nil || p.Version.SatisfiedBy(c.version)) {
			return c
		}
		if names := x.providers[p.Name]; len(names) > 0 && p.Version == nil {
			return x.packages[slices.Min(names)]
		}
	}
	return nil
}
