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

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2/ktesting"

	"kubernetes-dra/cnistatus"

	resourceapi "k8s.io/api/resource/v1"
)

// plugin is a CNI plugin that records how it is called.
const plugin = `#!/bin/sh
conf=$(cat)
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}'
  exit
fi
dir=$(dirname "$0")
case $conf in *prevResult*) prev=" prevResult";; esac
case $conf in *0a:00:00:00:00:0b*) prev="$prev of bridge";; esac
case $conf in *0a:00:00:00:00:0c*) prev="$prev of container";; esac
case $conf in *runtimeConfig*) prev="$prev $(echo "$conf" | sed 's/.*"runtimeConfig":\({[^}]*}\).*/\1/')";; esac
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS$prev" >>"$dir/log"
if [ -e "$dir/fail" ]; then
  echo '{"cniVersion": "1.0.0", "code": 999, "msg": "no such master"}'
  exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
  version=$(echo "$conf" | sed 's/.*"cniVersion":"\([^"]*\)".*/\1/')
  echo "{\"cniVersion\": \"$version\", \"interfaces\": [{\"name\": \"br0\", \"mac\": \"0a:00:00:00:00:0b\"}, {\"name\": \"$CNI_IFNAME\", \"mac\": \"0a:00:00:00:00:0c\", \"sandbox\": \"$CNI_NETNS\"}], \"ips\": [{\"version\": \"4\", \"address\": \"10.0.0.1/24\", \"interface\": 1}]}"
fi
`

// TestPluginCNI runs a plugin as a real one is run.
func TestPluginCNI(t *testing.T) {
	const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=sandbox;K8S_POD_UID=uid"
	for version, check := range map[string]bool{"0.3.1": false, "0.4.0": true, "1.1.0": true} {
		t.Run(version, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			dir, cache := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "recorder"), []byte(plugin), 0o700); err != nil {
				t.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			p := NewPluginCNI([]string{dir}, cache, NewMetrics(registry))
			network := []byte(fmt.Sprintf(`{"cniVersion": %q, "name": "test", "plugins": [{"type": "recorder"}]}`, version))
			if err := p.Validate(ctx, network); err != nil {
				t.Fatal(err)
			}
			expectError(t, p.Validate(ctx, []byte(`{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "missing"}]}`)), `failed to find plugin "missing" in path [`+dir+`]`)

			a := &Attachment{PodNamespace: "default", PodName: "pod", PodUID: "uid", SandboxID: "sandbox", NetNS: "/run/netns/x", InterfaceName: "net1"}
			result, err := p.Add(ctx, network, a)
			if err != nil {
				t.Fatal(err)
			}
			status := &resourceapi.AllocatedDeviceStatus{}
			if err := cnistatus.Write(status, result, a.InterfaceName); err != nil || status.NetworkData.InterfaceName != "net1" || status.NetworkData.IPs[0] != "10.0.0.1/24" {
				t.Errorf("status %+v, %v", status, err)
			}
			if err := p.Check(ctx, network, a); err != nil {
				t.Error(err)
			}
			fail := filepath.Join(dir, "fail")
			if err := os.WriteFile(fail, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			other := *a
			other.InterfaceName = "net2"
			_, err = p.Add(ctx, network, &other)
			expectError(t, err, `network test: plugin type="recorder" failed (add): no such master`)
			if err := os.Remove(fail); err != nil {
				t.Fatal(err)
			}
			for _, a := range []*Attachment{&other, a, a} { // as often as it takes
				if err := p.Del(ctx, network, a); err != nil {
					t.Error(err)
				}
			}

			// Only a plugin that says that it can hears what a pod had before.
			a.Former = &Former{IPs: []string{"10.0.0.1/24"}, MAC: "02:00:00:00:00:01"}
			for _, capabilities := range []string{"", `, "capabilities": {"ips": true, "mac": true}`} {
				network := []byte(fmt.Sprintf(`{"cniVersion": %q, "name": "again", "plugins": [{"type": "recorder"%s}]}`, version, capabilities))
				if _, err := p.Add(ctx, network, a); err != nil {
					t.Fatal(err)
				}
				if err := p.Del(ctx, network, a); err != nil {
					t.Fatal(err)
				}
			}

			// The bridge's address may have changed since.
			expected := []string{"ADD sandbox /run/netns/x net1 " + args}
			prev := ""
			if check {
				expected = append(expected, "CHECK sandbox /run/netns/x net1 "+args+" prevResult of container")
				prev = " prevResult of bridge of container"
			}
			expected = append(expected,
				"ADD sandbox /run/netns/x net2 "+args,
				"DEL sandbox /run/netns/x net2 "+args,
				"DEL sandbox /run/netns/x net1 "+args+prev,
				"DEL sandbox /run/netns/x net1 "+args,
			)
			again := ` {"ips":["10.0.0.1/24"],"mac":"02:00:00:00:00:01"}`
			expected = append(expected,
				"ADD sandbox /run/netns/x net1 "+args,
				"DEL sandbox /run/netns/x net1 "+args+prev,
				"ADD sandbox /run/netns/x net1 "+args+again,
				"DEL sandbox /run/netns/x net1 "+args+prev+again,
			)
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(log)); got != strings.Join(expected, "\n") {
				t.Errorf("calls:\n got %s\nwant %s", got, strings.Join(expected, "\n"))
			}
			if left, err := filepath.Glob(filepath.Join(cache, "results", "*")); err != nil || len(left) != 0 {
				t.Errorf("left in the cache: %v, %v", left, err)
			}

			metrics, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			counts := make(map[string]uint64)
			for _, family := range metrics {
				for _, metric := range family.GetMetric() {
					if histogram := metric.GetHistogram(); histogram != nil {
						counts[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = histogram.GetSampleCount()
					}
				}
			}
			if counts["ADD success"] != 3 || counts["ADD error"] != 1 || counts["DEL success"] != 5 {
				t.Errorf("metrics %v", counts)
			}
		})
	}
}

// TestPluginHangs checks that nothing is left of a plugin that does not answer, nor of what
// it has started, and that one which leaves a process behind is not waited for.
func TestPluginHangs(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	// As in a container, where this would be process 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "hanging"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := NewPluginCNI([]string{dir}, t.TempDir(), NewMetrics(prometheus.NewRegistry()))
	network := []byte(`{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "hanging"}]}`)
	a := &Attachment{SandboxID: "sandbox", NetNS: "/run/netns/x", InterfaceName: "net1"}
	child := filepath.Join(dir, "child")

	write("sleep 1000 & echo $! >" + child + "; wait")
	hangs, cancel := context.WithCancel(ctx)
	go func() {
		for { // as soon as the child is there
			if data, err := os.ReadFile(child); err == nil && len(data) > 0 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := p.Del(hangs, network, a)
	expectError(t, err, `network test: plugin type="hanging" failed (delete): it was ended, because it did not answer`)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	data, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		// It is also there as long as nobody has waited for it.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child is still there: %s", stat)
		}
	}

	// What it printed counts, although its output stays open.
	write("sleep 5 & exit 0")
	if err := p.Del(ctx, network, a); err != nil {
		t.Error(err)
	}
	for script, expected := range map[string]string{
		`echo '{"code": 7, "msg": "bad master"}'; exit 1`: "failed (delete): bad master",
		`echo hello; exit 1`:                              `exit status 1: it printed "hello\n"`,
		`echo hello >&2; exit 1`:                          `exit status 1: it printed "hello\n"`,
		`exit 3`:                                          "exit status 3",
	} {
		write(script)
		expectError(t, p.Del(ctx, network, a), expected)
	}
}

// TestPluginOutput covers plugins that print without end, and the one of a driver that gets killed.
func TestPluginOutput(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "plugin")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, err := groupExec{}.ExecPlugin(ctx, script("head -c 5000000 /dev/zero"), nil, nil)
	expectError(t, err, "it printed more than 1048576 bytes")
	for name, text := range map[string]string{
		"stderr":  "head -c 5000000 /dev/zero >&2; exit 1",
		"stdout":  "head -c 700000 /dev/zero; exit 1",
		"message": `printf '{"code":7,"msg":"%0100000d","details":"%0100000d"}' 1 2; exit 1`,
	} {
		// Each byte of the quoted output takes four.
		_, err = groupExec{}.ExecPlugin(ctx, script(text), nil, nil)
		if err == nil || len(err.Error()) > 5*maxSaid {
			t.Errorf("%s: an error of %d bytes", name, len(fmt.Sprint(err)))
		}
	}
	out, err := groupExec{}.ExecPlugin(ctx, script("head -c 1000000 /dev/zero"), nil, nil)
	if err != nil || len(out) != 1000000 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// TestPluginEndsWithDriver kills a driver while a plugin runs.
func TestPluginEndsWithDriver(t *testing.T) {
	const variable = "DRA_NETWORK_TEST_PLUGIN"
	_, ctx := ktesting.NewTestContext(t)
	if path := os.Getenv(variable); path != "" {
		_, err := groupExec{}.ExecPlugin(ctx, path, nil, os.Environ())
		t.Fatalf("the plugin ended: %v", err)
	}
	dir := t.TempDir()
	plugin, started := filepath.Join(dir, "plugin"), filepath.Join(dir, "started")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\necho $$ > "+started+".new; mv "+started+".new "+started+"; exec sleep 1000"), 0o700); err != nil {
		t.Fatal(err)
	}
	driver := exec.Command(os.Args[0], "-test.run=^TestPluginEndsWithDriver$")
	driver.Env = append(os.Environ(), variable+"="+plugin)
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	var pid []byte
	eventually("the plugin did not start", func() bool {
		var err error
		pid, err = os.ReadFile(started)
		return err == nil
	})
	if err := driver.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = driver.Wait()
	eventually("the plugin runs although the driver was killed", func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "status"))
		return err != nil || strings.Contains(string(status), "State:\tZ")
	})
}
