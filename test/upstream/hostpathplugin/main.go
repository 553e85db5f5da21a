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

// Hostpathplugin stands in for the program of that name in the image
// registry.k8s.io/sig-storage/hostpathplugin, of which upstream's DRA specs use
// one thing only: in the pod of a driver it listens at the socket where the
// kubelet expects the driver, and passes each connection on to one that the
// test has made to a port of the pod. So the driver can run inside the test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	endpoint := flag.String("endpoint", "", "where clients connect to: the path of a socket")
	proxy := flag.String("proxy-endpoint", "", "where the driver connects to: tcp://host:port")
	flag.Int("v", 0, "accepted for compatibility")
	flag.Parse()
	// A container that is told to end must remove its socket: that is how the
	// kubelet learns that a driver is gone.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *endpoint, *proxy); err != nil {
		log.Fatal(err)
	}
}

// run joins each connection of a client with one of the driver, until the context is done. The driver
// connects in advance, so its connections wait in the queue of the listener.
func run(ctx context.Context, endpoint, proxy string) error {
	socket := strings.TrimPrefix(endpoint, "unix://")
	// An earlier process may have left it.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--endpoint: %w", err)
	}
	clients, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("--endpoint: %w", err)
	}
	defer func() { _ = clients.Close() }()
	drivers, err := net.Listen("tcp", strings.TrimPrefix(proxy, "tcp://"))
	if err != nil {
		return fmt.Errorf("--proxy-endpoint: %w", err)
	}
	defer func() { _ = drivers.Close() }()
	log.Printf("connections to %s go to those from %s", clients.Addr(), drivers.Addr())
	defer context.AfterFunc(ctx, func() {
		_ = clients.Close()
		_ = drivers.Close()
	})()
	for {
		client, err := clients.Accept()
		if err == nil {
			var driver net.Conn
			if driver, err = drivers.Accept(); err == nil {
				go pass(client, driver)
				go pass(driver, client)
				continue
			}
			_ = client.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// pass copies in one direction, and ends both when that ends.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
