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
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// helperVariable makes this test binary one of the programs of a cluster: its value is a folder in
// which it makes files without end, or nothing.
const helperVariable = "KUBERNETES_DRA_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(helperVariable); ok {
		for i := 0; ; i++ {
			if dir != "" {
				_ = os.MkdirAll(dir, 0o755)
				_ = os.WriteFile(filepath.Join(dir, fmt.Sprint(i%100000)), nil, 0o644)
			} else {
				time.Sleep(time.Second)
			}
		}
	}
	os.Exit(m.Run())
}

// program copies this test binary into a folder.
func program(t *testing.T, dir, name string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if os.Link(self, path) == nil {
		return path
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// byHand starts a program as somebody would: without the mark of the cluster.
func byHand(t *testing.T, path, writesTo string, change func(*exec.Cmd), args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{helperVariable + "=" + writesTo}
	if change != nil {
		change(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	return cmd
}

// logged records what a cluster says.
func logged(c *Cluster) func() string {
	var mutex sync.Mutex
	var all strings.Builder
	c.Log = func(format string, args ...any) {
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Fprintf(&all, format+"\n", args...)
	}
	return func() string {
		mutex.Lock()
		defer mutex.Unlock()
		return all.String()
	}
}

// TestDownStopsByHand takes down a cluster of which somebody restarted components: it finds them by
// their arguments, their working directory and their files, and removes what they make meanwhile.
func TestDownStopsByHand(t *testing.T) {
	c := newCluster(t)
	text := logged(c)
	if _, err := c.start(Etcd, []string{"sleep", "1000"}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.path("config"), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(c.path("config", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, err := os.Create(c.LogFile("mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	scheduler := program(t, c.Options.Bin, "kube-scheduler")
	ours := map[string]*exec.Cmd{
		"argument":  byHand(t, scheduler, "", nil, "--config="+c.path("config", "scheduler.yaml")),
		"directory": byHand(t, program(t, c.Options.Bin, "kwok"), "", func(cmd *exec.Cmd) { cmd.Dir = c.Options.Dir }),
		"file":      byHand(t, scheduler, "", func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file} }),
		"writes":    byHand(t, program(t, c.Options.Bin, "etcd"), c.path("etcd"), nil, "--data-dir="+c.path("etcd")),
		"rebuilt":   byHand(t, program(t, c.Options.Bin, "kubelet"), "", nil, "--config="+c.path("config", "kubelet.yaml")),
	}
	if err := os.Remove(filepath.Join(c.Options.Bin, "kubelet")); err != nil {
		t.Fatal(err)
	}
	others := map[string]*exec.Cmd{
		"another cluster": byHand(t, scheduler, "", nil, "--config="+c.Options.Dir+"-other/config/scheduler.yaml"),
		"its logs":        byHand(t, scheduler, "", func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{log} }),
		"kubectl":         byHand(t, program(t, c.Options.Bin, "kubectl"), "", nil, "--kubeconfig="+c.Kubeconfig()),
		"an editor":       byHand(t, program(t, t.TempDir(), "editor"), "", func(cmd *exec.Cmd) { cmd.Dir = c.path("config") }, c.path("config", "scheduler.yaml")),
	}
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, cmd := range ours {
		if anyAlive([]int{cmd.Process.Pid}) {
			t.Errorf("%s: it still runs", name)
		}
		if want := fmt.Sprintf("process %d (%s", cmd.Process.Pid, cmd.Args[0]); !strings.Contains(text(), "stopping what was not started with the cluster: "+want) {
			t.Errorf("%s: no %q in:\n%s", name, want, text())
		}
	}
	for name, cmd := range others {
		if !anyAlive([]int{cmd.Process.Pid}) {
			t.Errorf("%s: it was stopped", name)
		}
	}
	if want := fmt.Sprintf("left alone: process %d ", others["an editor"].Process.Pid); !strings.Contains(text(), want) {
		t.Errorf("no %q in:\n%s", want, text())
	}
	if entries, err := os.ReadDir(c.Options.Dir); err != nil || len(entries) != 1 || entries[0].Name() != "logs" {
		t.Errorf("want only logs to be left, got %v, %v", entries, err)
	}
}

// TestDownNamesHolders checks that those are named, and left alone, that are somebody else's.
func TestDownNamesHolders(t *testing.T) {
	c := newCluster(t)
	text := logged(c)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	c.Ports = map[string]int{Scheduler: port}
	foreign := program(t, t.TempDir(), "foreign")
	server := byHand(t, foreign, "", func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{socket} })
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	reader := byHand(t, foreign, "", func(cmd *exec.Cmd) { cmd.Dir = c.path("config") })

	// This is what Down says where something cannot be removed.
	err = leftBy(errors.New("directory not empty"), c.holders())
	holds := []string{
		fmt.Sprintf("process %d (%s) has port %d of %s", server.Process.Pid, foreign, port, Scheduler),
		fmt.Sprintf("process %d (%s) has %s", reader.Process.Pid, foreign, c.path("config")),
	}
	if err := c.Down(t.Context()); err != nil {
		t.Errorf("nothing is in the way, but: %v", err)
	}
	for _, want := range holds {
		if !strings.Contains(err.Error(), "directory not empty; ") || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
		if !strings.Contains(text(), "left alone: "+want) {
			t.Errorf("no %q in:\n%s", want, text())
		}
	}
	if !anyAlive([]int{server.Process.Pid}) || !anyAlive([]int{reader.Process.Pid}) {
		t.Error("a program of somebody else's was stopped")
	}
	if leftBy(nil, c.holders()) != nil {
		t.Error("an error of nothing")
	}
}

// ownSysctls gives the test sysctls of its own, which it writes and looks at.
func ownSysctls(t *testing.T) (write, expect func(name, value string)) {
	before := sysctlRoot
	t.Cleanup(func() { sysctlRoot = before })
	sysctlRoot = t.TempDir()
	write = func(name, value string) {
		t.Helper()
		file := filepath.Join(sysctlRoot, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect = func(name, value string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(sysctlRoot, name)); err != nil || string(got) != value+"\n" {
			t.Errorf("%s: want %s, got %q, %v", name, value, got, err)
		}
	}
	return write, expect
}

// TestSysctls checks that what the node needs is set, and that all is put back as it was.
func TestSysctls(t *testing.T) {
	c := newCluster(t)
	write, expect := ownSysctls(t)
	const forward, panics = "net/ipv4/ip_forward", "kernel/panic"
	write(forward, "0")
	write(panics, "0")
	if err := c.rememberSysctls(); err != nil {
		t.Fatal(err)
	}
	if err := setSysctls(neededSysctls); err != nil {
		t.Fatal(err)
	}
	expect(forward, "1")
	// The kubelet sets this one.
	write(panics, "10")
	later, err := Open(c.Options.Dir, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := later.restoreSysctls(); err != nil {
		t.Fatal(err)
	}
	expect(forward, "0")
	expect(panics, "0")

	if err := os.RemoveAll(filepath.Join(sysctlRoot, "net")); err != nil {
		t.Fatal(err)
	}
	if err := setSysctls(neededSysctls); err == nil || !strings.Contains(err.Error(), "net.ipv4.ip_forward to 1") {
		t.Errorf("want an error that names it, got: %v", err)
	}
}

// TestSysctlsOfTwo checks that the first cluster that goes leaves the machine as the other one needs
// it, and that the last one puts all back.
func TestSysctlsOfTwo(t *testing.T) {
	write, expect := ownSysctls(t)
	defer func(dirs []string) { private = dirs }(private)
	private = []string{t.TempDir()}
	const forward = "net/ipv4/ip_forward"
	write(forward, "0")
	up := func() *Cluster {
		t.Helper()
		c := newCluster(t)
		for _, err := range []error{c.rememberSysctls(), setSysctls(neededSysctls), c.makeMountPoints()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	down := func(c *Cluster) {
		t.Helper()
		for _, err := range []error{c.restoreSysctls(), c.removeRemovables(), c.removeFolder()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	first, lost := up(), up()
	if err := os.RemoveAll(lost.Options.Dir); err != nil {
		t.Fatal(err)
	}
	second := up()
	expect(forward, "1")
	down(first)
	expect(forward, "1")
	down(second)
	expect(forward, "0")
}
