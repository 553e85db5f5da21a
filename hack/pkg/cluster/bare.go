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

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNode is a command line that runs another one on the first real node, with its processes and
// files, and its network if it has its own. All of it ends with the node.
func (c *Cluster) InNode(args ...string) ([]string, error) { return c.node().inside(args...) }

// NodeAddress is the address of the first real node, NodeCgroup the control group for its pods.
func (c *Cluster) NodeAddress() string { return c.node().address() }

// NodeCgroup is the control group for the pods of the first real node.
func (c *Cluster) NodeCgroup() string { return c.node().of(c.id()) }

// ListenInNode listens in the network of the first real node. Whoever accepts is this process.
func (c *Cluster) ListenInNode(address string) (net.Listener, error) {
	init, err := c.node().init()
	if err != nil {
		return nil, err
	}
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		l, err := listenIn(fmt.Sprintf("/proc/%d/ns/net", init), address)
		done <- result{l, err}
	}()
	r := <-done
	return r.l, r.err
}

// listenIn listens in a network namespace. A socket stays in the one in which it was made, but this
// thread has to go back to its own.
func listenIn(namespace, address string) (l net.Listener, err error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }()
	other, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the network of %s: %w", namespace, err)
	}
	l, err = net.Listen("tcp4", address)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// Without UnlockOSThread, the thread ends with its goroutine.
		return l, errors.Join(err, fmt.Errorf("go back to the network of this machine: %w", back))
	}
	runtime.UnlockOSThread()
	return l, err
}
