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
	"fmt"
	"path/filepath"

	"kubernetes-dra/hack/pkg/debian"
)

func init() {
	register(command{
		name:  "pin-proxy",
		short: "write the Debian packages of kube-proxy's image into " + debian.ProxyLock,
		run:   runPinProxy,
	})
}

func runPinProxy(ctx context.Context, args []string) error {
	if err := newFlags("pin-proxy").Parse(args); err != nil {
		return err
	}
	repo, err := repository()
	if err != nil {
		return err
	}
	name := filepath.Join(repo, debian.ProxyLock)
	lock, err := debian.Load(name)
	if err != nil {
		return err
	}
	if err := lock.Pin(ctx, debian.Archive{}); err != nil {
		return err
	}
	if err := lock.Write(name); err != nil {
		return err
	}
	for _, arch := range debian.Architectures {
		fmt.Printf("%s pins %d packages of %s for %s\n", debian.ProxyLock, len(lock.Packages[arch]), lock.Suite, arch)
	}
	return nil
}
