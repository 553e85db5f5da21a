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

package sys

import (
	"os"
	"slices"
	"strings"
)

// Without returns the environment of this process without some variables, followed by
// settings. "LC_*" stands for all variables whose names begin with LC_.
func Without(names []string, settings ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return MatchVariable(names, name)
	})
	return append(env, settings...)
}

// MatchVariable says whether the name of an environment variable is one of a list, in which
// "LC_*" stands for all that begin with LC_.
func MatchVariable(names []string, name string) bool {
	return slices.ContainsFunc(names, func(known string) bool {
		prefix, all := strings.CutSuffix(known, "*")
		return name == known || all && strings.HasPrefix(name, prefix)
	})
}
