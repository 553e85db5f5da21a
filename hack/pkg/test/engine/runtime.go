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

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/capability"

	"kubernetes-dra/hack/pkg/sys"
)

// runtimeName is what an engine calls a link to this program that is its container runtime.
const runtimeName = "kubernetes-dra-runc"

// RunIfRuntime is for the beginning of main or TestMain of a program that starts engines. It does not
// return if an engine called the program as its container runtime.
//
// Up to version 20, an engine gives a privileged container all capabilities of the kernel. Some virtual
// machines have fewer of them, for root too, and runc fails. This runtime leaves out what this machine
// cannot give.
func RunIfRuntime() {
	if filepath.Base(os.Args[0]) != runtimeName {
		return
	}
	err := runRuntime(os.Args[1:])
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// linkRuntime makes this program a container runtime.
func linkRuntime(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	link := filepath.Join(dir, runtimeName)
	return link, os.Symlink(self, link)
}

// runRuntime becomes runc.
func runRuntime(args []string) error {
	own, err := ownCapabilities()
	if err != nil {
		return err
	}
	if file := specFile(args); file != "" {
		if err := limit(file, own); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", runc, syscall.Exec(runc, append([]string{runc}, args...), os.Environ()))
}

// LacksCapabilities tells whether this machine has fewer than the kernel.
func LacksCapabilities() (bool, error) {
	own, err := ownCapabilities()
	if err != nil {
		return false, err
	}
	all, err := capability.ListSupported()
	return len(own) < len(all), err
}

// ownCapabilities are those that this process can give, as in a specification: CAP_CHOWN.
func ownCapabilities() ([]string, error) {
	process, err := capability.NewPid2(0)
	if err != nil {
		return nil, err
	}
	if err := process.Load(); err != nil {
		return nil, err
	}
	var own []string
	for _, c := range capability.ListKnown() {
		if process.Get(capability.BOUNDING, c) {
			own = append(own, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return own, nil
}

// specFile is the file with the specification of a container or of a process in it, if a command of runc
// has one.
func specFile(args []string) string {
	value := func(name string) string {
		for i, arg := range args {
			if v, found := strings.CutPrefix(arg, name+"="); found {
				return v
			}
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
		}
		return ""
	}
	if bundle := value("--bundle"); bundle != "" {
		return filepath.Join(bundle, "config.json")
	}
	return value("--process")
}

// limit removes other capabilities from the specification of a container or of a process.
func limit(file string, own []string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		process = spec
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		list, ok := set.([]any)
		if !ok {
			return errors.New(file + ": capabilities are no list: " + name)
		}
		sets[name] = slices.DeleteFunc(list, func(c any) bool {
			text, _ := c.(string)
			return !slices.Contains(own, text)
		})
	}
	if content, err = json.Marshal(spec); err != nil {
		return err
	}
	return sys.WriteFile(file, content, 0o600)
}
