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
	"path/filepath"

	"kubernetes-dra/hack/pkg/dist/debian"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

func init() {
	register(command{
		name:  "pin",
		args:  "--release 1.36",
		short: "write hack/releases/<release> for the version in the ledger",
		run:   runPin,
	})
	register(command{
		name:  "newer",
		short: "list patch releases of Kubernetes that are newer than the pins; an error if there are some",
		run:   runNewer,
	})
	register(command{
		name:  "pin-images",
		short: "write the Debian packages of images into the lock files in " + imageLocks,
		args:  "[--mirror address]",
		run:   runPinImages,
	})
}

func runPin(ctx context.Context, args []string) error {
	flags := newFlags("pin")
	release := flags.String("release", "", "release to pin; its state in the ledger must be carried")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *release == "" {
		return errors.New("which release? --release 1.36")
	}
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	r, err := l.Release(*release)
	if err != nil {
		return err
	}
	if err := upstream.WritePin(ctx, repo, r); err != nil {
		return err
	}
	fmt.Printf("%s pins %s\n", upstream.PinDir(r.Name), r.Version)
	for _, s := range r.StandIns {
		fmt.Printf("%s %s stands in for %s: %s\n", s.Module, s.Version, r.StagingVersion(), s.Why)
	}
	return nil
}

func runNewer(ctx context.Context, args []string) error {
	if err := newFlags("newer").Parse(args); err != nil {
		return err
	}
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	newer := 0
	for _, r := range l.Carried() {
		found, err := upstream.Newer(ctx, repo, r.Version)
		if err != nil {
			return err
		}
		if found == "" {
			fmt.Printf("%s is the newest of %s\n", r.Version, r.Name)
			continue
		}
		fmt.Printf("%s is out, and %s pins %s: see docs/dev/maintaining.md\n", found, r.Name, r.Version)
		newer++
	}
	if newer > 0 {
		return exitError(1)
	}
	return nil
}

const (
	// imageLocks is the folder of the lock files, in the repository.
	imageLocks = "hack/images"
	// mirrorUsage is the description of --mirror.
	mirrorUsage = "address of Debian's archive (default: the one that apt of this machine uses)"
)

func runPinImages(ctx context.Context, args []string) error {
	flags := newFlags("pin-images")
	mirror := flags.String("mirror", "", mirrorUsage)
	if err := flags.Parse(args); err != nil {
		return err
	}
	repo, err := repository()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(repo, filepath.FromSlash(imageLocks), "*.lock"))
	if err != nil {
		return err
	}
	for _, file := range files {
		lock, err := debian.Pin(ctx, file, debian.Apt{Mirror: *mirror, Keyring: debian.Keyring})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, arch := range debian.Architectures {
			fmt.Printf("%s pins %d packages of %s for %s\n", file, len(lock.Packages[arch]), lock.Suite, arch)
		}
	}
	return nil
}
