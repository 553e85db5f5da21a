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
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubernetes-dra/hack/pkg/image"
)

// entry is a file in a package.
type entry struct {
	name    string
	mode    int64
	kind    byte // a regular file if there is none
	target  string
	content string
}

func dir(name string) entry              { return entry{name: name, mode: 0o755, kind: tar.TypeDir} }
func data(name, content string) entry    { return entry{name: name, mode: 0o644, content: content} }
func program(name, content string) entry { return entry{name: name, mode: 0o755, content: content} }
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

// newELF is a program or library that needs libraries, and something that loads it.
func newELF(t *testing.T, machine elf.Machine, interpreter string, libraries ...string) string {
	t.Helper()
	const headerSize, progSize, sectionSize = 64, 56, 64
	names := "\x00"
	var dynamic bytes.Buffer
	write := func(out *bytes.Buffer, value any) {
		if err := binary.Write(out, binary.LittleEndian, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, library := range libraries {
		write(&dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names += library + "\x00"
	}
	write(&dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	loader := interpreter + "\x00"
	loaderAt := uint64(headerSize + progSize)
	namesAt := loaderAt + uint64(len(loader))
	dynamicAt := namesAt + uint64(len(names))
	sectionsAt := dynamicAt + uint64(dynamic.Len())
	prog := elf.Prog64{Type: uint32(elf.PT_NULL)}
	if interpreter != "" {
		prog = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: loaderAt, Filesz: uint64(len(loader))}
	}
	var out bytes.Buffer
	write(&out, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Shoff: sectionsAt, Ehsize: headerSize, Phentsize: progSize, Phnum: 1, Shentsize: sectionSize, Shnum: 3, Shstrndx: 1,
	})
	write(&out, prog)
	out.WriteString(loader + names)
	out.Write(dynamic.Bytes())
	write(&out, elf.Section64{})
	write(&out, elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))})
	write(&out, elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: dynamicAt, Size: uint64(dynamic.Len()), Link: 1})
	return out.String()
}

// archive serves packages as the pool and the snapshot do.
type archive struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	requests []string
}

func newArchive(t *testing.T) *archive {
	a := &archive{files: map[string][]byte{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.requests = append(a.requests, r.URL.Path)
		content, ok := a.files[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case content == nil:
			http.Error(w, "broken", http.StatusInternalServerError)
		default:
			_, _ = w.Write(content)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *archive) set(path string, content []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files[path] = content
}

// asked are the paths since the last call.
func (a *archive) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.requests
	a.requests = nil
	return asked
}

func (a *archive) source(cache string) Source {
	return Source{Cache: cache, Pool: a.URL + "/pool", Snapshot: a.URL + "/snapshot"}
}

// add adds a package to the pool, and to the lock file.
func (a *archive) add(t *testing.T, l *Lock, name string, entries ...entry) {
	t.Helper()
	a.addDeb(l, name, newDeb(t, controlOf(name, "1.0+b1", "amd64"), entries))
}

func (a *archive) addDeb(l *Lock, name string, content []byte) {
	sum := sha256.Sum256(content)
	p := Package{
		Name: name, Version: "1.0+b1", Architecture: "amd64", Path: "pool/main/" + name + "_1.0+b1_amd64.deb",
		Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
	}
	l.Packages["amd64"] = append(l.Packages["amd64"], p)
	a.set("/pool/"+p.Path, content)
}

func newLock(roots ...string) *Lock {
	l := &Lock{Suite: "trixie", Snapshot: "20260913T075541Z", Packages: map[string][]Package{}}
	for _, name := range roots {
		l.Roots = append(l.Roots, Choice{name, "wanted"})
	}
	return l
}

const (
	amd64Loader = "/lib64/ld.so.2"
	amd64Folder = "./usr/lib/x86_64-linux-gnu/"
)

// addSystem adds what every lock file has, and a program that needs a library.
func (a *archive) addSystem(t *testing.T, l *Lock) {
	t.Helper()
	a.add(t, l, "base-files",
		dir("./"), dir("./usr/"), dir("./usr/bin/"), dir("./usr/lib/"), dir("./usr/lib64/"), dir("./usr/sbin/"), soft("./bin", "usr/bin"),
		soft("./lib", "usr/lib"), soft("./lib64", "usr/lib64"), soft("./sbin", "usr/sbin"),
		entry{name: "./tmp/", mode: 0o1777, kind: tar.TypeDir}, entry{name: "./var/mail/", mode: 0o2775, kind: tar.TypeDir},
		copyright("base-files"))
	a.add(t, l, "libc6",
		dir("./lib/"), soft("./usr/lib64/ld.so.2", "../lib/x86_64-linux-gnu/ld.so.2"),
		program(amd64Folder+"ld.so.2", newELF(t, elf.EM_X86_64, "")),
		program(amd64Folder+"libc.so.6", newELF(t, elf.EM_X86_64, "", "ld.so.2")),
		data(amd64Folder+"libunused.so.1.2", newELF(t, elf.EM_X86_64, "")), soft(amd64Folder+"libunused.so.1", "libunused.so.1.2"),
		dir(amd64Folder+"engines/"), data(amd64Folder+"engines/one.so", newELF(t, elf.EM_X86_64, "")),
		dir(amd64Folder+"engines/more/"), data(amd64Folder+"engines/more/two.so", newELF(t, elf.EM_X86_64, "")),
		dir("./usr/share/engines/"), soft("./usr/share/engines/all", "../../lib/x86_64-linux-gnu/engines"),
		dir(amd64Folder+"gconv/"), data(amd64Folder+"gconv/gconv-modules", "modules"),
		copyright("libc6"), data("./usr/share/doc/libc6/changelog.gz", "changes"))
	// Older packages have their libraries here.
	a.add(t, l, "libx1",
		data("./lib/x86_64-linux-gnu/libx.so.1.5", newELF(t, elf.EM_X86_64, "", "libc.so.6")), soft("./lib/x86_64-linux-gnu/libx.so.1", "libx.so.1.5"),
		soft("./usr/share/doc/libx1", "tool"))
}

func TestBase(t *testing.T) {
	a, l := newArchive(t), newLock("base-files", "tool")
	l.Links = []Link{{"/usr/sbin/tool", "tool-nft"}, {"/etc/alternatives/tool", "/usr/sbin/tool"}}
	a.addSystem(t, l)
	tool := newELF(t, elf.EM_X86_64, amd64Loader, "libx.so.1", "libc.so.6")
	plugin := newELF(t, elf.EM_X86_64, "", "libc.so.6")
	a.add(t, l, "tool",
		entry{name: "./usr/sbin/tool-multi", mode: 0o4755, content: tool}, soft("./usr/sbin/tool-nft", "tool-multi"),
		hard("./usr/bin/tool-too", "./usr/sbin/tool-multi"), data(amd64Folder+"tool/plugin.so", plugin),
		program("./usr/sbin/perl-script", "#! /usr/bin/perl -w\n"), soft("./usr/sbin/perl-script6", "perl-script"),
		program("./etc/rules", "#!/sbin/tool-nft -f\n"), program("./usr/bin/odd", "#!\n"), data("./usr/bin/not-executable", "#!/usr/bin/perl\n"),
		dir("./usr/share/man/"), dir("./usr/share/man/man8/"), data("./usr/share/man/man8/tool.8.gz", "manual"),
		hard("./usr/share/also-the-manual", "./usr/share/man/man8/tool.8.gz"), data("./usr/share/manual", "another folder"),
		dir("./usr/lib/systemd/"), data("./usr/lib/systemd/tool.service", "service"),
		dir("./usr/share/doc/tool/"), copyright("tool"), data("./usr/share/doc/tool/examples/copyright", "an example"))
	files, err := l.Base(t.Context(), "amd64", a.source(""))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	contents := map[string]string{}
	for _, f := range files {
		line := fmt.Sprintf("%s %o", f.Path, f.Mode)
		if f.Folder {
			line += " folder"
		}
		if f.Target != "" {
			line += " -> " + f.Target
		}
		got = append(got, line)
		contents[f.Path] = string(f.Content)
	}
	want := []string{
		"/bin 777 -> usr/bin",
		"/etc 755 folder",
		"/etc/alternatives 755 folder",
		"/etc/alternatives/tool 777 -> /usr/sbin/tool",
		"/etc/rules 755",
		"/lib 777 -> usr/lib",
		"/lib64 777 -> usr/lib64",
		"/sbin 777 -> usr/sbin",
		"/tmp 1777 folder",
		"/usr 755 folder",
		"/usr/bin 755 folder",
		"/usr/bin/not-executable 644",
		"/usr/bin/tool-too 755",
		"/usr/lib 755 folder",
		"/usr/lib/x86_64-linux-gnu 755 folder",
		"/usr/lib/x86_64-linux-gnu/ld.so.2 755",
		"/usr/lib/x86_64-linux-gnu/libc.so.6 755",
		"/usr/lib/x86_64-linux-gnu/libx.so.1 777 -> libx.so.1.5",
		"/usr/lib/x86_64-linux-gnu/libx.so.1.5 644",
		"/usr/lib/x86_64-linux-gnu/tool 755 folder",
		"/usr/lib/x86_64-linux-gnu/tool/plugin.so 644",
		"/usr/lib64 755 folder",
		"/usr/lib64/ld.so.2 777 -> ../lib/x86_64-linux-gnu/ld.so.2",
		"/usr/sbin 755 folder",
		"/usr/sbin/tool 777 -> tool-nft",
		"/usr/sbin/tool-multi 755",
		"/usr/sbin/tool-nft 777 -> tool-multi",
		"/usr/share 755 folder",
		"/usr/share/also-the-manual 644",
		"/usr/share/doc 755 folder",
		"/usr/share/doc/base-files 755 folder",
		"/usr/share/doc/base-files/copyright 644",
		"/usr/share/doc/libc6 755 folder",
		"/usr/share/doc/libc6/copyright 644",
		"/usr/share/doc/libx1 777 -> tool",
		"/usr/share/doc/tool 755 folder",
		"/usr/share/doc/tool/copyright 644",
		"/usr/share/manual 644",
		"/var 755 folder",
		"/var/lib 755 folder",
		"/var/lib/dpkg 755 folder",
		"/var/lib/dpkg/status.d 755 folder",
		"/var/lib/dpkg/status.d/base-files 644",
		"/var/lib/dpkg/status.d/libc6 644",
		"/var/lib/dpkg/status.d/libx1 644",
		"/var/lib/dpkg/status.d/tool 644",
		"/var/mail 775 folder",
	}
	// libx1 has no folder for its licence, it has the tool's.
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, content := range map[string]string{
		"/usr/sbin/tool-multi": tool, "/usr/bin/tool-too": tool, "/usr/share/also-the-manual": "manual",
		"/usr/share/doc/tool/copyright": "licence of tool", "/var/lib/dpkg/status.d/tool": controlOf("tool", "1.0+b1", "amd64"),
	} {
		if contents[name] != content {
			t.Errorf("%s: got %q, want %q", name, contents[name], content)
		}
	}
	again, err := l.Base(t.Context(), "amd64", a.source(""))
	if err != nil || !reflect.DeepEqual(files, again) {
		t.Errorf("it is different the second time: %v", err)
	}
	img := image.Image{Names: []string{"registry.example.com/image:1"}, Base: files}
	if err := img.Write(t.Context(), filepath.Join(t.TempDir(), "image.tar")); err != nil {
		t.Error(err)
	}
}

// The libraries of arm64 are elsewhere.
func TestBaseForOther(t *testing.T) {
	a, l := newArchive(t), newLock("tool")
	content := newDeb(t, controlOf("tool", "1.0+b1", "all"), []entry{
		program("./usr/sbin/tool", newELF(t, elf.EM_AARCH64, "/usr/lib/ld.so.1", "libc.so.6", "libx.so.1")),
		program("./lib/libx.so.1", newELF(t, elf.EM_AARCH64, "")),
		program("./usr/lib/ld.so.1", newELF(t, elf.EM_AARCH64, "")),
		program("./usr/lib/aarch64-linux-gnu/libc.so.6", newELF(t, elf.EM_AARCH64, "")), copyright("tool"),
	})
	a.addDeb(l, "tool", content)
	l.Packages["amd64"][0].Architecture = "all"
	l.Packages["arm64"] = l.Packages["amd64"]
	if _, err := l.Base(t.Context(), "arm64", a.source("")); err != nil {
		t.Error(err)
	}
	if _, err := l.Base(t.Context(), "amd64", a.source("")); err == nil || !strings.Contains(err.Error(), "it is for EM_AARCH64, not for amd64") {
		t.Errorf("got %v", err)
	}
	if _, err := l.Base(t.Context(), "riscv64", a.source("")); err == nil || !strings.Contains(err.Error(), "no packages for riscv64") {
		t.Errorf("got %v", err)
	}
}

func TestBaseErrors(t *testing.T) {
	for name, test := range map[string]struct {
		entries []entry
		links   []Link
		want    string
	}{
		"library":              {entries: []entry{program("./usr/bin/tool", newELF(t, elf.EM_X86_64, "", "libgone.so.1"))}, want: "usr/bin/tool needs libgone.so.1, which"},
		"library of a library": {entries: []entry{program("./usr/bin/tool", newELF(t, elf.EM_X86_64, "", "liba.so")), data("./usr/lib/liba.so", newELF(t, elf.EM_X86_64, "", "libb.so"))}, want: "usr/lib/liba.so needs libb.so, which"},
		"library is no library": {entries: []entry{program("./usr/bin/tool", newELF(t, elf.EM_X86_64, "", "liba.so")), data("./usr/lib/liba.so", "INPUT(-la)")},
			want: "usr/bin/tool needs liba.so, which"},
		"loader":               {entries: []entry{program("./usr/bin/tool", newELF(t, elf.EM_X86_64, "/lib64/gone.so"))}, want: "usr/bin/tool needs /lib64/gone.so, which"},
		"damaged program":      {entries: []entry{program("./usr/bin/tool", "\x7fELF")}, want: "usr/bin/tool: "},
		"path":                 {entries: []entry{data("./../etc/passwd", "")}, want: `"./../etc/passwd" leaves the image`},
		"path in the middle":   {entries: []entry{data("./usr/../../etc/passwd", "")}, want: `"./usr/../../etc/passwd" leaves the image`},
		"absolute path":        {entries: []entry{data("/etc/passwd", "")}, want: `"/etc/passwd" leaves the image`},
		"link":                 {entries: []entry{soft("./usr/link", "../../etc")}, want: `"./usr/link" to "../../etc" leaves the image`},
		"hard link":            {entries: []entry{hard("./usr/link", "../etc/passwd")}, want: `"../etc/passwd" leaves the image`},
		"hard link to nothing": {entries: []entry{hard("./usr/link", "./usr/later"), data("./usr/later", "")}, want: `a hard link to "./usr/later", which does not come before it`},
		"device":               {entries: []entry{{name: "./dev/null", kind: tar.TypeChar}}, want: `"./dev/null" is neither`},
		"twice":                {entries: []entry{data("./usr/share/doc/libc6/copyright", "other")}, want: `"usr/share/doc/libc6/copyright" is there already`},
		"below a link":         {entries: []entry{soft("./etc", "usr"), data("./etc/passwd", "")}, want: `"etc/passwd" is in "etc", which is no folder`},
		"below a file":         {entries: []entry{data("./etc", ""), data("./etc/passwd", "")}, want: `"etc/passwd" is in "etc", which is no folder`},
		"dangling link":        {links: []Link{{"/usr/sbin/tool", "gone"}}, want: "/usr/sbin/tool to gone in the lock file leads to nothing"},
		"links in a circle":    {links: []Link{{"/usr/a", "b"}, {"/usr/b", "a"}}, want: "/usr/a to b in the lock file leads to nothing"},
		"link that is there":   {links: []Link{{"/tmp", "var"}}, want: `"tmp" is there already`},
	} {
		t.Run(name, func(t *testing.T) {
			a, l := newArchive(t), newLock("tool")
			l.Links = test.links
			a.addSystem(t, l)
			a.add(t, l, "tool", append(test.entries, copyright("tool"))...)
			if _, err := l.Base(t.Context(), "amd64", a.source("")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
	t.Run("no licence", func(t *testing.T) {
		a, l := newArchive(t), newLock("tool")
		a.add(t, l, "tool", data("./usr/share/doc/other/copyright", ""))
		if _, err := l.Base(t.Context(), "amd64", a.source("")); err == nil || !strings.Contains(err.Error(), "package tool has no licence") {
			t.Errorf("got %v", err)
		}
	})
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"other name":         {newDeb(t, controlOf("x", "1.0+b1", "amd64"), nil), `its field Package is "x", but the lock file says "tool"`},
		"other version":      {newDeb(t, controlOf("tool", "1.0", "amd64"), nil), `its field Version is "1.0", but the lock file says "1.0+b1"`},
		"other architecture": {newDeb(t, controlOf("tool", "1.0+b1", "arm64"), nil), `its field Architecture is "arm64", but the lock file says "amd64"`},
		"no package":         {[]byte("something else"), "package tool 1.0+b1: "},
		"half a package":     {newDeb(t, controlOf("tool", "1.0+b1", "amd64"), []entry{data("./a", strings.Repeat("a", 1000))})[:400], "package tool 1.0+b1: "},
	} {
		t.Run(name, func(t *testing.T) {
			a, l := newArchive(t), newLock("tool")
			a.addDeb(l, "tool", test.content)
			if _, err := l.Base(t.Context(), "amd64", a.source("")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

// Packages that Debian's own program made, in each of its formats.
func TestFormats(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb on this machine")
	}
	for _, format := range []string{"gzip", "none", "xz", "zstd"} {
		t.Run(format, func(t *testing.T) {
			root := t.TempDir()
			// dpkg-deb wants the usual permissions, whatever the umask is.
			for name, content := range map[string]string{"DEBIAN/control": controlOf("tool", "1.0+b1", "amd64"), "usr/share/doc/tool/copyright": "licence", "usr/data": "data"} {
				if err := os.MkdirAll(filepath.Join(root, path.Dir(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Chmod(root, 0o755), os.Chmod(filepath.Join(root, "DEBIAN"), 0o755), os.Link(filepath.Join(root, "usr/data"), filepath.Join(root, "usr/link"))); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(t.TempDir(), "tool.deb")
			if out, err := exec.Command("dpkg-deb", "-Z"+format, "--root-owner-group", "--build", root, name).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			a, l := newArchive(t), newLock("tool")
			a.addDeb(l, "tool", content)
			files, err := l.Base(t.Context(), "amd64", a.source(""))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"/usr/data", "/usr/link"} {
				if i := slices.IndexFunc(files, func(f image.File) bool { return f.Path == name }); i < 0 || string(files[i].Content) != "data" {
					t.Errorf("%s is missing or wrong", name)
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	tr := &tree{nodes: map[string]*node{
		"usr":       {kind: folder},
		"usr/lib":   {kind: folder},
		"usr/lib/a": {},
		"lib":       {kind: symlink, target: "usr/lib"},
		"b":         {kind: symlink, target: "/lib/./a"},
		"usr/c":     {kind: symlink, target: "../../../lib/a"},
		"usr/d":     {kind: symlink, target: "../b"},
		"usr/g":     {kind: symlink, target: "/usr/lib/a"},
		"e":         {kind: symlink, target: "e"},
		"f":         {kind: symlink, target: "gone/x"},
	}}
	for name, want := range map[string]string{
		"/usr/lib/a": "usr/lib/a", "lib/a": "usr/lib/a", "b": "usr/lib/a", "usr/c": "usr/lib/a", "usr/d": "usr/lib/a", "usr/g": "usr/lib/a", "f": "gone/x", "e": "e", "": "",
	} {
		if got := tr.resolve(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestFetch(t *testing.T) {
	a, l, cache := newArchive(t), newLock("tool"), t.TempDir()
	a.addDeb(l, "tool", []byte("content"))
	p := l.Packages["amd64"][0]
	const pool, snapshot = "/pool/pool/main/tool_1.0+b1_amd64.deb", "/snapshot/20260913T075541Z/pool/main/tool_1.0+b1_amd64.deb"
	kept := filepath.Join(cache, "debian", p.SHA256+".deb")
	fetch := func(cache, want string, asked ...string) {
		t.Helper()
		content, err := a.source(cache).fetch(t.Context(), l, p)
		if want == "" && (err != nil || string(content) != "content") {
			t.Errorf("got %q, %v", content, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "package tool 1.0+b1: ") || !strings.Contains(err.Error(), a.URL)) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if got := a.asked(); !slices.Equal(got, asked) {
			t.Errorf("asked for %q, want %q", got, asked)
		}
	}
	fetch("", "", pool)
	fetch(cache, "", pool)
	fetch(cache, "")
	if err := os.WriteFile(kept, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	fetch(cache, "", pool)
	fetch(cache, "")

	cache = t.TempDir()
	for content, want := range map[string]string{
		"short":       "it has 5 bytes, but the lock file says 7",
		"contents":    "it is longer than the 7 bytes",
		"CONTENT":     "its SHA-256 sum is ",
		"\x00content": "it is longer than the 7 bytes",
	} {
		a.set(pool, []byte(content))
		fetch(cache, want, pool)
	}
	a.set(pool, nil)
	fetch(cache, "500 Internal Server Error", pool)
	delete(a.files, pool)
	const missing = "tool_1.0%2Bb1_amd64.deb: the server does not have it: 404 Not Found"
	fetch(cache, "/pool/pool/main/"+missing, pool, snapshot)
	fetch(cache, "/snapshot/20260913T075541Z/pool/main/"+missing, pool, snapshot)
	a.set(snapshot, []byte("CONTENT"))
	fetch(cache, "its SHA-256 sum is ", pool, snapshot)
	if left, err := filepath.Glob(filepath.Join(cache, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("kept %q, %v", left, err)
	}
	a.set(snapshot, []byte("content"))
	fetch(cache, "", pool, snapshot)
	fetch(cache, "")
	a.Close()
	fetch(t.TempDir(), "connection refused")
}

// Some servers take a plus sign for a space.
func TestEscape(t *testing.T) {
	if got, want := snapshotURL("https://example.com", "2026", "pool/main/a_1.0+b1~x.deb"), "https://example.com/2026/pool/main/a_1.0%2Bb1~x.deb"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l := newLock()
	p := Package{Name: "libstdc++6", Version: "1:1.3.dfsg+really1.3.1-1~b1", Architecture: "all", Path: "pool/a+b.deb"}
	if got, want := l.PURL(p), "pkg:deb/debian/libstdc%2B%2B6@1:1.3.dfsg%2Breally1.3.1-1~b1?arch=all&distro=trixie"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := l.SnapshotURL(p), "https://snapshot.debian.org/archive/debian/20260913T075541Z/pool/a%2Bb.deb"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLock(t *testing.T) {
	a, l := newArchive(t), newLock("tool")
	a.addDeb(l, "tool", []byte("content"))
	l.Omit, l.Links = []Choice{{"awk", "for scripts"}}, []Link{{"/a", "b"}}
	name := filepath.Join(t.TempDir(), "lock")
	for range 2 {
		if err := l.Write(name); err != nil {
			t.Fatal(err)
		}
		read, err := Load(name)
		if err != nil || !reflect.DeepEqual(read, l) {
			t.Fatalf("got %+v, %v, want %+v", read, err, l)
		}
	}
	for want, change := range map[string]func(l *Lock){
		`suite "../x"`:                      func(l *Lock) { l.Suite = "../x" },
		"there are no roots":                func(l *Lock) { l.Roots = nil },
		`"tool" among the roots`:            func(l *Lock) { l.Roots[0].Reason = "" },
		`"Awk" among the roots`:             func(l *Lock) { l.Omit[0].Name = "Awk" },
		`link "a"`:                          func(l *Lock) { l.Links[0].Path = "a" },
		`link "/a/../b"`:                    func(l *Lock) { l.Links[0].Path = "/a/../b" },
		`link "/"`:                          func(l *Lock) { l.Links[0].Path = "/" },
		`link "/a"`:                         func(l *Lock) { l.Links[0].Target = "" },
		"snapshot: ":                        func(l *Lock) { l.Snapshot = "today" },
		"that is not the name of a package": func(l *Lock) { l.Packages["amd64"][0].Name = "../x" },
		`it is for "arm64"`:                 func(l *Lock) { l.Packages["amd64"][0].Architecture = "arm64" },
		`the path "dists/x" is not`:         func(l *Lock) { l.Packages["amd64"][0].Path = "dists/x" },
		`the path "pool/../../x" is not`:    func(l *Lock) { l.Packages["amd64"][0].Path = "pool/../../x" },
		"the size is 0":                     func(l *Lock) { l.Packages["amd64"][0].Size = 0 },
		`"../x" is not a SHA-256 sum`:       func(l *Lock) { l.Packages["amd64"][0].SHA256 = "../x" },
	} {
		l, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		change(l)
		changed := filepath.Join(t.TempDir(), "lock")
		if err := l.Write(changed); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(changed); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), changed) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if err := os.WriteFile(name, []byte("suite: trixie\nroot: typo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), `unknown field "root"`) {
		t.Errorf("got %v", err)
	}
}

// The lock file of this repository has everything for each architecture, in the
// same versions: only builds of them may differ.
func TestProxyLock(t *testing.T) {
	l, err := Load(filepath.Join("..", "..", "..", ProxyLock))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]map[string]string{}
	for arch, packages := range l.Packages {
		versions[arch] = map[string]string{}
		for _, p := range packages {
			version, _, _ := strings.Cut(p.Version, "+b")
			versions[arch][p.Name] = version
		}
		for _, root := range l.Roots {
			if versions[arch][root.Name] == "" {
				t.Errorf("%s has no %s", arch, root.Name)
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(versions)), Architectures; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !maps.Equal(versions["amd64"], versions["arm64"]) {
		t.Errorf("amd64 has %v, arm64 has %v", versions["amd64"], versions["arm64"])
	}
}
