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
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestProxy connects as the suite does: the driver first, several times and in advance, then the clients.
// The kubelet must see the end of a driver.
func TestProxy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	// An earlier process that was killed leaves it.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "unix://"+socket, "tcp://"+address) }()

	dial := func(network, address string) net.Conn {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			conn, err := net.Dial(network, address)
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			} else if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	driver := []net.Conn{dial("tcp", address), dial("tcp", address)}
	for i, text := range []string{"first", "second"} {
		client := dial("unix", socket)
		send := func(from, to net.Conn) {
			if _, err := io.WriteString(from, text); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(text))
			if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
				t.Fatalf("got %q, %v, want %q", got, err, text)
			}
		}
		send(client, driver[i])
		send(driver[i], client)
		// The end of one is the end of the other.
		_ = client.Close()
		if n, err := driver[i].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %d bytes, %v after the client closed", n, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it was told to end, and returned: %v", err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := run(t.Context(), filepath.Join(t.TempDir(), "no", "folder"), "tcp://"+address); err == nil {
		t.Error("it listens in no folder")
	}
}
