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
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestBareOptions has what contradicts a node with containerd alone.
func TestBareOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"two nodes": func(o *Options) { o.RealNodes = 2 },
		"no node":   func(o *Options) { o.NoRealNode = true },
		"simulated": func(o *Options) { o.SimulatedNodes = 1 },
		"Services":  func(o *Options) { o.Services = true },
		"kubeadm":   func(o *Options) { o.Kubeadm = &Kubeadm{} },
	} {
		options := Options{Repo: "/repo", Bin: "/bin", Dir: t.TempDir(), Bare: true}
		if _, err := New(options, t.Logf); err != nil {
			t.Fatal(err)
		}
		if change(&options); options.Bare {
			if _, err := New(options, t.Logf); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
}

// TestBarePorts checks that a node with a network of its own takes no port that others want: they
// would be told that it is in their way.
func TestBarePorts(t *testing.T) {
	c := newCluster(t)
	c.Options.Bare, c.Ports = true, map[string]int{}
	if err := c.choosePorts(); err != nil {
		t.Fatal(err)
	}
	if len(c.Ports) != 1 || c.Ports[APIServer] == 0 {
		t.Errorf("%v", c.Ports)
	}
}

// TestBareSysctls checks that a node with a network of its own leaves alone what this machine's network
// is set to: another cluster may have changed it meanwhile.
func TestBareSysctls(t *testing.T) {
	for _, bare := range []bool{false, true} {
		c := newCluster(t)
		c.Options.Bare = bare
		if err := c.rememberSysctls(); err != nil {
			t.Fatal(err)
		}
		if c.Sysctls["kernel/panic"] == "" {
			t.Errorf("bare %t: kernel.panic is not remembered", bare)
		}
		for name := range c.Sysctls {
			if bare && strings.HasPrefix(name, "net/") {
				t.Errorf("%s is remembered", name)
			}
		}
		if _, remembered := c.Sysctls["net/ipv4/ip_forward"]; !bare && !remembered {
			t.Error("net.ipv4.ip_forward is not remembered")
		}
	}
}

func TestListenIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	other := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 1000")
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Skipf("no namespaces: %v", err)
	}
	namespace := fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid)
	l, err := listenIn(namespace, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if conn, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		_ = conn.Close()
		t.Errorf("%s answers in the network of this machine", l.Addr())
	}
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("nsenter", "--net="+namespace, "bash", "-c", "cat </dev/tcp/127.0.0.1/"+port).CombinedOutput()
	if err != nil || string(got) != "hello" {
		t.Errorf("in the other network: %q, %v", got, err)
	}
	if _, err := listenIn("/proc/none", "127.0.0.1:0"); err == nil {
		t.Error("no error for a network that is not there")
	}
}
