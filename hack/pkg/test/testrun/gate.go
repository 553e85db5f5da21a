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

package testrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// GateProof is the test in each gate file.
const GateProof = "TestFeatureGatesAreOnAtTheEnd"

// gateFileName sorts after all others: tests run in the order of the file names, so
// the proof gets checked last.
const gateFileName = "zzz_carry_gates_test.go"

// Overlay collects replacements for the -overlay flag of the go command: the tree
// on disk does not change, only what gets compiled.
type Overlay struct {
	dir     string
	replace map[string]string
}

// NewOverlay keeps the replacements in the given directory. Its path has to remain the
// same between runs, otherwise nothing that depends on it can come from the build cache.
func NewOverlay(dir string) (*Overlay, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	return &Overlay{dir: dir, replace: map[string]string{}}, os.MkdirAll(dir, 0o755)
}

// Add makes the go command see the given content at a path.
func (o *Overlay) Add(path string, content []byte) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	file := filepath.Join(o.dir, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "__"))
	o.replace[path] = file
	return os.WriteFile(file, content, 0o644)
}

// Read returns what the go command sees at a path.
func (o *Overlay) Read(path string) ([]byte, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if file, ok := o.replace[path]; ok {
		path = file
	}
	return os.ReadFile(path)
}

// Replaced maps the paths to the files that stand in for them.
func (o *Overlay) Replaced() map[string]string { return o.replace }

// Flag writes the list of replacements and returns the flag for the go command.
func (o *Overlay) Flag() (string, error) {
	content, err := json.MarshalIndent(map[string]any{"Replace": o.replace}, "", "  ")
	if err != nil {
		return "", err
	}
	file := filepath.Join(o.dir, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, content, 0o644)
}

// GateFile adds a test file to the package in the given directory. Before any test runs, it
// turns feature gates on if the environment variable is "on" or "forced". If it is "off", it
// turns off those which are on by default. Else it does nothing. Its test [GateProof]
// passes if the gates are still like that at the end, that is if no test changed one for good.
//
// Tests that were written without knowledge of a feature do not set its gate, so
// they run with the feature on then. The file belongs to the external test package
// because that one may import everything.
func (o *Overlay) GateFile(dir, pkg, env string, gates []string) error {
	slices.Sort(gates)
	var b strings.Builder
	fmt.Fprintf(&b, "package %s_test\n\n", strings.TrimSuffix(pkg, "_test"))
	b.WriteString("import (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n\n" +
		"\tutilfeature \"k8s.io/apiserver/pkg/util/feature\"\n" +
		"\t\"k8s.io/component-base/featuregate\"\n" +
		"\t_ \"k8s.io/kubernetes/pkg/features\"\n)\n\n")
	fmt.Fprintf(&b, "var carryGates = %#v\n\n", gates)
	fmt.Fprintf(&b, "var carryGatesWanted = os.Getenv(%q)\n\n", env)
	b.WriteString(`var carryGatesOn = carryGatesWanted == "on" || carryGatesWanted == "forced"

func init() {
	if carryGatesWanted == "" {
		return
	}
	for _, gate := range carryGates {
		if !carryGatesOn && !utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(gate)) {
			continue
		}
		if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%t", gate, carryGatesOn)); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
	}
}

`)
	fmt.Fprintf(&b, `func %s(t *testing.T) {
	for _, gate := range carryGates {
		if utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(gate)) != carryGatesOn {
			t.Errorf("feature gate %%s: want on = %%t", gate, carryGatesOn)
		}
	}
}
`, GateProof)
	return o.Add(filepath.Join(dir, gateFileName), []byte(b.String()))
}

// gateTesting is the package whose functions tests call to set feature gates.
const gateTesting = "staging/src/k8s.io/component-base/featuregate/testing"

// GatesOffBefore turns feature gates off for as long as a test emulates a version
// before the given one. A test may do that for a reason that has nothing to do with
// the feature. Then the gate cannot be on because what it depends on did not
// exist yet, or was off.
//
// It also keeps those gates on which others depend when a test sets AllBeta, which sets
// every gate that is beta, whether it was set before or not. All that happens only if the
// environment variable is set.
func (o *Overlay) GatesOffBefore(tree, env, version string, gates, needed []string) error {
	dir := filepath.Join(tree, filepath.FromSlash(gateTesting))
	source := filepath.Join(dir, "feature_gate.go")
	src, err := o.Read(source)
	if err != nil {
		return err
	}
	// Older releases have a function for one gate only, and emulate without
	// a minimal version that they remain compatible with.
	const several, one = "SetFeatureGatesDuringTest", "SetFeatureGateDuringTest"
	off, entry, emulated := several+"(tb, gate, FeatureOverrides{f: false})", "SetFeatureGateVersionsDuringTest", "emuVer"
	// That function sets all gates at once, and refuses to turn one off that another one
	// depends on. So it must not try.
	setter, keepGates := several, "features = carryKeepGates(gate, features)"
	keeper := `func carryKeepGates(gate featuregate.FeatureGate, features FeatureOverrides) FeatureOverrides {
	if _, beta := features["AllBeta"]; !beta || !carryGatesWanted {
		return features
	}
	kept := FeatureOverrides{}
	for _, name := range %#v {
		kept[featuregate.Feature(name)] = gate.Enabled(featuregate.Feature(name))
	}
	for f, on := range features {
		kept[f] = on
	}
	return kept
}

`
	if !bytes.Contains(src, []byte("func "+several+"(")) {
		off, entry, emulated = one+"(tb, gate, f, false)", "SetFeatureGateEmulationVersionDuringTest", "ver"
		setter, keepGates = one, `if f == "AllBeta" && carryGatesWanted { defer carryKeepGates(tb, gate)() }`
		keeper = `func carryKeepGates(tb TB, gate featuregate.FeatureGate) func() {
	var kept []string
	for _, name := range %#v {
		setting := "=false"
		if gate.Enabled(featuregate.Feature(name)) {
			setting = "=true"
		}
		kept = append(kept, name+setting)
	}
	return func() {
		for _, setting := range kept {
			if err := gate.(interface{ Set(string) error }).Set(setting); err != nil {
				tb.Errorf("keeping %%s: %%v", setting, err)
			}
		}
	}
}

`
	}
	var b strings.Builder
	b.WriteString("package testing\n\nimport (\n\t\"os\"\n\n\t\"k8s.io/apimachinery/pkg/util/version\"\n\t\"k8s.io/component-base/featuregate\"\n)\n\n")
	fmt.Fprintf(&b, "var carryGatesWanted = os.Getenv(%q) != \"\"\n\n", env)
	fmt.Fprintf(&b, keeper, needed)
	fmt.Fprintf(&b, `func carryGatesOffBefore(tb TB, gate featuregate.FeatureGate, emulated *version.Version) {
	tb.Helper()
	if !carryGatesWanted || emulated.AtLeast(version.MustParse(%q)) {
		return
	}
	for _, name := range %#v {
		if f := featuregate.Feature(name); gate.Enabled(f) {
			%s
		}
	}
}
`, version, gates, off)
	if err := o.Add(filepath.Join(dir, "zzz_carry_gates.go"), []byte(b.String())); err != nil {
		return err
	}
	if err := o.Force(source, setter, keepGates); err != nil {
		return err
	}
	return o.Force(source, entry, "carryGatesOffBefore(tb, gate, "+emulated+")")
}

// Force makes a function begin with one more statement. It is for components
// whose tests do not look at the feature gates and pass a struct to
// the constructor instead.
func (o *Overlay) Force(path, function, statement string) error {
	src, err := o.Read(path)
	if err != nil {
		return err
	}
	src, err = insertFirst(src, function, statement)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return o.Add(path, src)
}

// SetFields makes the first of some functions that has a parameter begin by setting
// fields of it, if a condition holds, which may use package os. The parameter is a struct, or
// any number of them: then of one more.
func (o *Overlay) SetFields(path, condition string, functions []string, parameter string, fields ...string) error {
	src, err := o.Read(path)
	if err != nil {
		return err
	}
	for _, function := range functions {
		fn, fset, pkg, err := findFunction(src, function)
		if err != nil {
			continue
		}
		at := slices.IndexFunc(fn.Type.Params.List, func(p *ast.Field) bool {
			return slices.ContainsFunc(p.Names, func(name *ast.Ident) bool { return name.Name == parameter })
		})
		if at < 0 {
			continue
		}
		var statements []string
		if variadic, ok := fn.Type.Params.List[at].Type.(*ast.Ellipsis); ok {
			element := src[fset.Position(variadic.Elt.Pos()).Offset:fset.Position(variadic.Elt.End()).Offset]
			statements = append(statements, fmt.Sprintf("%[1]s = append(%[1]s, %[2]s{})", parameter, element))
			parameter += "[0]"
		}
		for _, field := range fields {
			statements = append(statements, parameter+"."+field+" = true")
		}
		// The file need not import os.
		helper := "carryForce" + function
		source := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = %s\n", pkg, helper, condition)
		if err := o.Add(filepath.Join(filepath.Dir(path), "zzz_carry_"+strings.ToLower(function)+".go"), []byte(source)); err != nil {
			return err
		}
		return o.Force(path, function, "if "+helper+" { "+strings.Join(statements, "; ")+" }")
	}
	return fmt.Errorf("%s: no function %s has a parameter %s", path, strings.Join(functions, " or "), parameter)
}

func insertFirst(src []byte, function, statement string) ([]byte, error) {
	fn, fset, _, err := findFunction(src, function)
	if err != nil {
		return nil, err
	}
	// On the same line, so that all positions in stack traces remain right.
	at := fset.Position(fn.Body.Lbrace).Offset + 1
	return slices.Concat(src[:at], []byte(" "+statement+";"), src[at:]), nil
}

// findFunction returns a function, and the name of its package.
func findFunction(src []byte, function string) (*ast.FuncDecl, *token.FileSet, string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, "", err
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == function && fn.Body != nil {
			return fn, fset, file.Name.Name, nil
		}
	}
	return nil, nil, "", fmt.Errorf("there is no function %s", function)
}

// TestFunctions returns the names of the functions in Go test files which "go test"
// runs by default: tests, fuzz tests and examples.
func TestFunctions(files ...string) ([]string, error) {
	var names []string
	var errs []error
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || fn.Name.Name == "TestMain" {
				continue
			}
			for _, prefix := range []string{"Test", "Fuzz", "Example"} {
				if strings.HasPrefix(fn.Name.Name, prefix) {
					names = append(names, fn.Name.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names, errors.Join(errs...)
}
