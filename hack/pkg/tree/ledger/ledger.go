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

// Package ledger reads hack/ledger.yaml, the one place that says which
// releases and which features this repository carries, why, and until when.
package ledger

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// Path is where the ledger stands in the repository.
const Path = "hack/ledger.yaml"

// State says whether a release or a feature is there already.
type State string

const (
	// Carried releases have a pin and can be built. Carried features are
	// built into each of their releases that is carried.
	Carried State = "carried"
	// Planned is what the ledger only announces.
	Planned State = "planned"
)

// Ledger is the content of the file.
type Ledger struct {
	// Revision is the number in a version like v1.36.3+dra.1: it grows with each
	// release of this repository.
	Revision int `json:"revision"`
	// DefaultRelease is the one of the carried releases that is taken when nobody
	// names one, and whose tests are all run before each change: the newest, if
	// this is empty.
	DefaultRelease string `json:"default,omitempty"`
	// Releases, oldest first.
	Releases []Release `json:"releases"`
	// Features in the order in which they are built into a tree.
	Features []Feature `json:"features"`
}

// Release is a minor release of Kubernetes, at one patch release.
type Release struct {
	// Name is the minor release, like "1.36".
	Name string `json:"name"`
	// Version is the upstream version, like "v1.36.3".
	Version string `json:"version"`
	// Released is when upstream made the version. It is the date of the
	// tree's commits and of what is built from them.
	Released string `json:"released,omitempty"`
	// State is carried if hack/releases/<name> has a pin.
	State State `json:"state"`
	// Imports maps an import path in our files to the one which stands in
	// for it in this release.
	Imports map[string]string `json:"imports,omitempty"`
	// Gates are feature gates which carried features depend on, and which
	// are off by default in this release.
	Gates []string `json:"gates,omitempty"`
	// RuntimeConfig are the APIs of DRA that the API server serves only if
	// its --runtime-config says so: "resource.k8s.io/v1beta1=true".
	RuntimeConfig []string `json:"runtimeConfig,omitempty"`
	// IgnoredPreflightErrors are checks of the release's kubeadm which fail on every
	// machine.
	IgnoredPreflightErrors []string `json:"ignoredPreflightErrors,omitempty"`
	// FailsWithGates are upstream's tests that fail in the untouched base, too, with nothing
	// but gates on that features depend on.
	FailsWithGates []UpstreamTest `json:"failsWithGates,omitempty"`
	// MissingModules are the modules in upstream's go.work that the Go
	// module proxy does not have.
	MissingModules []string `json:"missingModules,omitempty"`
	// StandIns are the staging modules that the Go module proxy does not have at
	// the release's version. Each is taken at another version.
	StandIns []StandIn `json:"standIns,omitempty"`
}

// UpstreamTest is a test function of upstream.
type UpstreamTest struct {
	// Dir is the package, Test the function.
	Dir  string `json:"dir"`
	Test string `json:"test"`
	// Why says what is special about it.
	Why string `json:"why"`
}

// StandIn is a published version of a staging module that stands in for the
// release's own one.
type StandIn struct {
	// Module is the path of the module, like "k8s.io/kube-scheduler".
	Module string `json:"module"`
	// Version is the one that is taken, like "v0.32.10".
	Version string `json:"version"`
	// Why it is as good.
	Why string `json:"why"`
}

// Feature is a set of overlay files that is carried, and dropped, together.
type Feature struct {
	// Slug is the name of the feature in file names.
	Slug string `json:"slug"`
	// Title is the subject of the feature's commit.
	Title string `json:"title"`
	// State of the feature.
	State State `json:"state"`
	// KEP is the number of the Kubernetes enhancement proposal, if any.
	KEP int `json:"kep,omitempty"`
	// Needs are features, listed before, without which this one cannot be built.
	Needs []Need `json:"needs,omitempty"`
	// Gates are the feature gates, the feature's own one first.
	Gates []string `json:"gates,omitempty"`
	// Defaults say since when gates are on by default, by gate. One that is off
	// everywhere is not listed.
	Defaults map[string]GateDefault `json:"defaults,omitempty"`
	// Releases says for which release the feature is meant, and what is
	// carried there in a word or two. "base" means that upstream has all
	// of it, and nothing is carried.
	Releases map[string]string `json:"releases"`
	// Why it is carried.
	Why string `json:"why"`
	// Upstream is the state of the feature upstream.
	Upstream string `json:"upstream"`
	// DropWhen says when the feature can be dropped.
	DropWhen string `json:"dropWhen"`
	// Files are patterns (path.Match) of whole overlay files that belong to
	// the feature although neither file name nor folder contains the slug.
	Files []string `json:"files,omitempty"`
	// Tests are upstream's tests that had to change.
	Tests []TestChange `json:"tests,omitempty"`
	// Carries are the single changes of a feature that is a collection.
	Carries []Carry `json:"carries,omitempty"`
}

// GateDefault is since when a gate is on by default.
type GateDefault struct {
	// Since is the first release in which it is on. (YAML takes "on" for true.)
	Since string `json:"since"`
	// Locked is the first one in which it cannot be turned off, if any.
	Locked string `json:"locked,omitempty"`
}

// Need is a feature without which another one cannot be built: dropping it drops that
// other one, too.
type Need struct {
	// Slug is that of the feature.
	Slug string `json:"slug"`
	// Releases are those in which it is needed, if not in all.
	Releases []string `json:"releases,omitempty"`
	// Why it is needed.
	Why string `json:"why"`
}

// TestChange is a test of upstream which a seam changes.
type TestChange struct {
	// Path is the path in the Kubernetes tree.
	Path string `json:"path"`
	// Why the test had to change.
	Why string `json:"why"`
}

// Carry is one change in a feature which is a collection of changes.
type Carry struct {
	// Name identifies the change.
	Name string `json:"name"`
	// Why it is carried.
	Why string `json:"why"`
	// Upstream is the issue or pull request, or what is known instead.
	Upstream string `json:"upstream"`
	// DropWhen says when it can be dropped.
	DropWhen string `json:"dropWhen"`
	// Releases are those which it is carried in, if not in all of the
	// feature: the others do not have the bug.
	Releases []string `json:"releases,omitempty"`
	// Tests fail without the change.
	Tests []string `json:"tests"`
}

// InBase is the word in Feature.Releases for a release which has the feature.
const InBase = "base"

var (
	releaseName = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	slugName    = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
)

// Load reads and checks the ledger of the repository at root.
func Load(root string) (*Ledger, error) {
	data, err := os.ReadFile(filepath.Join(root, Path))
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	l, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Path, err)
	}
	return l, nil
}

// Parse reads and checks a ledger. Unknown fields are errors.
func Parse(data []byte) (*Ledger, error) {
	var l Ledger
	if err := yaml.UnmarshalStrict(data, &l); err != nil {
		return nil, err
	}
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &l, nil
}

func (l *Ledger) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if l.Revision < 1 {
		fail("revision must be 1 or more")
	}
	if r := l.find(l.DefaultRelease); l.DefaultRelease != "" && (r == nil || r.State != Carried) {
		fail("default %q: it must be a release that is carried", l.DefaultRelease)
	}
	for i, r := range l.Releases {
		where := fmt.Sprintf("release %q", r.Name)
		if !releaseName.MatchString(r.Name) {
			fail("%s: name is not like 1.36", where)
			continue
		}
		if i > 0 && Compare(l.Releases[i-1].Name, r.Name) >= 0 {
			fail("%s: releases must be listed once, oldest first", where)
		}
		if err := r.validate(); err != nil {
			fail("%s: %w", where, err)
		}
	}
	seen := map[string]bool{}
	for _, f := range l.Features {
		where := fmt.Sprintf("feature %q", f.Slug)
		if !slugName.MatchString(f.Slug) {
			fail("%s: a slug has lower case letters and digits only", where)
		}
		if seen[f.Slug] {
			fail("%s: listed twice", where)
		}
		for _, n := range f.Needs {
			if !seen[n.Slug] || n.Why == "" {
				fail("%s: needs %q: it has to be listed before, and why is needed", where, n.Slug)
			}
			for _, release := range n.Releases {
				if l.find(release) == nil {
					fail("%s: needs %q: the ledger has no release %q", where, n.Slug, release)
				}
			}
		}
		seen[f.Slug] = true
		if err := f.State.validate(); err != nil {
			fail("%s: %w", where, err)
		}
		for _, text := range []struct{ name, value string }{
			{"title", f.Title}, {"why", f.Why}, {"upstream", f.Upstream}, {"dropWhen", f.DropWhen},
		} {
			if strings.TrimSpace(text.value) == "" {
				fail("%s: %s is missing", where, text.name)
			}
		}
		if strings.Contains(f.Title, "\n") {
			fail("%s: title has more than one line", where)
		}
		if len(f.Releases) == 0 {
			fail("%s: no releases", where)
		}
		for name, what := range f.Releases {
			if l.find(name) == nil {
				fail("%s: the ledger has no release %q", where, name)
			}
			if what == "" {
				fail("%s: release %s: what is carried?", where, name)
			}
		}
		for gate, d := range f.Defaults {
			if !slices.Contains(f.Gates, gate) {
				fail("%s: defaults: it has no gate %q", where, gate)
			}
			if l.find(d.Since) == nil || d.Locked != "" && (l.find(d.Locked) == nil || Compare(d.Locked, d.Since) < 0) {
				fail("%s: defaults: gate %s: since and locked must be releases of the ledger, one after the other", where, gate)
			}
		}
		for _, pattern := range f.Files {
			if _, err := path.Match(pattern, ""); err != nil {
				fail("%s: files: %q: %w", where, pattern, err)
			}
		}
		for _, t := range f.Tests {
			if t.Path == "" || t.Why == "" {
				fail("%s: tests: path and why are both needed", where)
			}
		}
		for _, c := range f.Carries {
			if c.Name == "" || c.Why == "" || c.Upstream == "" || c.DropWhen == "" || len(c.Tests) == 0 {
				fail("%s: carry %q: name, why, upstream, dropWhen and tests are all needed", where, c.Name)
			}
			for _, release := range c.Releases {
				if what, ok := f.Releases[release]; !ok || what == InBase {
					fail("%s: carry %q: the feature is not carried in release %q", where, c.Name, release)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// validate checks a release by itself.
func (r *Release) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !strings.HasPrefix(r.Version, "v"+r.Name+".") {
		fail("version %q is not a version of it", r.Version)
	}
	if err := r.State.validate(); err != nil {
		errs = append(errs, err)
	}
	if _, err := time.Parse(time.RFC3339, r.Released); err != nil && (r.State == Carried || r.Released != "") {
		fail("released must be a time like 2026-07-22T18:07:38Z")
	}
	for from, to := range r.Imports {
		if from == to || from == "" || to == "" {
			fail("import %q cannot stand for %q", to, from)
		}
	}
	for _, t := range r.FailsWithGates {
		if t.Dir == "" || t.Test == "" || strings.TrimSpace(t.Why) == "" {
			fail("failsWithGates: dir, test and why are all needed")
		}
	}
	return errors.Join(append(errs, r.validateStandIns())...)
}

// validateStandIns checks what the ledger alone can tell about them.
func (r *Release) validateStandIns() error {
	var errs []error
	own := r.StagingVersion()
	for i, s := range r.StandIns {
		var err error
		switch isSame := func(other StandIn) bool { return other.Module == s.Module }; {
		case s.Module == "" || strings.TrimSpace(s.Why) == "":
			err = errors.New("module, version and why are all needed")
		case s.Version == own:
			err = fmt.Errorf("%s is the version of the release itself: remove the stand-in", own)
		case !semver.IsValid(s.Version) || semver.MajorMinor(s.Version) != semver.MajorMinor(own):
			err = fmt.Errorf("version %q is not one of %s", s.Version, semver.MajorMinor(own))
		case slices.ContainsFunc(r.StandIns[:i], isSame):
			err = errors.New("it is listed twice")
		case slices.Contains(r.MissingModules, s.Module):
			err = errors.New("it is one of missingModules, too: remove it there")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stand-in for %s: %w", s.Module, err))
		}
	}
	return errors.Join(errs...)
}

// StagingVersion is the version of the release's staging modules: v0.36.3 for
// v1.36.3.
func (r *Release) StagingVersion() string {
	return "v0." + strings.TrimPrefix(r.Version, "v1.")
}

// ModuleVersion is the version at which a staging module is taken: that of its
// stand-in, if it has one.
func (r *Release) ModuleVersion(module string) string {
	for _, s := range r.StandIns {
		if s.Module == module {
			return s.Version
		}
	}
	return r.StagingVersion()
}

// OldestEmulated is the oldest version which tests of a release may emulate with the
// feature gates on: the first one in which everything that features depend on is on by default.
// In an older release it gets turned on together with them, and each API server of a
// test emulates the very version of the release.
func (l *Ledger) OldestEmulated(r *Release) string {
	for _, oldest := range l.Releases {
		if len(r.Gates) == 0 && len(oldest.Gates) == 0 {
			return oldest.Name
		}
	}
	return r.Name
}

// GatesToSet are those that have to be turned on in a release: all of the feature, unless
// all are on.
func (f *Feature) GatesToSet(release string) []string {
	if !slices.ContainsFunc(f.Gates, func(gate string) bool { return !f.Defaults[gate].OnIn(release) }) {
		return nil
	}
	return f.Gates
}

// OnIn says whether the gate is on by default in a release.
func (d GateDefault) OnIn(release string) bool {
	return d.Since != "" && Compare(release, d.Since) >= 0
}

func (s State) validate() error {
	if s != Carried && s != Planned {
		return fmt.Errorf("state must be %q or %q, not %q", Carried, Planned, s)
	}
	return nil
}

func (l *Ledger) find(name string) *Release {
	for i := range l.Releases {
		if l.Releases[i].Name == name {
			return &l.Releases[i]
		}
	}
	return nil
}

// Release returns the row of a release that is carried.
func (l *Ledger) Release(name string) (*Release, error) {
	r, err := l.Known(name)
	if err != nil {
		return nil, err
	}
	if r.State != Carried {
		return nil, fmt.Errorf("release %s (%s) is planned, it is not carried yet: carried is %s",
			r.Name, r.Version, strings.Join(l.names(func(r *Release) bool { return r.State == Carried }), ", "))
	}
	return r, nil
}

// Known returns the row of a release, carried or planned.
func (l *Ledger) Known(name string) (*Release, error) {
	if r := l.find(name); r != nil {
		return r, nil
	}
	for _, r := range l.Releases {
		if strings.HasPrefix(strings.TrimPrefix(name, "v"), r.Name+".") {
			return nil, fmt.Errorf("release %q: give the minor: %s, which is at %s", name, r.Name, r.Version)
		}
	}
	return nil, fmt.Errorf("unknown release %q: the ledger has %s", name, strings.Join(l.names(nil), ", "))
}

// Default is the release that is taken when nobody names one.
func (l *Ledger) Default() (*Release, error) {
	if l.DefaultRelease == "" {
		return l.Newest()
	}
	return l.Release(l.DefaultRelease)
}

// Newest is the newest release that is carried.
func (l *Ledger) Newest() (*Release, error) {
	for i := len(l.Releases) - 1; i >= 0; i-- {
		if l.Releases[i].State == Carried {
			return &l.Releases[i], nil
		}
	}
	return nil, errors.New("the ledger has no release that is carried")
}

// Carried are the releases that can be built, oldest first.
func (l *Ledger) Carried() []*Release {
	var rs []*Release
	for i := range l.Releases {
		if l.Releases[i].State == Carried {
			rs = append(rs, &l.Releases[i])
		}
	}
	return rs
}

func (l *Ledger) names(keep func(*Release) bool) []string {
	var names []string
	for i := range l.Releases {
		if keep == nil || keep(&l.Releases[i]) {
			names = append(names, l.Releases[i].Name)
		}
	}
	return names
}

// Feature returns the row of a feature, nil if there is none.
func (l *Ledger) Feature(slug string) *Feature {
	for i := range l.Features {
		if l.Features[i].Slug == slug {
			return &l.Features[i]
		}
	}
	return nil
}

// Slugs are the slugs of all features, in the ledger's order.
func (l *Ledger) Slugs() []string {
	var slugs []string
	for _, f := range l.Features {
		slugs = append(slugs, f.Slug)
	}
	return slugs
}

// Drop returns the ledger without a feature, and without those which need it in the
// release, and the slugs of all of these. Files of theirs are known, but not built.
func (l *Ledger) Drop(slug, release string) (without *Ledger, dropped []string) {
	dropped = []string{slug}
	copied := *l
	copied.Features = slices.Clone(l.Features)
	for i := range copied.Features {
		f := &copied.Features[i]
		if f.Slug != slug {
			if !slices.ContainsFunc(f.Needs, func(n Need) bool {
				return slices.Contains(dropped, n.Slug) && (len(n.Releases) == 0 || slices.Contains(n.Releases, release))
			}) {
				continue
			}
			dropped = append(dropped, f.Slug)
		}
		f.State = Planned
	}
	return &copied, dropped
}

// FeaturesOf are the features which are built into a release, in order.
func (l *Ledger) FeaturesOf(release string) []*Feature {
	var fs []*Feature
	for i := range l.Features {
		if l.Features[i].In(release) {
			fs = append(fs, &l.Features[i])
		}
	}
	return fs
}

// In says whether the feature is built into the release.
func (f *Feature) In(release string) bool {
	what, ok := f.Releases[release]
	return f.State == Carried && ok && what != InBase
}

// CarriesOf are the single changes which are built into a release, in order.
func (f *Feature) CarriesOf(release string) []Carry {
	var cs []Carry
	for _, c := range f.Carries {
		if f.In(release) && (len(c.Releases) == 0 || slices.Contains(c.Releases, release)) {
			cs = append(cs, c)
		}
	}
	return cs
}

// Gates are what has to be turned on for all that is carried in a release:
// the gates of the features, and those that they depend on.
func (l *Ledger) Gates(release string) []string {
	var gates []string
	if r := l.find(release); r != nil {
		gates = append(gates, r.Gates...)
	}
	for _, f := range l.FeaturesOf(release) {
		gates = append(gates, f.GatesToSet(release)...)
	}
	slices.Sort(gates)
	return slices.Compact(gates)
}

// Stamp is the version of what is built from this release.
func (l *Ledger) Stamp(r *Release) string {
	return fmt.Sprintf("%s+dra.%d", r.Version, l.Revision)
}

// Minor is that of a release: 36 of 1.36, and 0 if it has none.
func Minor(release string) int {
	if ns := numbers(release); len(ns) > 1 {
		return ns[1]
	}
	return 0
}

// Date is the time of the release, the zero time if the ledger does not say.
func (r *Release) Date() time.Time {
	t, err := time.Parse(time.RFC3339, r.Released)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Range is a range of releases, both ends included.
type Range struct {
	// From is the oldest release, To the newest one. To is empty if the range
	// has no end.
	From, To string
}

// Qualifier matches what ParseRange reads, as part of a regular expression.
const Qualifier = `[0-9]+\.[0-9]+(?:-[0-9]+\.[0-9]+|\+)?`

// ParseRange reads "1.32", "1.32-1.33" or "1.32+".
func ParseRange(s string) (Range, error) {
	if from, isOpen := strings.CutSuffix(s, "+"); isOpen && releaseName.MatchString(from) {
		return Range{From: from}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	if !releaseName.MatchString(from) || !releaseName.MatchString(to) {
		return Range{}, fmt.Errorf("%q is neither a release nor a range of releases", s)
	}
	if order := Compare(from, to); order > 0 || order == 0 && isRange {
		return Range{}, fmt.Errorf("range %q: the first release must be older than the second", s)
	}
	return Range{From: from, To: to}, nil
}

// Contains says whether the release is in the range.
func (r Range) Contains(release string) bool {
	return Compare(r.From, release) <= 0 && (r.To == "" || Compare(release, r.To) <= 0)
}

// Join is the range from the older one's start to the newer one's end.
func (r Range) Join(other Range) Range {
	if Compare(other.From, r.From) < 0 {
		r.From = other.From
	}
	if r.To != "" && (other.To == "" || Compare(r.To, other.To) < 0) {
		r.To = other.To
	}
	return r
}

func (r Range) String() string {
	switch r.To {
	case "":
		return r.From + "+"
	case r.From:
		return r.From
	default:
		return r.From + "-" + r.To
	}
}

// Compare orders two well-formed names of releases: it is negative if the first one
// is older, and zero if they are the same.
func Compare(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(release string) []int {
	var ns []int
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil { // longer than an int: newer than everything
			n = int(^uint(0) >> 1)
		}
		ns = append(ns, n)
	}
	return ns
}
