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

// Carry builds Kubernetes trees out of upstream releases and the overlay in
// this repository, and does what there is to do with them. The targets of the
// Makefile call it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// command is a subcommand. Each stands in a file of its own, and registers
// itself there.
type command struct {
	name string
	// args describes the arguments, for the usage message.
	args string
	// short says in a line what the command does.
	short string
	// positional is for a command that takes arguments which are no flags; to any other
	// they are an error.
	positional bool
	// run gets the arguments after the name. The context ends with SIGINT,
	// SIGTERM or SIGHUP.
	run func(ctx context.Context, args []string) error
}

var commands []command

func init() {
	register(command{
		name:  "releases",
		args:  "[--release 1.36]",
		short: "list the releases that are carried, or check the name of one",
		run:   runReleases,
	})
}

// runReleases lets the Makefile refuse a name before it installs or builds something.
func runReleases(_ context.Context, args []string) error {
	flags := newFlags("releases")
	name := flags.String("release", "", "show only this one; an error if it is not carried (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, l, err := openRepository()
	if err != nil {
		return err
	}
	releases := l.Carried()
	if *name != "" {
		r, err := l.Release(*name)
		if err != nil {
			return err
		}
		releases = []*ledger.Release{r}
	}
	for _, r := range releases {
		fmt.Println(r.Name, r.Version)
	}
	return nil
}

func register(c command) { commands = append(commands, c) }

// exitError is an error that was shown to the user already; only the exit
// status remains to be set.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := <-signals
		cancel(fmt.Errorf("stopped by %s", s))
	}()

	err := dispatch(ctx, os.Args[1:])
	var exit exitError
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, &exit):
		os.Exit(int(exit))
	default:
		fmt.Fprintf(os.Stderr, "carry: %v\n", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return exitError(2)
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(os.Stdout)
		return nil
	}
	return fmt.Errorf("there is no command %q: \"carry help\" lists them", args[0])
}

func usage(w io.Writer) {
	slices.SortFunc(commands, func(a, b command) int { return strings.Compare(a.name, b.name) })
	fmt.Fprintf(w, "usage: carry <command> [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.short)
	}
	fmt.Fprintf(w, "\n\"carry <command> --help\" lists the flags of a command.\n")
}

// flagSet refuses arguments that are no flags, unless the command takes some.
type flagSet struct {
	*flag.FlagSet
	positional bool
}

// Parse parses all arguments.
func (f *flagSet) Parse(args []string) error {
	if err := f.FlagSet.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 && !f.positional {
		return fmt.Errorf("unknown argument %q: \"carry %s --help\" says what it takes", f.Arg(0), f.Name())
	}
	return nil
}

// newFlags returns the flags of a command; -h prints its description.
func newFlags(name string) *flagSet {
	flags := &flagSet{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	for _, c := range commands {
		if c.name == name {
			flags.positional = c.positional
		}
	}
	flags.Usage = func() {
		for _, c := range commands {
			if c.name == name {
				fmt.Fprintf(os.Stderr, "usage: carry %s\n\n%s\n\n", strings.TrimSpace(c.name+" "+c.args), c.short)
			}
		}
		flags.PrintDefaults()
	}
	return flags
}

// repository finds the root of this repository: the folder with the ledger,
// at or above the current one.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "ledger.yaml")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository: no hack/ledger.yaml at or above it", start)
		}
	}
}

// openRepository finds the repository, and reads its ledger.
func openRepository() (repo string, l *ledger.Ledger, err error) {
	if repo, err = repository(); err != nil {
		return "", nil, err
	}
	l, err = ledger.Load(repo)
	return repo, l, err
}
