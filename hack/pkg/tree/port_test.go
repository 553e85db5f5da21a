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

package tree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// A seam that fits stays, one that a merge fits is written, and a conflict is left to git.
func TestPort(t *testing.T) {
	f := newFixture(t)
	later := base()
	// The seam of fixes is merged, and that of the types is in the way of a conflict.
	later[plugin] = change(later[plugin], "plugin 8\n", "plugin 8, later\n")
	later[types] = change(later[types], "type 15\n", "type 15, later\n")
	later["pkg/reservedfor_other.go"] = "package other\n"
	f.others = map[string]fakeUpstream{"1.37": later}
	f.write(ledger.Path, strings.Replace(fixtureLedger, "features:", "- {name: \"1.37\", version: v1.37.0, released: \"2026-11-22T18:07:38Z\", state: planned}\nfeatures:", 1))
	f.write("pkg/old_reservedfor.1.32-1.36.go", "package pkg // old\n")
	f.open("1.36")
	to, err := f.Ledger.Known("1.37")
	if err != nil {
		t.Fatal(err)
	}
	f.mustBuild()
	// An interrupt before there is anything to go on from.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.Tree.Log = func(format string, _ ...any) {
		if strings.HasPrefix(format, "base:") {
			cancel()
		}
	}
	if err := f.Port(ctx, to); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	f.open("1.36")
	repo := git.Dir(filepath.Join(f.Repo, "_output", "port", "1.36-1.37"))
	// And one between two picks.
	writeFile(t, filepath.Join(string(repo)+".new", ".git", "sequencer", "todo"), "pick 1234567 fixes: bugs\n")
	err = f.Port(t.Context(), to)
	f.wantError(err, "does not fit v1.37.0", types, "git cherry-pick --continue", "make port again")
	f.wantOverlay(plugin+".fixes.1.37+.patch", "-")

	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(string(repo), ".git", from), filepath.Join(string(repo), ".git", to)); err != nil {
			t.Fatal(err)
		}
	}
	// Between two picks, and after git cherry-pick --quit.
	move("CHERRY_PICK_HEAD", "moved")
	f.wantError(f.Port(t.Context(), to), "in the middle of a cherry-pick", "git cherry-pick --continue")
	move("sequencer", "moved-too")
	f.wantError(f.Port(t.Context(), to), "has no commit of reservedfor", "git cherry-pick --keep-redundant-commits")
	f.wantOverlay(plugin+".fixes.1.37+.patch", "-")
	move("moved", "CHERRY_PICK_HEAD")
	move("moved-too", "sequencer")
	resolved := change(later[types], "type 15, later\n", "type 15, later\nReservedFor\n")
	writeFile(t, filepath.Join(string(repo), types), resolved)
	for _, args := range [][]string{{"add", "--all"}, {"-c", "core.editor=true", "cherry-pick", "--continue"}} {
		if _, err := repo.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time, there is nothing left to do
		f.log = nil
		if err := f.Port(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.log) > 0 {
		t.Errorf("the second time: %q", f.log)
	}
	const old = "pkg/old_reservedfor.1.37+.go"
	f.wantOverlay(old, "package pkg // old\n")
	f.write(old, "package pkg // edited\n")
	f.wantError(f.Port(t.Context(), to), old+" holds for 1.37, too", "remove it to have it written anew")
	f.wantOverlay(old, "package pkg // edited\n")
	f.write(old, "package pkg // old\n")
	f.wantOverlay("pkg/reservedfor.1.37+.go", "-")
	f.wantOverlay(plugin+".reservedfor.1.37+.patch", "-")

	f.write(ledger.Path, strings.NewReplacer("state: planned}\nfeatures", "state: carried}\nfeatures", `"1.36": carried`, `"1.36": carried, "1.37": carried`).Replace(f.overlay(ledger.Path)))
	f.write("hack/releases/1.37/go.sum", "sum\n")
	f.upstream = later
	f.open("1.37")
	f.mustBuild()
	f.wantContent(types, resolved)
	f.wantContent(plugin, change(wholePlugin, "plugin 8\n", "plugin 8, later\n"))
	f.wantContent("pkg/old_reservedfor.go", "package pkg // old\n")
}

// What upstream has by now is named, and a name that is in the way is refused.
func TestPortNames(t *testing.T) {
	f := newFixture(t)
	later := base()
	later[plugin] = fixedPlugin
	later[types] = change(later[types], "type 13\n", "type 13, later\n")
	f.others = map[string]fakeUpstream{"1.32": later}
	seam := types + ".reservedfor"
	f.write(seam+".1.32-1.36.patch", f.overlay(seam+".patch"))
	f.remove(filepath.Join(f.Repo, seam+".patch"))
	f.mustBuild()
	to, err := f.Ledger.Known("1.32")
	if err != nil {
		t.Fatal(err)
	}
	f.wantError(f.Port(t.Context(), to), seam+".1.32-1.36.patch holds for 1.32, too", "give it a name")
	f.write(seam+".1.36.patch", f.overlay(seam+".1.32-1.36.patch"))
	f.remove(filepath.Join(f.Repo, seam+".1.32-1.36.patch"))
	if err := f.Port(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if got := f.overlay(seam + ".1.32.patch"); !strings.Contains(got, "type 13, later") {
		t.Errorf("got %s", got)
	}
	if log := strings.Join(f.log, "\n"); !strings.Contains(log, plugin+".fixes.patch: not needed in 1.32") {
		t.Errorf("the log has:\n%s", log)
	}
}
