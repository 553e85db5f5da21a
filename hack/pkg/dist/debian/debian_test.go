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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// entry is a file in a package.
type entry struct {
	name    string
	mode    int64
	kind    byte // a regular file if there is none
	target  string
	content string
}

func dir(name string) entry           { return entry{name: name, mode: 0o755, kind: tar.TypeDir} }
func data(name, content string) entry { return entry{name: name, mode: 0o644, content: content} }
func soft(name, target string) entry {
	return entry{name: name, mode: 0o777, kind: tar.TypeSymlink, target: target}
}
func hard(name, target string) entry {
	return entry{name: name, mode: 0o755, kind: tar.TypeLink, target: target}
}
func copyright(name string) entry {
	return data("./usr/share/doc/"+name+"/copyright", "licence of "+name)
}
func controlOf(name, version, arch string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: nobody\nDescription: a package\n long\n .\n text\n", name, version, arch)
}

func tarball(t *testing.T, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Typeflag: e.kind, Linkname: e.target, Size: int64(len(e.content)), Format: tar.FormatGNU}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// newDeb is a file as dpkg-deb makes it.
func newDeb(t *testing.T, control string, entries []entry) []byte {
	t.Helper()
	out := bytes.NewBufferString("!<arch>\n")
	for _, member := range []struct {
		name    string
		content []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", tarball(t, []entry{data("./control", control)})},
		{"data.tar.gz", tarball(t, entries)},
	} {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, 0, 0, 0, 0o100644, len(member.content))
		out.Write(member.content)
		if len(member.content)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// archive serves the files of a folder as the pool does.
type archive struct {
	*httptest.Server
	dir string
	// requests are how many there were.
	requests atomic.Int32
}

func newArchive(t *testing.T) *archive {
	a := &archive{dir: t.TempDir()}
	files := http.FileServer(http.Dir(a.dir))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *archive) set(t *testing.T, name string, content []byte) {
	t.Helper()
	file := filepath.Join(a.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// edit replaces a part of a file.
func (a *archive) edit(t *testing.T, name, from, to string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(a.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	a.set(t, name, bytes.Replace(content, []byte(from), []byte(to), 1))
}

// add adds a package to the archive, and to the lock file.
func (a *archive) add(t *testing.T, l *Lock, name string, entries ...entry) {
	t.Helper()
	a.addDeb(t, l, name, newDeb(t, controlOf(name, "1.0+b1", "amd64"), entries))
}

func (a *archive) addDeb(t *testing.T, l *Lock, name string, content []byte) {
	p := Package{
		Name: name, Version: "1.0+b1", Architecture: "amd64", Path: "pool/main/" + name + "_1.0+b1_amd64.deb",
		SHA256: fmt.Sprintf("%x", sha256.Sum256(content)),
	}
	l.Packages["amd64"] = append(l.Packages["amd64"], p)
	a.set(t, p.Path, content)
}

func needApt(t *testing.T) {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s on this machine", program)
		}
	}
}

func newLock(t *testing.T) *Lock {
	needApt(t)
	return &Lock{Suite: "trixie", Roots: map[string]string{"tool": "wanted"}, Packages: map[string][]Package{}}
}

// addTool adds a system with a tool. The licence of the tool is in another package,
// which is unpacked later.
func (a *archive) addTool(t *testing.T, l *Lock) {
	a.add(t, l, "base-files",
		dir("./"), dir("./usr/"), dir("./usr/bin/"), dir("./usr/sbin/"), soft("./bin", "usr/bin"), soft("./sbin", "usr/sbin"),
		entry{name: "./tmp/", mode: 0o1777, kind: tar.TypeDir}, entry{name: "./var/mail/", mode: 0o2775, kind: tar.TypeDir},
		entry{name: "./root/", mode: 0o700, kind: tar.TypeDir}, dir("./var/"), dir("./var/lib/"), dir("./var/lib/dpkg/"), dir("./usr/share/doc/base-files/"), copyright("base-files"))
	a.add(t, l, "tool",
		entry{name: "./usr/sbin/tool-multi", mode: 0o4755, content: "tool"}, soft("./usr/sbin/tool-nft", "tool-multi"),
		hard("./usr/bin/tool-too", "./usr/sbin/tool-multi"), dir("./usr/share/"), dir("./usr/share/man/"),
		dir("./usr/share/man/man8/"), data("./usr/share/man/man8/tool.8.gz", "manual"), data("./usr/share/manual", "stays"),
		dir("./usr/share/doc/"), soft("./usr/share/doc/tool", "tool-data"))
	a.add(t, l, "tool-data",
		dir("./usr/share/doc/tool-data/"), copyright("tool-data"), data("./usr/share/doc/tool-data/changelog.gz", "changes"),
		dir("./usr/share/doc/tool-data/examples/"), data("./usr/share/doc/tool-data/examples/copyright", "an example"))
	l.Exclude = []string{"usr/share/man", "usr/share/doc/*/[!c]*", "usr/share/doc/*/c[!o]*"}
	l.Links = map[string]string{"usr/sbin/tool": "tool-nft"}
}

func TestBase(t *testing.T) {
	a, l := newArchive(t), newLock(t)
	a.addTool(t, l)
	content, err := l.Base(t.Context(), "amd64", Apt{Mirror: a.URL})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d (%s), and is from %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		line := fmt.Sprintf("%s %o %c", h.Name, h.Mode, h.Typeflag)
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if !strings.HasPrefix(h.Name, "./var/lib/dpkg/") && len(text) > 0 {
			line += " " + string(text)
		}
		got = append(got, line)
		if name := path.Base(h.Name); strings.HasPrefix(h.Name, "./var/lib/dpkg/status.d/") && h.Typeflag == tar.TypeReg && string(text) != controlOf(name, "1.0+b1", "amd64") {
			t.Errorf("%s: %q", h.Name, text)
		}
	}
	want := []string{
		"./ 755 5",
		"./bin 777 2 -> usr/bin",
		"./root/ 700 5",
		"./sbin 777 2 -> usr/sbin",
		"./tmp/ 1777 5",
		"./usr/ 755 5",
		"./usr/bin/ 755 5",
		"./usr/bin/tool-too 755 0 tool",
		"./usr/sbin/ 755 5",
		"./usr/sbin/tool 777 2 -> tool-nft",
		"./usr/sbin/tool-multi 755 1 -> ./usr/bin/tool-too",
		"./usr/sbin/tool-nft 777 2 -> tool-multi",
		"./usr/share/ 755 5",
		"./usr/share/doc/ 755 5",
		"./usr/share/doc/base-files/ 755 5",
		"./usr/share/doc/base-files/copyright 644 0 licence of base-files",
		"./usr/share/doc/tool 777 2 -> tool-data",
		"./usr/share/doc/tool-data/ 755 5",
		"./usr/share/doc/tool-data/copyright 644 0 licence of tool-data",
		"./usr/share/manual 644 0 stays",
		"./var/ 755 5",
		"./var/lib/ 755 5",
		"./var/lib/dpkg/ 755 5",
		"./var/lib/dpkg/status.d/ 755 5",
		"./var/lib/dpkg/status.d/base-files 644 0",
		"./var/lib/dpkg/status.d/tool 644 0",
		"./var/lib/dpkg/status.d/tool-data 644 0",
		"./var/mail/ 775 5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// Neither the umask nor variables of tar count.
	t.Setenv("TAR_OPTIONS", "--owner=7")
	defer syscall.Umask(syscall.Umask(0o077))
	again, err := l.Base(t.Context(), "amd64", Apt{Mirror: a.URL})
	if err != nil || !bytes.Equal(again, content) {
		t.Errorf("it is different the second time: %v", err)
	}
}

func TestBaseErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(l *Lock)
		deb    []byte
		want   string
	}{
		"architecture":       {change: func(l *Lock) { delete(l.Packages, "amd64") }, want: "no packages for amd64"},
		"no licence":         {deb: newDeb(t, controlOf("tool", "1.0+b1", "amd64"), []entry{dir("./usr/")}), want: "package tool has no licence"},
		"other name":         {deb: newDeb(t, controlOf("x", "1.0+b1", "amd64"), nil), want: `the lock file has "Package: tool", but`},
		"other version":      {deb: newDeb(t, controlOf("tool", "1.0", "amd64"), nil), want: `the lock file has "Version: 1.0+b1", but`},
		"other architecture": {deb: newDeb(t, controlOf("tool", "1.0+b1", "arm64"), nil), want: `the lock file has "Architecture: amd64", but`},
		"no package":         {deb: []byte("something else"), want: "unexpected end of file"},
		"link to nothing":    {change: func(l *Lock) { l.Links["usr/sbin/other"] = "gone" }, want: "link to gone: "},
		"link that is there": {change: func(l *Lock) { l.Links["usr/sbin/tool-nft"] = "tool-multi" }, want: "link to tool-multi: "},
		"link outside":       {change: func(l *Lock) { l.Links["../x"] = "y" }, want: "path escapes"},
	} {
		t.Run(name, func(t *testing.T) {
			a, l := newArchive(t), newLock(t)
			a.addTool(t, l)
			if test.deb != nil {
				l.Packages["amd64"], l.Links = l.Packages["amd64"][:1], nil
				a.addDeb(t, l, "tool", test.deb)
			}
			if test.change != nil {
				test.change(l)
			}
			if _, err := l.Base(t.Context(), "amd64", Apt{Mirror: a.URL}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

// A package is fetched once, and again when what is kept is damaged. Nothing else is ever kept.
func TestFetch(t *testing.T) {
	a, l, cache := newArchive(t), newLock(t), t.TempDir()
	a.addDeb(t, l, "tool", []byte("content"))
	p := l.Packages["amd64"][0]
	kept, inPool := filepath.Join(cache, p.SHA256+".deb"), filepath.Join(a.dir, p.Path)
	for i, step := range []struct {
		change   func() error
		requests int32
		want     string
	}{
		{func() error { return nil }, 1, ""},
		{func() error { return nil }, 1, ""},
		{func() error { return os.WriteFile(kept, []byte("damaged"), 0o644) }, 2, ""},
		{func() error { return errors.Join(os.Remove(kept), os.WriteFile(inPool, []byte("CONTENT"), 0o644)) }, 3, "Hash Sum mismatch"},
		{func() error { return os.Remove(inPool) }, 4, "404  Not Found"},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		// The slash is one too many.
		name, err := (&Apt{Mirror: a.URL + "/"}).fetch(t.Context(), cache, p)
		if content, _ := os.ReadFile(kept); step.want == "" && (err != nil || string(content) != "content" || name != kept) {
			t.Errorf("step %d: got %q with %q, %v", i, name, content, err)
		}
		if step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want) || !strings.Contains(err.Error(), "make pin-images")) {
			t.Errorf("step %d: want an error with %q, got %v", i, step.want, err)
		}
		if got := a.requests.Load(); got != step.requests {
			t.Errorf("step %d: %d requests, want %d", i, got, step.requests)
		}
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("kept %v, %v", left, err)
	}
}

// The mirror is the first that apt of this machine has for Debian.
func TestFindMirror(t *testing.T) {
	bin := t.TempDir()
	for output, want := range map[string]string{
		"printf 'http://a.example.com/debian/\\nhttp://b.example.com/debian/\\n'": "http://a.example.com/debian",
		"true":                "knows no mirror of Debian",
		"echo bad >&2; false": "bad",
	} {
		if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\n"+output+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		a := &Apt{}
		if err := a.FindMirror(t.Context()); err == nil && a.Mirror != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want %s", output, a.Mirror, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := (&Apt{}).FindMirror(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get") || !strings.Contains(err.Error(), "Debian or Ubuntu") {
		t.Errorf("got %v", err)
	}
}

const byHand = "# A comment.\nsuite: trixie\nroots: {tool: wanted}\nlinks: {usr/a: b}\n\n"

func writeLock(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoad(t *testing.T) {
	line := func(name, arch, path, sum string) string {
		return fmt.Sprintf("packages: {amd64: [{name: %s, version: 1.0, architecture: %s, path: %s, sha256: %q}]}\n", name, arch, path, sum)
	}
	sum := strings.Repeat("0a", 32)
	l, err := Load(writeLock(t, byHand+line("tool", "all", "pool/main/t/tool/tool_1~2+3.deb", sum)))
	if err != nil || len(l.Packages["amd64"]) != 1 || l.Links["usr/a"] != "b" {
		t.Errorf("got %+v, %v", l, err)
	}
	for content, want := range map[string]string{
		"suite: ../x\n":                                        `"../x" is not the name`,
		"suite: \"a b\"\n":                                     `"a b" is not the name`,
		"suite: trixie\nroots: {-o: x}\n":                      `"-o" is not the name`,
		byHand + "root: typo\n":                                `unknown field "root"`,
		byHand + line("../x", "all", "pool/x.deb", sum):        "cannot be",
		byHand + line("tool", "arm64", "pool/x.deb", sum):      "cannot be",
		byHand + line("tool", "amd64", "dists/x.deb", sum):     "cannot be",
		byHand + line("tool", "amd64", "pool/../../x", sum):    "cannot be",
		byHand + line("tool", "amd64", "pool/x.deb", "../x"):   "cannot be",
		byHand + line("tool", "amd64", "pool/x.deb", sum+"00"): "cannot be",
	} {
		name := writeLock(t, content)
		if _, err := Load(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: want an error with %q, got %v", content, want, err)
		}
	}
}

// ownLocks are the lock files of this repository, by name.
func ownLocks(t *testing.T) map[string]*Lock {
	t.Helper()
	files, err := filepath.Glob("../../../images/*.lock")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lock files: %v", err)
	}
	locks := map[string]*Lock{}
	for _, file := range files {
		if locks[filepath.Base(file)], err = Load(file); err != nil {
			t.Fatal(err)
		}
	}
	return locks
}

// A lock file of this repository has everything for each architecture, in the
// same versions: only builds of them may differ.
func TestOwnLocks(t *testing.T) {
	for name, l := range ownLocks(t) {
		versions := map[string]map[string]string{}
		for arch, packages := range l.Packages {
			versions[arch] = map[string]string{}
			for _, p := range packages {
				version, _, _ := strings.Cut(p.Version, "+b")
				versions[arch][p.Name] = version
			}
			for root := range l.Roots {
				if versions[arch][root] == "" {
					t.Errorf("%s: %s has no %s", name, arch, root)
				}
			}
		}
		if got, want := slices.Sorted(maps.Keys(versions)), Architectures; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if !maps.Equal(versions["amd64"], versions["arm64"]) {
			t.Errorf("%s: amd64 has %v, arm64 has %v", name, versions["amd64"], versions["arm64"])
		}
	}
}

// No pattern of this repository's lock files leaves out a licence.
func TestOwnLicences(t *testing.T) {
	for lockName, own := range ownLocks(t) {
		a, l := newArchive(t), newLock(t)
		l.Exclude = own.Exclude
		a.add(t, l, "tool", dir("./usr/"), dir("./usr/share/"), dir("./usr/share/doc/"), dir("./usr/share/doc/tool/"), copyright("tool"), data("./usr/share/doc/tool/changelog.gz", ""),
			data("./usr/share/doc/tool/README", ""), dir("./usr/share/common-licenses/"), data("./usr/share/common-licenses/GPL-2", ""))
		content, err := l.Base(t.Context(), "amd64", Apt{Mirror: a.URL})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"doc/tool/copyright": true, "common-licenses/GPL-2": true, "doc/tool/changelog.gz": false, "doc/tool/README": false} {
			if got := bytes.Contains(content, []byte("./usr/share/"+name+"\x00")); got != want {
				t.Errorf("%s: %s: %t, want %t", lockName, name, got, want)
			}
		}
	}
}
