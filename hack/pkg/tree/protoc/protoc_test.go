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

package protoc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// pluginMode is the environment variable which turns the test binary into a
// plugin. Its value says what that one does.
const pluginMode = "PROTOC_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if mode := os.Getenv(pluginMode); mode != "" {
		if err := plugin(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// plugin answers a request from standard input.
func plugin(mode string) error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{}
	if err := proto.Unmarshal(stdin, request); err != nil {
		return err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	file := func(name, content string) *pluginpb.CodeGeneratorResponse_File {
		f := &pluginpb.CodeGeneratorResponse_File{Content: proto.String(content)}
		if name != "" {
			f.Name = proto.String(name)
		}
		return f
	}
	switch mode {
	case "summary":
		// Describes the request, in one file per input.
		for _, name := range request.FileToGenerate {
			var out strings.Builder
			fmt.Fprintf(&out, "parameter %q\n", request.GetParameter())
			for _, f := range request.ProtoFile {
				fmt.Fprintf(&out, "file %s\n", f.GetName())
				for _, message := range f.MessageType {
					fmt.Fprintf(&out, "message %s\n", message.GetName())
				}
				for _, location := range f.GetSourceCodeInfo().GetLocation() {
					if comment := location.GetLeadingComments(); comment != "" && f.GetName() == name {
						fmt.Fprintf(&out, "comment%s", comment)
					}
				}
			}
			response.File = append(response.File, file(name+".txt", out.String()))
		}
	case "parts":
		response.File = append(response.File, file("a.txt", "first "), file("", "second"), file("sub/b.txt", "other"))
	case "error":
		response.Error = proto.String("cannot do that")
	case "crash":
		return fmt.Errorf("out of paper")
	case "garbage":
		_, err := os.Stdout.WriteString("not a message")
		return err
	case "escape":
		response.File = append(response.File, file("fine.txt", "x"), file("../evil.txt", "x"))
	case "absolute":
		response.File = append(response.File, file("/tmp/evil.txt", "x"))
	case "twice":
		response.File = append(response.File, file("a.txt", "x"), file("a.txt", "y"))
	case "nameless":
		response.File = append(response.File, file("", "x"))
	case "insertion":
		f := file("a.txt", "x")
		f.InsertionPoint = proto.String("imports")
		response.File = append(response.File, f)
	default:
		return fmt.Errorf("unknown mode %q", mode)
	}
	stdout, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(stdout)
	return err
}

func TestParseArgs(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		want    *options
		wantErr string
	}{
		"go-to-protobuf": {
			args: []string{"-I", ".", "-I", "/src", "-I", "/src", "--gogo_out=/src", "/src/k8s.io/api/a.proto"},
			want: &options{
				importPaths: []string{".", "/src", "/src"},
				outputs:     []output{{plugin: "gogo", dir: "/src"}},
				files:       []string{"/src/k8s.io/api/a.proto"},
			},
		},
		"proto-bindings": {
			args: []string{"--proto_path=/a", "--proto_path=/b", "--go_out=plugins=grpc:/a", "--go_opt=x=1", "--go_opt=y", "a.proto"},
			want: &options{
				importPaths: []string{"/a", "/b"},
				outputs:     []output{{plugin: "go", parameter: "plugins=grpc,x=1,y", dir: "/a"}},
				files:       []string{"a.proto"},
			},
		},
		"separate-values": {
			args: []string{"-Isrc/", "--proto_path", "x:y", "--go_out", "out", "--go-grpc_out", "out", "--plugin", "protoc-gen-go=/bin/go", "a.proto", "b.proto"},
			want: &options{
				importPaths: []string{"src", "x", "y"},
				outputs:     []output{{plugin: "go", dir: "out"}, {plugin: "go-grpc", dir: "out"}},
				plugins:     map[string]string{"go": "/bin/go"},
				files:       []string{"a.proto", "b.proto"},
			},
		},
		"plugin-by-path": {
			args: []string{"--plugin=/bin/protoc-gen-x", "--x_out=.", "a.proto"},
			want: &options{
				importPaths: []string{"."},
				outputs:     []output{{plugin: "x", dir: "."}},
				plugins:     map[string]string{"x": "/bin/protoc-gen-x"},
				files:       []string{"a.proto"},
			},
		},
		"version":          {args: []string{"--version"}, want: &options{version: true}},
		"nothing":          {wantErr: "missing input file"},
		"no-file":          {args: []string{"--go_out=."}, wantErr: "missing input file"},
		"no-output":        {args: []string{"a.proto"}, wantErr: "missing output directive"},
		"unknown":          {args: []string{"--frobnicate", "a.proto"}, wantErr: "unknown option --frobnicate"},
		"unknown-short":    {args: []string{"-x", "a.proto"}, wantErr: "unknown option -x"},
		"only-suffix":      {args: []string{"--_out=.", "a.proto"}, wantErr: "unknown option --_out"},
		"no-search-path":   {args: []string{"--go_out=.", "a.proto", "-I"}, wantErr: "missing value for option -I"},
		"empty-path":       {args: []string{"--proto_path=", "--go_out=.", "a.proto"}, wantErr: "empty search path"},
		"empty-path-part":  {args: []string{"-Ia::b", "--go_out=.", "a.proto"}, wantErr: `empty search path in "a::b"`},
		"no-output-dir":    {args: []string{"--go_out=x:", "a.proto"}, wantErr: "no output directory"},
		"output-at-end":    {args: []string{"a.proto", "--go_out"}, wantErr: "missing value for option --go_out"},
		"opt-without-out":  {args: []string{"--go_opt=x", "--x_out=.", "a.proto"}, wantErr: "--go_opt without --go_out"},
		"bad-plugin":       {args: []string{"--plugin=/bin/gogo", "--gogo_out=.", "a.proto"}, wantErr: "does not name a protoc-gen-NAME executable"},
		"plugin-no-target": {args: []string{"--plugin=protoc-gen-go=", "--go_out=.", "a.proto"}, wantErr: "does not name a protoc-gen-NAME executable"},
		"empty-argument":   {args: []string{"", "--go_out=."}, wantErr: "empty argument"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseArgs(tc.args)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("expected error %q, got %v", tc.wantErr, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if tc.want.plugins == nil {
				tc.want.plugins = map[string]string{}
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("expected:\n%+v\ngot:\n%+v", tc.want, got)
			}
		})
	}
}

const (
	common = `syntax = "proto2";
package common;
message Common { optional string name = 1; }
`
	thing = `syntax = "proto2";
package main;
import "lib/common.proto";
// Thing is commented.
message Thing {
  optional common.Common common = 1;
}
`
)

func TestCompileAndGenerate(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  string
		files map[string]string
		// args may contain DIR, the directory with the files.
		args []string
		// relative runs in DIR.
		relative bool
		want     map[string]string // in DIR/out
		wantErr  string
	}{
		"import": {
			mode:  "summary",
			files: map[string]string{"src/main.proto": thing, "inc/lib/common.proto": common},
			args:  []string{"-I", "DIR/src", "-I", "DIR/inc", "--x_out=a=b:DIR/out", "DIR/src/main.proto"},
			want: map[string]string{
				"main.proto.txt": "parameter \"a=b\"\nfile lib/common.proto\nmessage Common\nfile main.proto\nmessage Thing\ncomment Thing is commented.\n",
			},
		},
		"relative": {
			mode:     "summary",
			files:    map[string]string{"src/main.proto": thing, "src/lib/common.proto": common},
			args:     []string{"-I", "src", "--x_out=out", "src/lib/common.proto", "src/main.proto"},
			relative: true,
			want: map[string]string{
				"lib/common.proto.txt": "parameter \"\"\nfile lib/common.proto\nmessage Common\nfile main.proto\nmessage Thing\n",
				"main.proto.txt":       "parameter \"\"\nfile lib/common.proto\nmessage Common\nfile main.proto\nmessage Thing\ncomment Thing is commented.\n",
			},
		},
		"well-known-import": {
			mode: "summary",
			files: map[string]string{"main.proto": `syntax = "proto3";
import "google/protobuf/descriptor.proto";
message M { google.protobuf.FieldDescriptorProto f = 1; }
`},
			args: []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			want: map[string]string{"main.proto.txt": ""}, // content not compared
		},
		"parts": {
			mode:  "parts",
			files: map[string]string{"main.proto": common},
			args:  []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			want:  map[string]string{"a.txt": "first second", "sub/b.txt": "other"},
		},
		"no-such-file": {
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "input file: stat",
		},
		"not-in-search-path": {
			files:   map[string]string{"main.proto": common, "other/x": ""},
			args:    []string{"-IDIR/other", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "in none of the directories of the search path",
		},
		"shadowed": {
			files:   map[string]string{"one/main.proto": common, "two/main.proto": common},
			args:    []string{"-IDIR/one", "-IDIR/two", "--x_out=DIR/out", "DIR/two/main.proto"},
			wantErr: "is shadowed by",
		},
		"syntax-error": {
			files:   map[string]string{"main.proto": "syntax = \"proto2\";\nmessage Thing {\n  optional strin\n}\n"},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "main.proto:4:1",
		},
		"unknown-type": {
			files:   map[string]string{"main.proto": "syntax = \"proto2\";\nmessage Thing { optional Other x = 1; }\n"},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "unknown type Other",
		},
		"missing-import": {
			files:   map[string]string{"main.proto": thing},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "lib/common.proto",
		},
		"no-output-dir": {
			mode:    "parts",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/missing", "DIR/main.proto"},
			wantErr: "output directory",
		},
		"output-is-a-file": {
			mode:    "parts",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/main.proto", "DIR/main.proto"},
			wantErr: "is not a directory",
		},
		"no-plugin": {
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--plugin=protoc-gen-x=DIR/protoc-gen-x", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "--x_out: DIR/protoc-gen-x: ",
		},
		"plugin-error": {
			mode:    "error",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "cannot do that",
		},
		"plugin-crash": {
			mode:    "crash",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "exit status 3: out of paper",
		},
		"plugin-garbage": {
			mode:    "garbage",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "decoding the answer",
		},
		"escape": {
			mode:    "escape",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: `"../evil.txt" leaves the output directory`,
		},
		"absolute": {
			mode:    "absolute",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "leaves the output directory",
		},
		"twice": {
			mode:    "twice",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "a.txt got generated twice",
		},
		"nameless": {
			mode:    "nameless",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "without a name",
		},
		"insertion-point": {
			mode:    "insertion",
			files:   map[string]string{"main.proto": common},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "insertion points are not supported",
		},
		"optional-not-supported": {
			mode:    "parts",
			files:   map[string]string{"main.proto": "syntax = \"proto3\";\nmessage A { message B { optional string x = 1; } }\n"},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "main.proto has an optional field in proto3",
		},
		"editions-not-supported": {
			mode:    "parts",
			files:   map[string]string{"main.proto": "edition = \"2023\";\nmessage A { string x = 1; }\n"},
			args:    []string{"-IDIR", "--x_out=DIR/out", "DIR/main.proto"},
			wantErr: "uses EDITION_2023",
		},
		"bad-arguments": {
			args:    []string{"--bad"},
			wantErr: "unknown option --bad",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			if err := os.Mkdir(out, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, content := range tc.files {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tc.relative {
				t.Chdir(dir)
			}

			var args []string
			if tc.mode != "" {
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				t.Setenv(pluginMode, tc.mode)
				args = append(args, "--plugin=protoc-gen-x="+self)
			}
			for _, arg := range tc.args {
				args = append(args, strings.ReplaceAll(arg, "DIR", dir))
			}
			var stdout bytes.Buffer
			err := Main(t.Context(), args, &stdout)

			got := readAll(t, out)
			if tc.wantErr != "" {
				wantErr := strings.ReplaceAll(tc.wantErr, "DIR", dir)
				if err == nil || !strings.Contains(err.Error(), wantErr) {
					t.Fatalf("expected error %q, got %v", wantErr, err)
				}
				if len(got) > 0 {
					t.Errorf("wrote files despite the error: %v", got)
				}
				return
			}
			if err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			for name, want := range tc.want {
				content, ok := got[name]
				if !ok {
					t.Errorf("%s not written", name)
				} else if want != "" && content != want {
					t.Errorf("%s, expected:\n%s\ngot:\n%s", name, want, content)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("expected %d files, got %v", len(tc.want), got)
			}
		})
	}
}

func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		files[rel] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	if err := Main(t.Context(), []string{"--version"}, &stdout); err != nil {
		t.Fatal(err)
	}
	// Upstream's kube::protoc::check_protoc wants exactly this.
	if got, want := stdout.String(), "libprotoc 23.4\n"; got != want {
		t.Errorf("expected %q, got %q", want, got)
	}
}

func TestCheckFeatures(t *testing.T) {
	edition := func(edition descriptorpb.Edition) *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{Name: proto.String("a.proto"), Syntax: proto.String("editions"), Edition: edition.Enum()}
	}
	optional := &descriptorpb.FileDescriptorProto{
		Name:   proto.String("a.proto"),
		Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Field: []*descriptorpb.FieldDescriptorProto{{Proto3Optional: proto.Bool(true)}},
		}},
	}
	response := func(features uint64, lowest, highest descriptorpb.Edition) *pluginpb.CodeGeneratorResponse {
		return &pluginpb.CodeGeneratorResponse{
			SupportedFeatures: proto.Uint64(features),
			MinimumEdition:    proto.Int32(int32(lowest)),
			MaximumEdition:    proto.Int32(int32(highest)),
		}
	}
	const (
		withOptional = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		withEditions = uint64(pluginpb.CodeGeneratorResponse_FEATURE_SUPPORTS_EDITIONS)
	)
	for name, tc := range map[string]struct {
		file     *descriptorpb.FileDescriptorProto
		imported bool
		response *pluginpb.CodeGeneratorResponse
		wantErr  bool
	}{
		"optional-supported":       {file: optional, response: response(withOptional, 0, 0)},
		"optional-unsupported":     {file: optional, response: response(withEditions, 0, 0), wantErr: true},
		"optional-only-imported":   {file: optional, imported: true, response: response(0, 0, 0)},
		"edition-supported":        {file: edition(descriptorpb.Edition_EDITION_2023), response: response(withEditions, descriptorpb.Edition_EDITION_PROTO2, descriptorpb.Edition_EDITION_2023)},
		"edition-without-feature":  {file: edition(descriptorpb.Edition_EDITION_2023), response: response(withOptional, descriptorpb.Edition_EDITION_PROTO2, descriptorpb.Edition_EDITION_2023), wantErr: true},
		"edition-too-new":          {file: edition(descriptorpb.Edition_EDITION_2023), response: response(withEditions, descriptorpb.Edition_EDITION_PROTO2, descriptorpb.Edition_EDITION_PROTO3), wantErr: true},
		"edition-too-new-for-us":   {file: edition(descriptorpb.Edition_EDITION_2024), response: response(withEditions, descriptorpb.Edition_EDITION_PROTO2, descriptorpb.Edition_EDITION_MAX), wantErr: true},
		"edition-too-old":          {file: edition(descriptorpb.Edition_EDITION_2023), response: response(withEditions, descriptorpb.Edition_EDITION_2024, descriptorpb.Edition_EDITION_2024), wantErr: true},
		"edition-of-imported-file": {file: edition(descriptorpb.Edition_EDITION_2023), imported: true, response: response(0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			request := &pluginpb.CodeGeneratorRequest{ProtoFile: []*descriptorpb.FileDescriptorProto{tc.file}}
			if !tc.imported {
				request.FileToGenerate = []string{tc.file.GetName()}
			}
			err := checkFeatures(request, tc.response)
			if (err != nil) != tc.wantErr {
				t.Errorf("expected error %v, got %v", tc.wantErr, err)
			}
		})
	}
}
