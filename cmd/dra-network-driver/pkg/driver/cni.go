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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"kubernetes-dra/cmd/dra-network-driver/pkg/config"
)

// CNI runs the plugins of a network for the interface of a pod.
type CNI interface {
	// Validate fails if the network cannot work on this node, for example
	// because a plugin is missing.
	Validate(ctx context.Context, network []byte) error
	// Add creates the interface.
	Add(ctx context.Context, network []byte, a *Attachment) (types.Result, error)
	// Check fails if the interface is not as Add left it.
	Check(ctx context.Context, network []byte, a *Attachment) error
	// Del removes the interface, and what else Add did, also if Add failed
	// or was never run. A network namespace that is gone is empty in a.
	Del(ctx context.Context, network []byte, a *Attachment) error
}

// PluginCNI runs the plugins that are installed on the node.
type PluginCNI struct {
	cni     *libcni.CNIConfig
	metrics *Metrics
}

// NewPluginCNI returns a runner of the plugins in the given directories. Results
// of ADD, which CHECK and DEL need, are kept in the cache directory.
func NewPluginCNI(dirs []string, cacheDir string, metrics *Metrics) *PluginCNI {
	exec := checkExec{&struct {
		groupExec
		version.PluginDecoder
	}{}}
	return &PluginCNI{cni: libcni.NewCNIConfigWithCacheDir(dirs, cacheDir, exec), metrics: metrics}
}

// groupExec runs plugins so that nothing is left of one that takes too long. The one of
// the CNI library ends the plugin, but not what that has started: it waits for as long as
// somebody has the plugin's output open.
type groupExec struct{}

// exitDelay is how long the output of a plugin that has ended may stay open.
const exitDelay = 500 * time.Millisecond

// ExecPlugin implements [invoke.Exec].
func (groupExec) ExecPlugin(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	for tries := 0; ; tries++ {
		out, err := runGroup(ctx, path, config, environ)
		if tries == 5 || !errors.Is(err, syscall.ETXTBSY) {
			return out, err
		}
		// Somebody is just installing the plugin.
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

const (
	// maxResult is how much a plugin may print as its result. What fits into the status of a device
	// is much less.
	maxResult = 1 << 20
	// maxOutput is how much is kept of what it prints for people.
	maxOutput = 64 << 10
	// maxSaid is how much of that gets into an error, and so into an Event and a condition.
	maxSaid = 1 << 10
)

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	data     []byte
	limit    int
	exceeded bool
}

// Write implements [io.Writer]. It takes everything: a plugin must not fail because of what it says.
func (b *limitedBuffer) Write(data []byte) (int, error) {
	keep := min(len(data), b.limit-len(b.data))
	b.exceeded = b.exceeded || keep < len(data)
	b.data = append(b.data, data[:keep]...)
	return len(data), nil
}

func runGroup(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	stdout, stderr := limitedBuffer{limit: maxResult}, limitedBuffer{limit: maxOutput}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = environ
	cmd.Stdin = bytes.NewReader(config)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// The plugin would also get the signal when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = exitDelay
	err := cmd.Run()
	if cmd.Process != nil {
		go reap(cmd.Process.Pid)
	}
	switch {
	case stdout.exceeded:
		return nil, fmt.Errorf("it printed more than %d bytes", maxResult)
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// A plugin may leave a process that goes on, which has the output open.
		_, _ = os.Stderr.Write(stderr.data)
		return stdout.data, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it was ended, because it did not answer: %w", ctx.Err())
	default:
		return nil, pluginError(err, stdout.data, stderr.data)
	}
}

// reap waits for what is left of a process group. In its container, the driver is the
// parent of whoever has lost his own, and nobody else would wait.
func reap(group int) {
	for {
		if _, err := syscall.Wait4(-group, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return // there are none, or they are somebody else's
		}
	}
}

// pluginError is what a plugin says about its failure, which should be in a certain form.
func pluginError(err error, stdout, stderr []byte) error {
	said := &types.Error{}
	switch {
	case json.Unmarshal(stdout, said) == nil && (said.Msg != "" || said.Code != 0):
		said.Msg, said.Details = beginning(said.Msg), beginning(said.Details)
		return said
	case len(bytes.TrimSpace(stdout)) > 0:
		return fmt.Errorf("%w: it printed %q", err, beginning(string(stdout)))
	case len(bytes.TrimSpace(stderr)) > 0:
		return fmt.Errorf("%w: it printed %q", err, beginning(string(stderr)))
	default:
		return err
	}
}

// beginning returns as much of a text as people need.
func beginning(text string) string {
	if said := truncate(text, maxSaid); said != text {
		return said + "..."
	}
	return text
}

// truncate returns the first bytes of a text, without a part of a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// FindInPath implements [invoke.Exec].
func (groupExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// checkExec runs plugins. CHECK does not hear which hardware addresses the host's
// interfaces had at ADD: those of a pod must stay, but a bridge without an address of
// its own takes one of its ports', and so changes whenever pods come and go.
type checkExec struct{ invoke.Exec }

// ExecPlugin implements [invoke.Exec].
func (e checkExec) ExecPlugin(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	if slices.Contains(environ, "CNI_COMMAND=CHECK") {
		var err error
		if config, err = withoutHostMACs(config); err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", path, err)
		}
	}
	return e.Exec.ExecPlugin(ctx, path, config, environ)
}

// withoutHostMACs removes the hardware addresses of interfaces outside of sandboxes
// from the previous result in a plugin's configuration.
func withoutHostMACs(config []byte) ([]byte, error) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.UseNumber() // Whatever the plugin's numbers are, they stay.
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	result, _ := fields["prevResult"].(map[string]any)
	interfaces, _ := result["interfaces"].([]any)
	for _, i := range interfaces {
		if i, ok := i.(map[string]any); ok && (i["sandbox"] == nil || i["sandbox"] == "") {
			delete(i, "mac")
		}
	}
	return json.Marshal(fields)
}

// Validate implements [CNI.Validate].
func (p *PluginCNI) Validate(ctx context.Context, network []byte) error {
	list, err := config.ParseNetwork(network)
	if err != nil {
		return err
	}
	_, err = p.cni.ValidateNetworkList(ctx, list)
	return err
}

// Add implements [CNI.Add].
func (p *PluginCNI) Add(ctx context.Context, network []byte, a *Attachment) (result types.Result, err error) {
	err = p.run("ADD", network, func(list *libcni.NetworkConfigList) error {
		result, err = p.cni.AddNetworkList(ctx, list, runtimeConf(a))
		return err
	})
	return result, err
}

// Check implements [CNI.Check].
func (p *PluginCNI) Check(ctx context.Context, network []byte, a *Attachment) error {
	return p.run("CHECK", network, func(list *libcni.NetworkConfigList) error {
		err := p.cni.CheckNetworkList(ctx, list, runtimeConf(a))
		if errors.Is(err, libcni.ErrorCheckNotSupp) {
			return nil
		}
		return err
	})
}

// Del implements [CNI.Del].
func (p *PluginCNI) Del(ctx context.Context, network []byte, a *Attachment) error {
	return p.run("DEL", network, func(list *libcni.NetworkConfigList) error {
		return p.cni.DelNetworkList(ctx, list, runtimeConf(a))
	})
}

func (p *PluginCNI) run(command string, network []byte, run func(*libcni.NetworkConfigList) error) error {
	list, err := config.ParseNetwork(network)
	if err != nil {
		return err
	}
	start := time.Now()
	err = run(list)
	p.metrics.observeCNI(command, time.Since(start), err)
	if err != nil {
		// Plugins name neither the network nor what of it they do not like.
		return fmt.Errorf("network %s: %w", list.Name, err)
	}
	return nil
}

func runtimeConf(a *Attachment) *libcni.RuntimeConf {
	conf := &libcni.RuntimeConf{
		ContainerID: a.SandboxID,
		NetNS:       a.NetNS,
		IfName:      a.InterfaceName,
		// The names which the kubelet's runtimes have always used.
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", a.PodNamespace},
			{"K8S_POD_NAME", a.PodName},
			{"K8S_POD_INFRA_CONTAINER_ID", a.SandboxID},
			{"K8S_POD_UID", string(a.PodUID)},
		},
	}
	if f := a.Former; f != nil {
		// The library passes them on to plugins with these capabilities.
		conf.CapabilityArgs = map[string]any{"ips": f.IPs, "mac": f.MAC}
	}
	return conf
}
