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

package e2e

import (
	_ "embed"
	"path/filepath"

	"kubernetes-dra/hack/pkg/sys"
)

var (
	//go:embed sudo.sh
	sudo []byte
	//go:embed systemd.sh
	systemd []byte
)

// WriteSudo writes a program that stands in for sudo into a folder.
func WriteSudo(dir string) error { return sys.WriteFile(filepath.Join(dir, "sudo"), sudo, 0o755) }

// writeSystemd writes programs that stand in for those of systemd.
func writeSystemd(dir string) error {
	for _, name := range []string{"systemd-run", "systemctl"} {
		if err := sys.WriteFile(filepath.Join(dir, name), systemd, 0o755); err != nil {
			return err
		}
	}
	return nil
}
