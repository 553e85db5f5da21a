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

package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"kubernetes-dra/hack/pkg/dist/binaries"
)

// Plugin is a plugin of kubectl. A release has an archive of it for each platform, and the manifest with which
// krew installs them: kubectl krew install --manifest=dra.yaml --archive=kubectl-dra-linux-amd64.tar.gz
type Plugin struct {
	// Dir is the folder of its Go module, Package the one of the program below that. The program is
	// called kubectl-<name>.
	Dir, Package string
	// Systems are the operating systems, as Go calls them.
	Systems []string
	// Short is one line for a list of plugins, Homepage where people read more.
	Short, Homepage string
}

func (p Plugin) name() string { return strings.TrimPrefix(path.Base(p.Package), "kubectl-") }

// platform is a system with an architecture, and what was built for it.
type platform struct{ System, Arch, Archive, Sum, Program string }

// build builds the plugin for a platform, and writes its archive.
func (p Plugin) build(ctx context.Context, dir, system, arch string, build binaries.Options) (platform, error) {
	name := path.Base(p.Package)
	built := platform{System: system, Arch: arch, Archive: fmt.Sprintf("%s-%s-%s.tar.gz", name, system, arch), Program: name}
	if system == "windows" {
		built.Program += ".exe"
	}
	of := program{dir: p.Dir, pkg: p.Package, system: system, arch: arch, build: build}
	err := of.archive(ctx, dir, built.Program, built.Archive, func(root, file string) error {
		_, err := writeTarball(ctx, file, root, build.Date)
		return err
	})
	if err != nil {
		return built, err
	}
	content, err := os.ReadFile(filepath.Join(dir, built.Archive))
	sum := sha256.Sum256(content)
	built.Sum = hex.EncodeToString(sum[:])
	return built, err
}

// krew is a manifest in the form of krew's index. Nobody publishes the archives, so whoever installs them
// says where they are.
var krew = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {{.Plugin.Name}}
spec:
  version: {{.Version}}
  homepage: {{.Plugin.Homepage}}
  shortDescription: {{.Plugin.Short}}
  platforms:
{{- range .Platforms}}
  - selector:
      matchLabels: {os: {{.System}}, arch: {{.Arch}}}
    uri: https://releases.example.com/{{$.Version}}/{{.Archive}}
    sha256: {{.Sum}}
    bin: {{.Program}}
{{- end}}
`))

// write makes the archives and the manifest.
func (p Plugin) write(ctx context.Context, o Options, dir string) error {
	var platforms []platform
	for _, system := range p.Systems {
		for _, arch := range o.Architectures {
			built, err := p.build(ctx, dir, system, arch, o.Build)
			if err != nil {
				return err
			}
			platforms = append(platforms, built)
		}
	}
	var manifest bytes.Buffer
	err := krew.Execute(&manifest, map[string]any{
		"Plugin":    map[string]string{"Name": p.name(), "Homepage": p.Homepage, "Short": p.Short},
		"Version":   strings.ReplaceAll(o.Build.Version, "+", "-"),
		"Platforms": platforms,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.name()+".yaml"), manifest.Bytes(), 0o644)
}
