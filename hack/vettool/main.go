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

// Command vettool is go vet's program for a quick look at a few packages of a large tree:
//
//	CARRY_VET="$(go tool -n vet)" go vet -vettool=_output/bin/vettool ./pkg/...
//
// It is upstream's, with all its checks, but learns nothing from other packages. Go
// vet type-checks all that a package imports to find out what wraps fmt.Printf. In a
// Kubernetes tree that takes two minutes of CPU time, and nothing that those minutes
// find is about the packages in question unless they call such a wrapper.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// vetVariable names the environment variable with the path of upstream's program.
const vetVariable = "CARRY_VET"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run gets what cmd/vet gets: a file that describes a package, as the last argument, or a
// question about the program itself.
func run(args []string) error {
	if len(args) > 0 && strings.HasSuffix(args[len(args)-1], ".cfg") {
		if done, err := skipFacts(args[len(args)-1]); done || err != nil {
			return err
		}
	}
	vet := os.Getenv(vetVariable)
	if vet == "" {
		return fmt.Errorf("the environment variable %s must have the path that \"go tool -n vet\" prints", vetVariable)
	}
	cmd := exec.Command(vet, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if len(args) != 1 || args[0] != "-V=full" {
		return cmd.Run()
	}
	// The version is part of what the go command keeps results for. Those of upstream's
	// program are others.
	cmd.Stdout = nil
	version, err := cmd.Output()
	if err != nil {
		return err
	}
	fmt.Printf("%s without facts\n", strings.TrimSpace(string(version)))
	return nil
}

// skipFacts returns true if the package is imported by one in question, and is none
// itself. It has no facts then.
func skipFacts(config string) (bool, error) {
	data, err := os.ReadFile(config)
	if err != nil {
		return false, err
	}
	// As in golang.org/x/tools/go/analysis/unitchecker.
	var c struct {
		VetxOnly   bool
		VetxOutput string
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return false, fmt.Errorf("%s: %w", config, err)
	}
	if !c.VetxOnly {
		return false, nil
	}
	return true, os.WriteFile(c.VetxOutput, nil, 0o666)
}
