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

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kubernetes-dra/hack/pkg/tree"
)

func init() {
	register(command{
		name:       "apply",
		args:       "<checkout> [--release 1.36] [--skip-generated]",
		short:      "commit the overlay on top of your own git checkout of Kubernetes",
		positional: true,
		run:        runApply,
	})
}

func runApply(ctx context.Context, args []string) error {
	flags := newFlags("apply")
	release := flags.String("release", "", "release whose overlay to apply (default: that of the checkout, found by its tags)")
	skip := flags.Bool("skip-generated", false, "make no commit with generated code: hack/update-codegen.sh of the checkout has to do that")
	checkout, err := parseOne(flags.Parse, flags.Args, args)
	if err != nil {
		return err
	}
	if checkout == "" {
		return errors.New("which checkout? hack/apply.sh <checkout>")
	}

	c, err := tree.OpenCheckout(ctx, checkout)
	if err != nil {
		return err
	}
	t, err := openTreeFor(c, *release)
	if err != nil {
		return err
	}
	t.Log("applying the overlay for %s to %s", t.Release.Version, c.Dir)
	commits, err := t.ApplyTo(ctx, c, *skip)
	if err != nil {
		return err
	}
	fmt.Printf("%s has %d new commits:\n\n  %s\n", c.Dir, len(commits), strings.Join(commits, "\n  "))
	fmt.Printf("\nTo undo that:\n\n  git -C %s reset --hard %s\n", c.Dir, c.Head)
	fmt.Printf("\nWhat to do next, in %s:\n\n", c.Dir)
	if *skip {
		fmt.Printf("  hack/update-codegen.sh   # there is no generated code yet\n")
	}
	fmt.Printf("  make WHAT=\"cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler cmd/kubelet cmd/kubectl\"\n")
	if gates := t.Ledger.Gates(t.Release.Name); len(gates) > 0 {
		fmt.Printf("\nand start them with --feature-gates=%s=true\n", strings.Join(gates, "=true,"))
	}
	return nil
}

// openTreeFor returns the tree of the release that is for a checkout, or of the one
// that was asked for.
func openTreeFor(c *tree.Checkout, release string) (*tree.Tree, error) {
	if release == "" {
		_, l, err := openRepository()
		if err != nil {
			return nil, err
		}
		r, err := c.Release(l)
		if err != nil {
			return nil, err
		}
		release = r.Name
	}
	return openTree(release)
}

// parseOne parses flags before and after one argument, and returns that.
func parseOne(parse func([]string) error, rest func() []string, args []string) (string, error) {
	if err := parse(args); err != nil {
		return "", err
	}
	if len(rest()) == 0 {
		return "", nil
	}
	argument := rest()[0]
	if err := parse(rest()[1:]); err != nil {
		return "", err
	}
	if len(rest()) > 0 {
		return "", fmt.Errorf("unexpected argument %q", rest()[0])
	}
	return argument, nil
}
