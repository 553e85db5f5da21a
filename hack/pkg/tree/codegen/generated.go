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

package codegen

import (
	"path"
	"strings"
)

// generatedPatterns describe the files that Run writes. "**" stands for any
// number of directories, everything else is as in path.Match.
var generatedPatterns = []string{
	"**/zz_generated.conversion.go",
	"**/zz_generated.deepcopy.go",
	"**/zz_generated.defaults.go",
	"**/zz_generated.model_name.go",
	"**/zz_generated.openapi.go",
	"**/zz_generated.prerelease-lifecycle.go",
	"**/zz_generated.validations.go",
	externalDir + "**/generated.pb.go",
	externalDir + "**/generated.protomessage.pb.go",
	externalDir + "**/generated.proto",
	externalDir + "**/types_swagger_doc_generated.go",
	externalDir + "testdata/HEAD/*",
	stagingDir + "k8s.io/client-go/applyconfigurations/**/*.go",
	openAPIDir + "**/*.json",
	discoveryDir + "*.json",
	"test/compatibility_lifecycle/reference/*feature_list.*",
	"test/featuregates_linter/test_data/*feature_list.*",
}

// handWritten are the exceptions.
var handWritten = []string{
	stagingDir + "k8s.io/client-go/applyconfigurations/**/doc.go",
	stagingDir + "k8s.io/client-go/applyconfigurations/**/*_test.go",
	stagingDir + "k8s.io/client-go/applyconfigurations/meta/v1/unstructured.go",
}

// Generated returns patterns for those files of a tree which are written by
// generators and therefore never are in the overlay. They are the
// same for all releases: where one does not have a kind of file, nothing matches.
func Generated(release string) []string {
	return append([]string(nil), generatedPatterns...)
}

// IsGenerated says whether a file of a tree, given with its path inside of
// the tree, gets written by generators.
func IsGenerated(file string) bool {
	return matchAny(generatedPatterns, file) && !matchAny(handWritten, file)
}

func matchAny(patterns []string, file string) bool {
	for _, pattern := range patterns {
		if matchPath(strings.Split(pattern, "/"), strings.Split(file, "/")) {
			return true
		}
	}
	return false
}

// matchPath compares a path with a pattern, both split at slashes.
func matchPath(pattern, file []string) bool {
	if len(pattern) == 0 {
		return len(file) == 0
	}
	if pattern[0] == "**" {
		return matchPath(pattern[1:], file) || len(file) > 0 && matchPath(pattern, file[1:])
	}
	if len(file) == 0 {
		return false
	}
	// A pattern of ours is not malformed.
	if ok, err := path.Match(pattern[0], file[0]); err != nil || !ok {
		return false
	}
	return matchPath(pattern[1:], file[1:])
}
