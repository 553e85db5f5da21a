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
	"fmt"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Table shows what is recorded of releases, in Markdown.
func Table(repo string, releases []*ledger.Release) (string, error) {
	var b strings.Builder
	b.WriteString("| release | version | results | passed | skipped | first | last |\n|---|---|---:|---:|---:|---|---|\n")
	for _, release := range releases {
		lines, err := Load(filepath.Join(repo, filepath.FromSlash(File(release.Name))), false)
		if err != nil {
			return "", err
		}
		passed, skipped := 0, 0
		first, last := "–", "–"
		for i, l := range lines {
			passed += l.Passed
			skipped += l.Skipped
			if i == 0 || l.Date < first {
				first = l.Date
			}
			if i == 0 || l.Date > last {
				last = l.Date
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %s |\n", release.Name, release.Version, len(lines), passed, skipped, first, last)
	}
	return b.String(), nil
}
