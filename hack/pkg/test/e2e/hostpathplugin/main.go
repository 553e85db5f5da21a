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
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	endpoint := flag.String("endpoint", "", "where clients connect to: the path of a socket, or a URL")
	proxy := flag.String("proxy-endpoint", "", "where the driver connects to")
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

// run ends without an error when the context is done.
func run(ctx context.Context, endpoint, proxy string) error {
	clients, err := listen(endpoint)
	if err != nil {
		return fmt.Errorf("--endpoint: %w", err)
	}
	defer func() { _ = clients.Close() }()
	drivers, err := listen(proxy)
	if err != nil {
		return fmt.Errorf("--proxy-endpoint: %w", err)
	}
	defer func() { _ = drivers.Close() }()
	log.Printf("connections to %s go to those from %s", clients.Addr(), drivers.Addr())
	defer context.AfterFunc(ctx, func() {
		_ = clients.Close()
		_ = drivers.Close()
	})()
	if err := serve(clients, drivers); ctx.Err() == nil {
		return err
	}
	return nil
}

// listen takes unix:///path, tcp://host:port, or just the path of a socket. A
// socket that an earlier process left is replaced.
func listen(endpoint string) (net.Listener, error) {
	network, address := "unix", endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		network, address = u.Scheme, u.Host+u.Path
	}
	if address == "" {
		return nil, errors.New("an address is required")
	}
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return net.Listen(network, address)
}

// serve joins each connection of a client with one of the driver. The driver
// connects in advance, so its connections wait in the queue of the listener.
func serve(clients, drivers net.Listener) error {
	for {
		client, err := clients.Accept()
		if err != nil {
			return err
		}
		driver, err := drivers.Accept()
		if err != nil {
			_ = client.Close()
			return err
		}
		go join(client, driver)
	}
}

// join copies in both directions until one of them ends.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go pass(a, b)
	go pass(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
}
