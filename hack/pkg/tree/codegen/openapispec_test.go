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
	"strings"
	"testing"
)

func TestReplaceSchemas(t *testing.T) {
	const spec = `{
  "components": {
    "schemas": {
      "io.k8s.api.core.v1.Node": {
        "type": "object"
      },
      "io.k8s.api.resource.v1.Claim": {
        "properties": {
          "spec": {
            "$ref": "#/components/schemas/io.k8s.api.resource.v1.Spec"
          }
        },
        "x-kubernetes-group-version-kind": [
          {
            "kind": "Claim"
          }
        ]
      },
      "io.k8s.api.resource.v1.Spec": {
        "description": "a < b",
        "maximum": 12345678901234567890
      }
    }
  },
  "paths": {
    "/claims": {
      "$ref": "#/components/schemas/io.k8s.api.resource.v1.Claim"
    },
    "/nodes": {
      "$ref": "#/components/schemas/io.k8s.api.core.v1.Node"
    }
  }
}
`
	claim := map[string]any{"properties": map[string]any{"spec": map[string]any{"$ref": "#/components/schemas/io.k8s.api.resource.v1.Spec"}}}
	number := map[string]any{"description": "a < b", "maximum": 12345678901234567890.0}
	for name, tc := range map[string]struct {
		spec    string
		current schemas
		// replace are pairs of strings to be replaced in the specification.
		replace []string
		wantErr string
	}{
		"changed-field": {
			current: schemas{
				"io.k8s.api.resource.v1.Claim": claim,
				"io.k8s.api.resource.v1.Spec":  map[string]any{"description": "a < c"},
			},
			replace: []string{"a < b\",\n        \"maximum\": 12345678901234567890", `a < c"`},
		},
		"new-reference": {
			current: schemas{
				"io.k8s.api.resource.v1.Claim": claim,
				"io.k8s.api.resource.v1.Spec":  map[string]any{"allOf": []any{map[string]any{"$ref": "#/components/schemas/io.k8s.api.resource.v1.Ref"}}},
				"io.k8s.api.resource.v1.Ref":   map[string]any{"type": "string"},
				"io.k8s.api.resource.v1.Other": map[string]any{"type": "unused"},
			},
			replace: []string{
				"      \"io.k8s.api.resource.v1.Spec\": {\n        \"description\": \"a < b\",\n        \"maximum\": 12345678901234567890\n",
				"      \"io.k8s.api.resource.v1.Ref\": {\n        \"type\": \"string\"\n      },\n" +
					"      \"io.k8s.api.resource.v1.Spec\": {\n        \"allOf\": [\n          {\n            \"$ref\": \"#/components/schemas/io.k8s.api.resource.v1.Ref\"\n          }\n        ]\n",
			},
		},
		"reference-to-other-group": {
			current: schemas{
				"io.k8s.api.resource.v1.Claim":   claim,
				"io.k8s.api.resource.v1.Spec":    map[string]any{"$ref": "#/components/schemas/io.k8s.api.core.v1.Selector"},
				"io.k8s.api.core.v1.Node":        map[string]any{"type": "not to be used"},
				"io.k8s.api.core.v1.Selector":    map[string]any{"type": "string"},
				"io.k8s.api.core.v1.NotSelector": map[string]any{"type": "string"},
			},
			replace: []string{
				"      \"io.k8s.api.resource.v1.Claim\"", "      \"io.k8s.api.core.v1.Selector\": {\n        \"type\": \"string\"\n      },\n      \"io.k8s.api.resource.v1.Claim\"",
				"        \"description\": \"a < b\",\n        \"maximum\": 12345678901234567890\n", "        \"$ref\": \"#/components/schemas/io.k8s.api.core.v1.Selector\"\n",
			},
		},
		"no-longer-used": {
			current: schemas{
				"io.k8s.api.resource.v1.Claim": map[string]any{"type": "object"},
				"io.k8s.api.resource.v1.Spec":  number,
			},
			replace: []string{
				"        \"properties\": {\n          \"spec\": {\n            \"$ref\": \"#/components/schemas/io.k8s.api.resource.v1.Spec\"\n          }\n        },\n", "        \"type\": \"object\",\n",
				"      },\n      \"io.k8s.api.resource.v1.Spec\": {\n        \"description\": \"a < b\",\n        \"maximum\": 12345678901234567890\n", "",
			},
		},
		"removed-type": {
			current: schemas{"io.k8s.api.resource.v1.Claim": claim},
			wantErr: "schema io.k8s.api.resource.v1.Spec is used, but does not exist",
		},
		"not-a-schema": {
			current: schemas{"io.k8s.api.resource.v1.Claim": "claim"},
			wantErr: "schema io.k8s.api.resource.v1.Claim is not an object",
		},
		"not-json":  {spec: "{", wantErr: "unexpected EOF"},
		"no-fields": {spec: `{"components": {}}`, wantErr: "no field components.schemas"},
	} {
		t.Run(name, func(t *testing.T) {
			in := spec
			if tc.spec != "" {
				in = tc.spec
			}
			got, err := replaceSchemas([]byte(in), []string{"components", "schemas"}, tc.current)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("expected error %q, got %v", tc.wantErr, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			want := spec
			for i := 0; i < len(tc.replace); i += 2 {
				if strings.Count(want, tc.replace[i]) != 1 {
					t.Fatalf("test case is wrong: %q is not in the specification exactly once", tc.replace[i])
				}
				want = strings.Replace(want, tc.replace[i], tc.replace[i+1], 1)
			}
			if string(got) != want {
				t.Errorf("expected:\n%s\ngot:\n%s", want, got)
			}
		})
	}
}
