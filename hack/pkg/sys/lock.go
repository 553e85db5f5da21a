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

package sys

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Lock locks the file, which it creates, and returns a function that unlocks
// it. If another process has the lock, it calls waiting, and waits. The lock ends
// with the process, however it ends; nothing has to be cleaned up.
func Lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return func() { f.Close() }, nil
	}
	waiting()
	locked := make(chan error, 1)
	go func() {
		err := syscall.Flock(fd, syscall.LOCK_EX)
		for err == syscall.EINTR {
			err = syscall.Flock(fd, syscall.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { // whenever it gets the lock, it must not keep it
			<-locked
			f.Close()
		}()
		return nil, context.Cause(ctx)
	}
}
