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

// TestProxy connects as the suite does: the driver first, several times and
// in advance, then the clients.
func TestProxy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	// An earlier process that was killed leaves it.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clients, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	drivers, err := listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(clients, drivers) }()

	dial := func(l net.Listener) net.Conn {
		conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	driver := []net.Conn{dial(drivers), dial(drivers)}
	for i, text := range []string{"first", "second"} {
		client := dial(clients)
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
	_ = clients.Close()
	if err := <-ended; err == nil {
		t.Error("it ends without an error")
	}
}

// TestEnd checks that the kubelet can see the end of a driver.
func TestEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, socket, "tcp://127.0.0.1:0") }()
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended at once: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it was told to end, and returned: %v", err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	for _, endpoint := range []string{"", "tcp://", "nothing://x", "unix://" + filepath.Join(t.TempDir(), "no", "folder")} {
		if l, err := listen(endpoint); err == nil {
			_ = l.Close()
			t.Errorf("%q: no error", endpoint)
		}
	}
}
