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
	"errors"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "folder", "lock")
	never := func() { t.Error("waited for a lock that nobody had") }
	unlock, err := Lock(t.Context(), name, never)
	if err != nil {
		t.Fatal(err)
	}

	// Whoever gives up does not get it later.
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	if _, err := Lock(ctx, name, func() { cancel(gaveUp) }); !errors.Is(err, gaveUp) {
		t.Errorf("got %v", err)
	}

	waiting, second := make(chan struct{}), make(chan error)
	go func() {
		unlock, err := Lock(t.Context(), name, func() { close(waiting) })
		if err == nil {
			unlock()
		}
		second <- err
	}()
	<-waiting
	unlock()
	if err := <-second; err != nil {
		t.Error(err)
	}
	unlock, err = Lock(t.Context(), name, func() {})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
