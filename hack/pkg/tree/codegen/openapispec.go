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
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Upstream gets the files in api/openapi-spec from a running kube-apiserver:
// half a minute for the build alone, and an etcd. But the server makes schemas from
// zz_generated.openapi.go, and what is in paths only depends on which resources
// exist. So when fields get added, it is enough to put the new schemas into
// the existing files.
//
// Only the server knows which schema is for a kind of object. That is kept from
// the existing files, so a new resource needs upstream's script once.

//go:embed schemas/main.go.txt
var schemasSource []byte

const (
	openAPIDir   = "api/openapi-spec/"
	discoveryDir = "api/discovery/"

	// schemaPrefix is with which the names of all schemas begin that are
	// defined by the API group.
	schemaPrefix = "io.k8s.api." + apiGroup + "."
	// modelsSchema is upstream's program that prints definitions as they are
	// needed for applyconfiguration-gen.
	modelsSchema = "pkg/generated/openapi/cmd/models-schema"
	// draSchemas is where our program for api/openapi-spec would be if it
	// was in the tree.
	draSchemas = "pkg/generated/openapi/cmd/dra-schemas"
)

// schemas maps names to schemas.
type schemas map[string]any

// openAPISpec updates the schemas of the API group in api/openapi-spec.
func (g *generation) openAPISpec(ctx context.Context) error {
	v2, v3, err := g.schemas(ctx)
	if err != nil {
		return err
	}
	if err := updateSpec(g.path(openAPIDir+"swagger.json"), []string{"definitions"}, v2); err != nil {
		return err
	}
	files, err := filepath.Glob(g.path(openAPIDir + "v3/apis__" + apiGroup + ".k8s.io__*_openapi.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no OpenAPI v3 specification of %s.k8s.io in %s", apiGroup, openAPIDir+"v3")
	}
	for _, file := range files {
		if err := updateSpec(file, []string{"components", "schemas"}, v3); err != nil {
			return err
		}
	}
	return nil
}

// buildSchemaPrograms builds the two programs which print schemas, once. They
// contain the API of this tree, so unlike generators they must not be
// shared with runs in another one.
func (g *generation) buildSchemaPrograms(ctx context.Context) error {
	if g.schemaProgramsBuilt {
		return nil
	}
	source := filepath.Join(g.tmp, "schemas.go")
	if err := os.WriteFile(source, schemasSource, 0o644); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{
		"Replace": map[string]string{g.path(draSchemas + "/main.go"): source},
	})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(g.tmp, "schemas.json")
	if err := os.WriteFile(overlayFile, overlay, 0o644); err != nil {
		return err
	}
	if err := g.tools.run(ctx, "go", "build", "-overlay", overlayFile, "-o", g.tmp+string(filepath.Separator), "./"+draSchemas, "./"+modelsSchema); err != nil {
		return err
	}
	g.schemaProgramsBuilt = true
	return nil
}

// program returns where a program was built that is only for this run.
func (g *generation) program(pkg string) string {
	return filepath.Join(g.tmp, path.Base(pkg))
}

// schemas returns the schemas of the API group and those which they refer to,
// for both versions of OpenAPI.
func (g *generation) schemas(ctx context.Context) (v2, v3 schemas, err error) {
	if err := g.buildSchemaPrograms(ctx); err != nil {
		return nil, nil, err
	}
	out, err := g.tools.output(ctx, g.program(draSchemas), schemaPrefix)
	if err != nil {
		return nil, nil, err
	}
	var result struct{ V2, V3 schemas }
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.UseNumber()
	if err := decoder.Decode(&result); err != nil {
		return nil, nil, fmt.Errorf("decoding schemas: %w", err)
	}
	return result.V2, result.V3, nil
}

// kindExtension is the field of a schema which lists the kinds of objects for
// which it gets used.
const kindExtension = "x-kubernetes-group-version-kind"

// updateSpec replaces schemas in a file. The field names lead to them.
func updateSpec(file string, fields []string, current schemas) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := replaceSchemas(old, fields, current)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(old, updated) {
		return nil
	}
	return os.WriteFile(file, updated, 0o644)
}

// replaceSchemas replaces those schemas of the API group which the
// specification has, adds those which are new and referenced by them, and
// removes those which are not referenced anymore.
func replaceSchemas(content []byte, fields []string, current schemas) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var root map[string]any
	if err := decoder.Decode(&root); err != nil {
		return nil, err
	}
	parent := root
	for _, field := range fields {
		child, ok := parent[field].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("no field %s", strings.Join(fields, "."))
		}
		parent = child
	}
	existing := schemas(parent)
	refPrefix := "#/" + strings.Join(fields, "/") + "/"

	// What is used by paths and by schemas of other groups is needed, and
	// then everything to which that leads.
	var todo []string
	for name := range existing {
		if !strings.HasPrefix(name, schemaPrefix) {
			todo = append(todo, refs(existing[name], refPrefix)...)
		}
	}
	for field := range root {
		if field != fields[0] {
			todo = append(todo, refs(root[field], refPrefix)...)
		}
	}
	used := map[string]bool{}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if used[name] {
			continue
		}
		used[name] = true
		if existing[name] == nil || strings.HasPrefix(name, schemaPrefix) {
			schema, ok := current[name]
			if !ok {
				return nil, fmt.Errorf("schema %s is used, but does not exist", name)
			}
			if kind, err := kindOf(existing[name]); err != nil {
				return nil, fmt.Errorf("schema %s: %w", name, err)
			} else if kind != nil {
				fields, ok := schema.(map[string]any)
				if !ok {
					return nil, fmt.Errorf("schema %s is not an object", name)
				}
				schema = maps.Clone(fields)
				schema.(map[string]any)[kindExtension] = kind
			}
			existing[name] = schema
		}
		todo = append(todo, refs(existing[name], refPrefix)...)
	}
	for name := range existing {
		if strings.HasPrefix(name, schemaPrefix) && !used[name] {
			delete(existing, name)
		}
	}
	return encodeSorted(root)
}

// refs returns the names to which a part of a specification refers.
func refs(value any, prefix string) []string {
	var names []string
	var visit func(value any)
	visit = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, item := range value {
				if ref, ok := item.(string); ok && key == "$ref" {
					if name, ok := strings.CutPrefix(ref, prefix); ok {
						names = append(names, name)
					}
					continue
				}
				visit(item)
			}
		case []any:
			for _, item := range value {
				visit(item)
			}
		}
	}
	visit(value)
	return names
}

// encodeSorted encodes like "jq --sort-keys".
func encodeSorted(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// kindOf returns the extension with the kind if the schema has it.
func kindOf(schema any) (any, error) {
	if schema == nil {
		return nil, nil
	}
	fields, ok := schema.(map[string]any)
	if !ok {
		return nil, errors.New("not an object")
	}
	return fields[kindExtension], nil
}
