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
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/openpgp"           //nolint:staticcheck // Test keys: the Debian library that we use checks signatures with it.
	"golang.org/x/crypto/openpgp/clearsign" //nolint:staticcheck // Test keys: the Debian library that we use checks signatures with it.
)

// suite is the list of packages of a suite, and what it is signed with.
type suite struct {
	signer *openpgp.Entity
	lists  map[string]string
}

func newSigner(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// inList is a package in a list.
func inList(name, version, arch, relations string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\n%sFilename: %s\nSize: 7\nSHA256: %064d\nDescription: a package\n that does: nothing\n\n",
		name, version, arch, relations, inPool(name, version), len(name))
}

// inPool is the path of a package. The epoch of the version is not in there.
func inPool(name, version string) string {
	_, plain, found := strings.Cut(version, ":")
	if !found {
		plain = version
	}
	return "pool/main/" + name + "_" + plain + ".deb"
}

func newSuite(t *testing.T) *suite {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("no apt-get on this machine")
	}
	s := &suite{signer: newSigner(t), lists: map[string]string{}}
	for _, arch := range Architectures {
		s.lists[arch] = inList("tool", "2.0", arch, "Pre-Depends: libc6 (>= 2.41)\nDepends: gone | liba (>= 1:1.0-1), libfake (>= 2) | libb+, virtual\nRecommends: alone\n") +
			inList("liba", "1:1.0-2", arch, "Depends: tool (= 2.0)\n") +
			inList("libb+", "1", "all", "") +
			inList("libfake", "1", arch, "") +
			inList("libc6", "2.41-1", arch, "") +
			inList("libc6", "2.42-1~b2+1", arch, "") +
			inList("libc6", "2.40-1", arch, "Depends: gone\n") +
			inList("really-a", "1", arch, "Provides: other, virtual\n") +
			inList("alone", "1", arch, "Depends: nothing-has-it\n")
	}
	return s
}

// publish serves the suite as an archive does, and returns where that is.
func (s *suite) publish(t *testing.T, a *archive) Apt {
	t.Helper()
	var sums strings.Builder
	for arch, list := range s.lists {
		name := "main/binary-" + arch + "/Packages"
		sum := sha256.Sum256([]byte(list))
		fmt.Fprintf(&sums, " %s %d %s\n", hex.EncodeToString(sum[:]), len(list), name)
		a.set(t, "/debian/dists/trixie/"+name, []byte(list))
	}
	var release bytes.Buffer
	w, err := clearsign.Encode(&release, s.signer.PrivateKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "Origin: Debian\nSuite: stable\nCodename: trixie\nDate: Sat, 12 Sep 2026 07:55:41 UTC\nArchitectures: all amd64 arm64\nComponents: main\nSHA256:\n%s", sums.String())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a.set(t, "/debian/dists/trixie/InRelease", release.Bytes())

	var key bytes.Buffer
	if err := s.signer.Serialize(&key); err != nil {
		t.Fatal(err)
	}
	keyring := filepath.Join(openDir(t), "archive.gpg")
	if err := os.WriteFile(keyring, key.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return Apt{Mirror: a.URL + "/debian/", Keyring: keyring}
}

// openDir is a folder that others may use, too: apt reads the key as another user.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carry-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPin(t *testing.T) {
	s := newSuite(t)
	apt := s.publish(t, newArchive(t))
	temporary := openDir(t)
	t.Setenv("TMPDIR", temporary)
	// What was written before is replaced.
	name := writeLock(t, byHand+pinned+"packages: {riscv64: []}\n")
	l, err := Pin(t.Context(), name, apt)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range Architectures {
		var want []Package
		for _, p := range []struct{ name, version, arch string }{
			{"liba", "1:1.0-2", arch}, {"libb+", "1", "all"}, {"libc6", "2.42-1~b2+1", arch}, {"really-a", "1", arch}, {"tool", "2.0", arch},
		} {
			want = append(want, Package{
				Name: p.name, Version: p.version, Architecture: p.arch, Path: inPool(p.name, p.version), SHA256: fmt.Sprintf("%064d", len(p.name)),
			})
		}
		if !slices.Equal(l.Packages[arch], want) {
			t.Errorf("%s: got %+v, want %+v", arch, l.Packages[arch], want)
		}
	}
	content, err := os.ReadFile(name)
	if err != nil || !bytes.HasPrefix(content, []byte(byHand+pinned+"packages:\n  amd64:\n")) {
		t.Errorf("got %s, %v", content, err)
	}
	if read, err := Load(name); err != nil || !reflect.DeepEqual(read.Packages, l.Packages) {
		t.Errorf("got %+v, %v", read, err)
	}
	if _, err := Pin(t.Context(), name, apt); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadFile(name); err != nil || !bytes.Equal(again, content) {
		t.Errorf("the second time: %s, %v", again, err)
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "carry-apt-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestPinErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *suite)
		after  func(t *testing.T, a *archive, apt *Apt)
		lock   string
		want   string
	}{
		"other key": {after: func(t *testing.T, _ *archive, apt *Apt) {
			other := &suite{signer: newSigner(t)}
			apt.Keyring = other.publish(t, newArchive(t)).Keyring
		}, want: "NO_PUBKEY"},
		"changed after it was signed": {after: func(t *testing.T, a *archive, _ *Apt) {
			a.edit(t, "/debian/dists/trixie/InRelease", "Origin: Debian", "Origin: Debiam")
		}, want: "BADSIG"},
		"changed list": {after: func(t *testing.T, a *archive, _ *Apt) {
			a.edit(t, "/debian/dists/trixie/main/binary-arm64/Packages", "tool_2.0", "tool_6.6")
		}, want: "Hash Sum mismatch"},
		"no keys":      {after: func(_ *testing.T, _ *archive, apt *Apt) { apt.Keyring += "-gone" }, want: "NO_PUBKEY"},
		"no apt":       {after: func(t *testing.T, _ *archive, _ *Apt) { t.Setenv("PATH", t.TempDir()) }, want: "of Debian or Ubuntu"},
		"architecture": {change: func(s *suite) { delete(s.lists, "arm64") }, want: "arm64"},
		"root":         {lock: "suite: trixie\nroots: {absent: x}\n", want: "Unable to locate package absent"},
		"dependency":   {lock: "suite: trixie\nroots: {alone: x}\n", want: "nothing-has-it"},
		"weak sum": {change: func(s *suite) {
			s.lists["arm64"] = strings.ReplaceAll(s.lists["arm64"], "SHA256:", "SHA1:")
		}, want: "trixie for arm64: "},
		"path": {change: func(s *suite) {
			s.lists["arm64"] = strings.Replace(s.lists["arm64"], "pool/main/tool", "pool/../tool", 1)
		}, want: "cannot be"},
		"suite": {lock: "suite: ../x\n", want: "is not the name of a suite"},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := newSuite(t), newArchive(t)
			if test.change != nil {
				test.change(s)
			}
			apt := s.publish(t, a)
			if test.after != nil {
				test.after(t, a, &apt)
			}
			content := cmp.Or(test.lock, byHand)
			lock := writeLock(t, content)
			if _, err := Pin(t.Context(), lock, apt); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
			if got, err := os.ReadFile(lock); err != nil || string(got) != content {
				t.Errorf("it was changed: %s, %v", got, err)
			}
		})
	}
}
