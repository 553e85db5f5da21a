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
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Upstream gets the files in api/openapi-spec from a running kube-apiserver, which
// takes minutes to build, and an etcd. But the server makes schemas from
// zz_generated.openapi.go, and what is in paths only depends on which resources
// exist. So when fields get added, it is enough to put the new schemas into
// the existing files.
//
// Only the server knows which schema is for a kind of object. That is kept from
// the existing files, so a new resource needs upstream's script once.

//go:embed schemas/main.go.txt
var schemasSource []byte

// schemaPrefix is with which the names of all schemas begin that are
// defined by the API group.
const schemaPrefix = "io.k8s.api." + apiGroup + "."

// openAPISpec updates the schemas of the API group in api/openapi-spec.
func (g *generation) openAPISpec(ctx context.Context) error {
	// The program is compiled as part of the tree without being there.
	source, overlay := filepath.Join(g.tmp, "schemas.go"), filepath.Join(g.tmp, "schemas.json")
	const program = "pkg/generated/openapi/cmd/dra-schemas"
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{g.path(program + "/main.go"): source}})
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{source: schemasSource, overlay: replace} {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	out, err := g.output(ctx, "go", "run", "-overlay", overlay, "./"+program, schemaPrefix)
	if err != nil {
		return err
	}
	var current struct{ V2, V3 map[string]any }
	if err := decode([]byte(out), &current); err != nil {
		return fmt.Errorf("decoding schemas: %w", err)
	}

	files, err := filepath.Glob(g.path("api/openapi-spec/v3/apis__" + apiGroup + ".k8s.io__*_openapi.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no OpenAPI v3 specification of %s.k8s.io in api/openapi-spec/v3", apiGroup)
	}
	for _, file := range files {
		if err := updateSpec(file, current.V3, "components", "schemas"); err != nil {
			return err
		}
	}
	return updateSpec(g.path("api/openapi-spec/swagger.json"), current.V2, "definitions")
}

func decode(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// updateSpec replaces schemas in a file. The field names lead to them.
func updateSpec(file string, current map[string]any, fields ...string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if content, err = replaceSchemas(content, current, fields...); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, content, 0o644)
}

// replaceSchemas replaces those schemas of the API group which the
// specification has, and adds those to which they refer.
func replaceSchemas(content []byte, current map[string]any, fields ...string) ([]byte, error) {
	var root map[string]any
	if err := decode(content, &root); err != nil {
		return nil, err
	}
	existing := root
	for _, field := range fields {
		child, ok := existing[field].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("no field %s", strings.Join(fields, "."))
		}
		existing = child
	}
	var todo []string
	for name := range existing {
		if strings.HasPrefix(name, schemaPrefix) {
			todo = append(todo, name)
		}
	}
	done := map[string]bool{}
	for ; len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		old, _ := existing[name].(map[string]any)
		if done[name] || old != nil && !strings.HasPrefix(name, schemaPrefix) {
			continue
		}
		done[name] = true
		schema, ok := current[name].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("schema %s is used, but not defined", name)
		}
		const kind = "x-kubernetes-group-version-kind"
		if old[kind] != nil {
			schema = maps.Clone(schema)
			schema[kind] = old[kind]
		}
		existing[name] = schema
		todo = append(todo, refs(schema, "#/"+strings.Join(fields, "/")+"/")...)
	}
	// Like "jq --sort-keys".
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// refs returns the names to which a part of a specification refers.
func refs(value any, prefix string) []string {
	var names []string
	switch value := value.(type) {
	case map[string]any:
		for _, item := range value {
			names = append(names, refs(item, prefix)...)
		}
	case []any:
		for _, item := range value {
			names = append(names, refs(item, prefix)...)
		}
	case string:
		// Nothing else than a "$ref" begins like this.
		if name, ok := strings.CutPrefix(value, prefix); ok {
			names = append(names, name)
		}
	}
	return names
}
