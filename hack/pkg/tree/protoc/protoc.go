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

// Package protoc compiles .proto files and hands them to code generator
// plugins, like the Protocol Buffers compiler does. It is written in Go
// entirely, so that building a Kubernetes tree needs nothing but the Go tool
// chain.
//
// Only what Kubernetes' generators use is supported: search paths, plugins
// (--NAME_out runs protoc-gen-NAME, found in $PATH or given with --plugin)
// and their parameters. The generators which protoc itself has for C++, Java
// and so on do not exist here.
package protoc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// Version is what --version prints. Upstream's scripts compare it with the
// protoc release that they want: one which gives the same files as we do.
const Version = "libprotoc 23.4"

// maxEdition is the newest edition of the language that protocompile knows.
// Without a range in its answer, a plugin which claims to support editions
// is held to be wrong by protoc, too.
const maxEdition = int32(descriptorpb.Edition_EDITION_2023)

// output is one --NAME_out option.
type output struct {
	plugin    string // NAME
	parameter string
	dir       string
}

// options are parsed command line arguments.
type options struct {
	version     bool
	importPaths []string
	outputs     []output
	plugins     map[string]string // NAME -> executable
	files       []string
}

// parseArgs understands the arguments of protoc which Kubernetes uses.
func parseArgs(args []string) (*options, error) {
	o := &options{plugins: map[string]string{}}
	parameters := map[string]string{} // NAME -> value of --NAME_opt

	for i := 0; i < len(args); i++ {
		arg := args[i]
		// value returns what follows the option, either in the same
		// argument or as the next one.
		value := func(name, inline string, hasInline bool) (string, error) {
			if hasInline {
				return inline, nil
			}
			i++
			if i >= len(args) {
				return "", fmt.Errorf("missing value for option %s", name)
			}
			return args[i], nil
		}

		switch {
		case arg == "--version":
			o.version = true
		case arg == "":
			return nil, errors.New("empty argument")
		case !strings.HasPrefix(arg, "-"):
			o.files = append(o.files, arg)
		case strings.HasPrefix(arg, "-I"):
			v, err := value("-I", strings.TrimPrefix(arg, "-I"), len(arg) > len("-I"))
			if err != nil {
				return nil, err
			}
			if err := o.addImportPaths(v); err != nil {
				return nil, err
			}
		case strings.HasPrefix(arg, "--"):
			name, inline, hasInline := strings.Cut(arg, "=")
			switch {
			case name == "--proto_path":
				v, err := value(name, inline, hasInline)
				if err != nil {
					return nil, err
				}
				if err := o.addImportPaths(v); err != nil {
					return nil, err
				}
			case name == "--plugin":
				v, err := value(name, inline, hasInline)
				if err != nil {
					return nil, err
				}
				plugin, executable, ok := strings.Cut(v, "=")
				if !ok {
					plugin, executable = filepath.Base(v), v
				}
				short, ok := strings.CutPrefix(plugin, "protoc-gen-")
				if !ok || short == "" || executable == "" {
					return nil, fmt.Errorf("--plugin: %q does not name a protoc-gen-NAME executable", v)
				}
				o.plugins[short] = executable
			case strings.HasSuffix(name, "_out") && len(name) > len("--_out"):
				v, err := value(name, inline, hasInline)
				if err != nil {
					return nil, err
				}
				// PARAMETER:DIR, with the parameter being optional.
				out := output{plugin: strings.TrimSuffix(strings.TrimPrefix(name, "--"), "_out"), dir: v}
				if parameter, dir, ok := strings.Cut(v, ":"); ok {
					out.parameter, out.dir = parameter, dir
				}
				if out.dir == "" {
					return nil, fmt.Errorf("%s: no output directory in %q", name, v)
				}
				o.outputs = append(o.outputs, out)
			case strings.HasSuffix(name, "_opt") && len(name) > len("--_opt"):
				v, err := value(name, inline, hasInline)
				if err != nil {
					return nil, err
				}
				plugin := strings.TrimSuffix(strings.TrimPrefix(name, "--"), "_opt")
				parameters[plugin] = joinParameters(parameters[plugin], v)
			default:
				return nil, fmt.Errorf("unknown option %s", name)
			}
		default:
			return nil, fmt.Errorf("unknown option %s", arg)
		}
	}

	if o.version {
		return o, nil
	}
	for i := range o.outputs {
		out := &o.outputs[i]
		out.parameter = joinParameters(out.parameter, parameters[out.plugin])
		delete(parameters, out.plugin)
	}
	for plugin := range parameters {
		return nil, fmt.Errorf("--%s_opt without --%s_out", plugin, plugin)
	}
	if len(o.files) == 0 {
		return nil, errors.New("missing input file")
	}
	if len(o.outputs) == 0 {
		return nil, errors.New("missing output directive (--NAME_out)")
	}
	if len(o.importPaths) == 0 {
		o.importPaths = []string{"."}
	}
	return o, nil
}

func (o *options) addImportPaths(list string) error {
	for _, p := range filepath.SplitList(list) {
		if p == "" {
			return fmt.Errorf("empty search path in %q", list)
		}
		o.importPaths = append(o.importPaths, filepath.Clean(p))
	}
	if list == "" {
		return errors.New("empty search path")
	}
	return nil
}

func joinParameters(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}

// virtualName determines under which name a file on the command line is
// known to "import" statements: its path relative to the first search path
// that holds it.
func (o *options) virtualName(file string) (string, error) {
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("input file: %w", err)
	}
	clean := filepath.Clean(file)
	for _, dir := range o.importPaths {
		if filepath.IsAbs(dir) != filepath.IsAbs(clean) {
			continue
		}
		rel, err := filepath.Rel(dir, clean)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			continue
		}
		name := filepath.ToSlash(rel)
		found, err := o.find(name)
		if err != nil {
			return "", err
		}
		if found != filepath.Join(dir, rel) {
			return "", fmt.Errorf("%s is shadowed by %s, which comes earlier in the search path", file, found)
		}
		return name, nil
	}
	return "", fmt.Errorf("%s is in none of the directories of the search path (%s)", file, strings.Join(o.importPaths, ", "))
}

// find returns the first file in the search path with that name.
func (o *options) find(name string) (string, error) {
	for _, dir := range o.importPaths {
		file := filepath.Join(dir, filepath.FromSlash(name))
		_, err := os.Stat(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// open is what the compiler uses to read a file.
func (o *options) open(name string) (io.ReadCloser, error) {
	file, err := o.find(name)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// Main does what the arguments ask for. Errors name the file and line if
// there is one.
func Main(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parseArgs(args)
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Fprintln(stdout, Version)
		return err
	}

	var names []string
	for _, file := range o.files {
		name, err := o.virtualName(file)
		if err != nil {
			return err
		}
		names = append(names, name)
	}

	request, err := compile(ctx, o, names)
	if err != nil {
		return err
	}
	for _, out := range o.outputs {
		request.Parameter = nil
		if out.parameter != "" {
			request.Parameter = proto.String(out.parameter)
		}
		if err := runPlugin(ctx, o, out, request); err != nil {
			return fmt.Errorf("--%s_out: %w", out.plugin, err)
		}
	}
	return nil
}

// compile parses and links the files and everything that they import.
func compile(ctx context.Context, o *options, names []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: o.open}),
		// Generators copy comments.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}

	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	// Plugins want each file after those which it imports.
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := 0; i < imports.Len(); i++ {
			add(imports.Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, name := range names {
		file := files.FindFileByPath(name)
		if file == nil {
			return nil, fmt.Errorf("%s: not compiled", name)
		}
		add(file)
	}
	return request, nil
}

// runPlugin hands the request to the plugin and writes what it generated.
func runPlugin(ctx context.Context, o *options, out output, request *pluginpb.CodeGeneratorRequest) error {
	if info, err := os.Stat(out.dir); err != nil {
		return fmt.Errorf("output directory: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", out.dir)
	}

	executable := o.plugins[out.plugin]
	if executable == "" {
		executable = "protoc-gen-" + out.plugin
	}
	stdin, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request for %s: %w", executable, err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, executable)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if msg := strings.TrimSpace(stderr.String()); msg != "" {
			return fmt.Errorf("%s: %w: %s", executable, err, msg)
		}
		return fmt.Errorf("%s: %w", executable, err)
	}

	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(stdout.Bytes(), response); err != nil {
		return fmt.Errorf("decoding the answer of %s: %w", executable, err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s: %s", executable, response.GetError())
	}
	if err := checkFeatures(request, response); err != nil {
		return fmt.Errorf("%s: %w", executable, err)
	}
	return writeFiles(out.dir, response.GetFile())
}

// checkFeatures refuses an answer from a plugin which does not understand
// everything that was in the request.
func checkFeatures(request *pluginpb.CodeGeneratorRequest, response *pluginpb.CodeGeneratorResponse) error {
	generate := map[string]bool{}
	for _, name := range request.FileToGenerate {
		generate[name] = true
	}
	supported := response.GetSupportedFeatures()
	for _, file := range request.ProtoFile {
		if !generate[file.GetName()] {
			continue
		}
		if supported&uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL) == 0 && hasProto3Optional(file) {
			return fmt.Errorf("%s has an optional field in proto3, which the plugin does not support", file.GetName())
		}
		if file.GetSyntax() == "editions" {
			edition := int32(file.GetEdition())
			if supported&uint64(pluginpb.CodeGeneratorResponse_FEATURE_SUPPORTS_EDITIONS) == 0 ||
				edition < response.GetMinimumEdition() || edition > response.GetMaximumEdition() || edition > maxEdition {
				return fmt.Errorf("%s uses %s, which the plugin does not support", file.GetName(), file.GetEdition())
			}
		}
	}
	return nil
}

func hasProto3Optional(file *descriptorpb.FileDescriptorProto) bool {
	var inMessages func(messages []*descriptorpb.DescriptorProto) bool
	inMessages = func(messages []*descriptorpb.DescriptorProto) bool {
		for _, message := range messages {
			for _, field := range message.Field {
				if field.GetProto3Optional() {
					return true
				}
			}
			if inMessages(message.NestedType) {
				return true
			}
		}
		return false
	}
	return inMessages(file.MessageType)
}

// writeFiles writes generated files below dir. All content is put together
// before the first file gets written.
func writeFiles(dir string, files []*pluginpb.CodeGeneratorResponse_File) error {
	content := map[string]*strings.Builder{}
	var current *strings.Builder
	for _, file := range files {
		if file.GetInsertionPoint() != "" {
			return fmt.Errorf("%s: insertion points are not supported", file.GetName())
		}
		if name := file.GetName(); name != "" {
			if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name {
				return fmt.Errorf("generated file name %q leaves the output directory", name)
			}
			if content[name] != nil {
				return fmt.Errorf("%s got generated twice", name)
			}
			current = &strings.Builder{}
			content[name] = current
		} else if current == nil {
			return errors.New("generated file without a name")
		}
		// Without a name, it continues the one before.
		current.WriteString(file.GetContent())
	}

	names := make([]string, 0, len(content))
	for name := range content {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, []byte(content[name].String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
