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
	"bufio"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// mostReads is how many paths a line may name. If tests read more, folders with all that is
// below them stand for their files.
const mostReads = 24

// whole marks a folder that stands for everything below it.
const whole = "/..."

// variable marks an environment variable among what tests read.
const variable = "env:"

// machine are environment variables that say where things are, and not what tests do: their
// values differ from machine to machine. "X*" stands for all that begin with X.
var machine = []string{
	"GO*", "CGO*", "GIT_*", "HOME", "HOSTNAME", "HTTP_PROXY", "HTTPS_PROXY", "LANG", "LC_*", "LOGNAME", "NO_COLOR", "NO_PROXY", "PATH", "PWD", "SHELL",
	"SSH*", "TEMP", "TERM", "TEST_SRCDIR", "TEST_WORKSPACE", "TMP", "TMPDIR", "TZ", "USER", "XDG_*", "http_proxy", "https_proxy", "no_proxy",
}

// Log reads the log of a test binary (-test.testlogfile, what "go test" uses for its cache):
// the files and environment variables that tests read. It returns those that can change a
// result and that the key of the package does not have: paths in the work tree, relative to
// it, and variables. Files elsewhere belong to modules, which go.sum fixes, or to the machine.
func (c *Content) Log(log io.Reader, dir string, aliases ...string) ([]string, error) {
	cwd := dir
	seen := map[string]bool{}
	scanner := bufio.NewScanner(log)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		op, name, found := strings.Cut(scanner.Text(), " ")
		if !found || strings.HasPrefix(op, "#") {
			continue
		}
		switch op {
		case "getenv":
			if !sys.MatchVariable(machine, name) && !strings.ContainsAny(name, " ,") {
				seen[variable+name] = true
			}
		case "chdir", "open", "stat":
			if !filepath.IsAbs(name) {
				name = filepath.Join(cwd, name)
			}
			if op == "chdir" {
				cwd = name
			} else if rel, inside := c.relative(name, aliases); inside && !c.inPackage(dir, rel) && c.mayMatter(rel) {
				seen[rel] = true
			}
		default:
			return nil, fmt.Errorf("the log of a test has %q, which this program does not know", scanner.Text())
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("the log of a test: %w", err)
	}
	var reads []string
	for name := range seen {
		reads = append(reads, name)
	}
	return fold(reads), nil
}

// relative returns the path in the work tree. Aliases are folders that lead there, too.
func (c *Content) relative(name string, aliases []string) (string, bool) {
	for _, dir := range append([]string{c.Dir}, aliases...) {
		if rel, inside := sys.Within(dir, name); inside {
			return rel, true
		}
	}
	return "", false
}

// mayMatter says whether a path that a test looked at can be in the work tree some day. What
// git ignores, and git's own files, cannot.
func (c *Content) mayMatter(rel string) bool {
	top, _, _ := strings.Cut(rel, "/")
	return top != ".git" && top != "_output" && !strings.ContainsAny(rel, " ,\n")
}

// inPackage says whether a path belongs to what the key of the package in a folder has.
func (c *Content) inPackage(dir, rel string) bool {
	pkg, inside := sys.Within(c.Dir, dir)
	if !inside || rel != pkg && !strings.HasPrefix(rel, pkg+"/") && pkg != "." {
		return false
	}
	for parent := path.Dir(rel); parent != pkg && parent != "."; parent = path.Dir(parent) {
		if c.hasGo(parent) {
			return false
		}
	}
	// A folder with Go files is another package.
	return rel == pkg || !c.hasGo(rel)
}

// fold shortens a list of paths: the deepest folders stand for their files until it is short.
func fold(reads []string) []string {
	slices.Sort(reads)
	for {
		paths := 0
		deepest, depth := "", 0
		for _, name := range reads {
			if strings.HasPrefix(name, variable) {
				continue
			}
			paths++
			if n := strings.Count(strings.TrimSuffix(name, whole), "/"); n > depth {
				deepest, depth = path.Dir(strings.TrimSuffix(name, whole)), n
			}
		}
		if paths <= mostReads || depth == 0 {
			return reads
		}
		reads = slices.DeleteFunc(reads, func(name string) bool { return name == deepest || strings.HasPrefix(name, deepest+"/") })
		reads = append(reads, deepest+whole)
		slices.Sort(reads)
	}
}

// ReadsSum identifies what is now where tests read before. A test would see env.
func (c *Content) ReadsSum(reads, env []string) string {
	var parts []string
	for _, name := range reads {
		parts = append(parts, name)
		if v, isVariable := strings.CutPrefix(name, variable); isVariable {
			parts = append(parts, valueOf(env, v))
		} else if dir, isFolder := strings.CutSuffix(name, whole); isFolder {
			for _, file := range c.under(dir, nil) {
				parts = append(parts, file, c.files[file])
			}
		} else {
			parts = append(parts, c.describe(name))
		}
	}
	return Digest(parts...)
}

// valueOf is what a process finds: the last setting counts.
func valueOf(env []string, name string) string {
	for _, setting := range slices.Backward(env) {
		if value, found := strings.CutPrefix(setting, name+"="); found {
			return "=" + value
		}
	}
	return none
}
