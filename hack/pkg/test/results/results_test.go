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

package results

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubernetes-dra/hack/pkg/git"
)

const key = "0123456789abcdef0123456789abcdef"

var (
	one   = Line{Mode: "unit", Package: "k8s.io/a", Key: key, Passed: 3, Skipped: 1, Seconds: 12, Date: "2026-11-26"}
	other = Line{Mode: "unit", Package: "k8s.io/b", Key: key, Passed: 1, Reruns: 2, Date: "2026-11-26", Reads: []string{"env:X", "a/b"}, ReadsSum: key}
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "releases", Name)
	if err := Write(file, []Line{other, one, other}); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file, false)
	if err != nil || len(got) != 2 || got[0].String() != one.String() || got[1].String() != other.String() {
		t.Errorf("%v, %+v", err, got)
	}
	content, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(content), "# What passed") {
		t.Errorf("%v\n%s", err, content)
	}
	if lines, err := Load(filepath.Join(t.TempDir(), "none"), false); err != nil || lines != nil {
		t.Errorf("no file: %v, %v", lines, err)
	}
}

// A file that was damaged is refused, with the line and what to do; a merge of both sides of
// two branches is none.
func TestDamage(t *testing.T) {
	text := one.String() + "\n"
	condemned := Line{Mode: "unit", Package: "p", Key: key, Date: "2026-11-26", Condemned: true}
	for name, tc := range map[string]struct{ content, want string }{
		"merged":           {head + text + other.String() + "\n" + text, ""},
		"edited":           {head + strings.Replace(text, " 3 ", " 4 ", 1), "passed:7: its checksum differs"},
		"cut in a line":    {head + text + text[:20], "passed:8: it has 3 fields"},
		"cut at its end":   {head + strings.TrimSuffix(text, "\n"), "passed:7: it is cut off; remove the line"},
		"conflict":         {head + "<<<<<<< HEAD\n" + text, "passed:7: it has 2 fields, not 10; remove the line"},
		"newer":            {"# format 2\n" + text, "passed:1: format 2, and this program knows 1 only"},
		"no key":           {head + Line{Mode: "unit", Package: "p", Key: "x", Date: "2026-11-26"}.String() + "\n", `key "x" is none`},
		"no date":          {head + Line{Mode: "unit", Package: "p", Key: key, Date: "now"}.String() + "\n", "date: "},
		"did not pass":     {head + condemned.String() + "\n", "it did not pass"},
		"not what it read": {head + Line{Mode: "unit", Package: "p", Key: key, Date: "2026-11-26", Reads: []string{"a"}, ReadsSum: "x"}.String() + "\n", "is not what tests read"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := Load(write(t, filepath.Join(t.TempDir(), Name), tc.content), false)
			switch {
			case tc.want == "" && (err != nil || len(lines) != 3):
				t.Errorf("got %v, %v", lines, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A run that was killed leaves a line that is cut off. It says nothing, and does not hide the
// lines of the next run. Two runs may write at once.
func TestAppend(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), Name), one.String()+"\n"+other.String()[:30])
	if lines, err := Load(file, true); err != nil || len(lines) != 1 {
		t.Errorf("%v, %v", lines, err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := Append(file, other); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if lines, err := Load(file, true); err != nil || len(lines) != 21 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if err := Append("/dev/full", one); err == nil {
		t.Error("no error although the disk is full")
	}
}

// repository is a git repository with some files.
func repository(t *testing.T, files map[string]string) *Content {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}} {
		if _, err := git.Dir(dir).Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	return scan(t, dir)
}

func scan(t *testing.T, dir string) *Content {
	t.Helper()
	c, err := Scan(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What tests read decides with the key whether a result holds: files, folders, variables.
func TestReads(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "_output\n", "p/p_test.go": "package p\n", "p/testdata/x": "x", "p/sub/q.go": "package q\n",
		"docs/a": "a", "docs/b": "b", "api/spec": "s",
	})
	log := "# test log\ngetenv HOME\ngetenv MODE\ngetenv HTTPS_PROXY\nopen testdata/x\nopen ../docs/a\nstat ../docs/none\nopen /etc/passwd\nopen ../_output/x\n" +
		"chdir ..\nopen api\nopen p/sub/q.go\nopen /alias/docs/b\n"
	reads, err := c.Log(strings.NewReader(log), filepath.Join(c.Dir, "p"), "/alias")
	if want := []string{"api", "docs/a", "docs/b", "docs/none", "env:MODE", "p/sub/q.go"}; err != nil || !slices.Equal(reads, want) {
		t.Fatalf("%v, %q, want %q", err, reads, want)
	}
	if _, err := c.Log(strings.NewReader("write x\n"), c.Dir); err == nil {
		t.Error("no error for something that is not known")
	}
	env := []string{"MODE=a", "OTHER=x"}
	sum := c.ReadsSum(reads, env)
	for name, tc := range map[string]struct {
		file, content string
		env           []string
		differs       bool
	}{
		"nothing":                   {env: []string{"OTHER=y", "MODE=b", "MODE=a"}},
		"variable":                  {env: []string{"MODE=b"}, differs: true},
		"no variable":               {differs: true},
		"file":                      {file: "docs/b", content: "new", env: env, differs: true},
		"file that was not there":   {file: "docs/none", content: "new", env: env, differs: true},
		"file in a folder":          {file: "api/other", content: "new", env: env, differs: true},
		"file that it did not read": {file: "docs/c", content: "new", env: env},
		"ignored":                   {file: "_output/x", content: "new", env: env},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.file != "" {
				old, err := os.ReadFile(filepath.Join(c.Dir, tc.file))
				write(t, filepath.Join(c.Dir, tc.file), tc.content)
				defer func() {
					if err == nil {
						write(t, filepath.Join(c.Dir, tc.file), string(old))
					} else if err := os.Remove(filepath.Join(c.Dir, tc.file)); err != nil {
						t.Error(err)
					}
				}()
			}
			if got := scan(t, c.Dir).ReadsSum(reads, tc.env) != sum; got != tc.differs {
				t.Errorf("differs: %t, want %t", got, tc.differs)
			}
		})
	}
}

// A line cannot name a thousand files. Their folder stands for them.
func TestFold(t *testing.T) {
	files := map[string]string{}
	var reads []string
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz0123456789", "") {
		files["deep/er/"+name], files["x/"+name] = name, name
		reads = append(reads, "deep/er/"+name)
	}
	reads = fold(append(reads, "x/a", "env:X"))
	if want := []string{"deep/er/...", "env:X", "x/a"}; !slices.Equal(reads, want) {
		t.Fatalf("got %q, want %q", reads, want)
	}
	c := repository(t, files)
	sum := c.ReadsSum(reads, nil)
	write(t, filepath.Join(c.Dir, "deep/er/a"), "new")
	if scan(t, c.Dir).ReadsSum(reads, nil) == sum {
		t.Error("a file below the folder changed, and nobody noticed")
	}
}

// What this clone found and what the repository has count, until one is condemned. A result is
// not written if files changed while its tests ran.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	committed, local := filepath.Join(dir, "committed"), filepath.Join(dir, "local")
	if err := Write(committed, []Line{one}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(committed, local)
	if err != nil {
		t.Fatal(err)
	}
	c := repository(t, map[string]string{"a/b": "x"})
	find := func(l Line, here bool, env ...string) bool {
		t.Helper()
		_, found := s.Find(l.Mode, l.Package, l.Key, here, c, env)
		return found
	}
	if !find(one, false) || find(one, true) || find(other, false) {
		t.Error("at first there is what the repository has")
	}
	if s.New(func(string) bool { return true }) {
		t.Error("nothing is new")
	}
	r := Recorder{}
	l := other
	l.ReadsSum = c.ReadsSum(l.Reads, []string{"X=1"})
	if err := r.Add(t.Context(), s, l, c); err != nil {
		t.Fatal(err)
	}
	if !find(l, true, "X=1") || find(l, true, "X=2") || !s.New(func(string) bool { return true }) {
		t.Error("what was recorded counts, with the same variable")
	}
	if err := s.Condemn(one.Mode, one.Package, one.Key); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(committed, local); err != nil || find(one, false) || !find(l, false, "X=1") {
		t.Errorf("what was condemned does not count any more: %v", err)
	}
	if err := r.Add(t.Context(), s, one, c); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(t.Context()); err != nil || !find(one, false) {
		t.Errorf("what passed later counts: %v", err)
	}
	if d, known := s.Expected(one.Mode, one.Package); !known || d.Seconds() != 12 {
		t.Errorf("expected %s", d)
	}
	write(t, filepath.Join(c.Dir, "a/b"), "changed")
	third := one
	third.Package = "k8s.io/c"
	if err := r.Add(t.Context(), s, third, c); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(t.Context()); err != nil || find(third, false) || r.Dropped != 1 {
		t.Errorf("a file changed while the tests ran: %v, %d dropped", err, r.Dropped)
	}
}

// The key of a package has its sources, those of what it imports, its testdata, and the
// checksum of a module.
func TestSources(t *testing.T) {
	files := map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n", "p/p.go": "package p\n\nimport _ \"example.com/m/q\"\n", "p/p_test.go": "package p\n",
		"p/testdata/x": "x", "q/q.go": "package q\n", "q/q_test.go": "package q\n", "r/main.go": "package main\n\nfunc main() {}\n",
	}
	c := repository(t, files)
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	tests := func(ignore func(string) bool, replace map[string]string) string {
		t.Helper()
		now, err := scan(t, c.Dir).Replaced(replace)
		if err != nil {
			t.Fatal(err)
		}
		s, err := List(t.Context(), now, env, nil, []string{"./..."})
		if err != nil {
			t.Fatal(err)
		}
		if mains := s.Mains(); !slices.Equal(mains, []string{"example.com/m/r"}) || s.InFolder("q") != "example.com/m/q" {
			t.Errorf("programs: %q", mains)
		}
		sum, err := s.Tests("example.com/m/p", ignore)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	ignoreQ := func(dir string) bool { return dir == "q" }
	all, some := tests(nil, nil), tests(ignoreQ, nil)
	for _, tc := range []struct {
		name, content string
		all, some     bool
	}{
		{"p/p_test.go", "package p\n\n", true, true},
		{"p/testdata/x", "y", true, true},
		{"q/q.go", "package q\n\n", true, false},
		{"q/q_test.go", "package q\n\n", false, false},
		{"README", "x", false, false},
	} {
		write(t, filepath.Join(c.Dir, tc.name), tc.content)
		if a, s := tests(nil, nil) != all, tests(ignoreQ, nil) != some; a != tc.all || s != tc.some {
			t.Errorf("%s: another key: %t, without q %t; want %t, %t", tc.name, a, s, tc.all, tc.some)
		}
		if old, known := files[tc.name]; known {
			write(t, filepath.Join(c.Dir, tc.name), old)
		}
	}
	overlay := write(t, filepath.Join(t.TempDir(), "q.go"), "package q\n\nvar X int\n")
	if tests(nil, map[string]string{filepath.Join(c.Dir, "q/q.go"): overlay}) == all {
		t.Error("what the go command sees instead of a file counts")
	}
}

// A package of another module is what go.sum says.
func TestModule(t *testing.T) {
	c := repository(t, map[string]string{"x": "x"})
	sum := func(version, checksum string) string {
		t.Helper()
		p := &listed{ImportPath: "example.com/m/p", Dir: "/modules/m/p"}
		p.Module = &struct{ Path, Version, Sum, Dir string }{Path: "example.com/m", Version: version, Sum: checksum}
		s := &Sources{content: c, packages: map[string]*listed{p.ImportPath: p}, hashes: map[string]string{}}
		got, err := s.Program(p.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := sum("v1", "h1:a")
	if sum("v1", "h1:a") != first || sum("v1", "h1:b") == first || sum("v2", "h1:a") == first {
		t.Error("a checksum and a version make another key, and nothing else does")
	}
}
