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
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// NRI connects a driver to the container runtime.
type NRI struct {
	driver    *Driver
	socket    string
	ctx       context.Context
	connected atomic.Bool
	// timeout returns how long the runtime waits for an answer. A plugin
	// which needs longer is disconnected, and its error is not seen.
	timeout func() time.Duration
	// registration is the constant, except in tests.
	registration time.Duration
	// synchronizing is the one job that goes on after Synchronize.
	synchronizing sync.WaitGroup
}

var (
	_ stub.SynchronizeInterface = &NRI{}
	_ stub.RunPodInterface      = &NRI{}
	_ stub.StopPodInterface     = &NRI{}
	_ stub.RemovePodInterface   = &NRI{}
)

const (
	pluginName  = "dra-network-driver"
	pluginIndex = "50"
	reconnect   = time.Second
	// registration is how long the runtime may take until it tells about its pods.
	registration = 30 * time.Second
)

// NewNRI returns a connection through the given socket.
func NewNRI(driver *Driver, socket string) *NRI {
	return &NRI{driver: driver, socket: socket, registration: registration}
}

// Connected says whether the runtime tells the driver about pods.
func (n *NRI) Connected() bool { return n.connected.Load() }

// Run connects, and does so again whenever the connection is lost, for example
// because the runtime is restarted, until the context is done.
func (n *NRI) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "nri")
	n.ctx = klog.NewContext(ctx, logger)
	said := ""
	for ctx.Err() == nil {
		err := n.connect(ctx, logger)
		if n.Connected() {
			said = ""
		}
		n.setConnected(false)
		if ctx.Err() != nil {
			break
		}
		// It may take long until a runtime is back. Once is enough to say that.
		level := 2
		if reason := fmt.Sprint(err); reason == said {
			level = 5
		} else {
			said = reason
		}
		logger.V(level).Info("Not connected to the container runtime, will try again", "socket", n.socket, "err", err)
		select {
		case <-time.After(reconnect):
		case <-ctx.Done():
		}
	}
	n.synchronizing.Wait()
}

// connect returns when the connection is lost, or did not get anywhere.
func (n *NRI) connect(ctx context.Context, logger klog.Logger) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", n.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	plugin, err := stub.New(n,
		stub.WithPluginName(pluginName),
		stub.WithPluginIdx(pluginIndex),
		stub.WithConnection(conn),
		stub.WithLogger(nriLogger{logger}),
	)
	if err != nil {
		return err
	}
	n.timeout = plugin.RequestTimeout
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()
	// Until the runtime has configured the plugin, the library waits for that and for
	// nothing else: it cannot be stopped, and does not notice that the connection was
	// lost.
	late := time.NewTimer(n.registration)
	defer late.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-late.C:
			if !n.Connected() {
				return fmt.Errorf("the container runtime did not complete the registration within %s", n.registration)
			}
		case <-ctx.Done():
			if n.Connected() {
				plugin.Stop()
				<-ended
			}
			return context.Cause(ctx)
		}
	}
}

func (n *NRI) setConnected(connected bool) {
	n.connected.Store(connected)
	value := 0.0
	if connected {
		value = 1
	}
	n.driver.Metrics.nriConnected.Set(value)
}

// Synchronize is called once for each connection.
func (n *NRI) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	sandboxes := make([]Sandbox, 0, len(pods))
	for _, pod := range pods {
		sandbox := sandboxOf(pod)
		// The process of one that has ended is gone.
		sandbox.Running = pod.GetPid() != 0
		sandboxes = append(sandboxes, sandbox)
	}
	finish := n.driver.Synchronize(sandboxes)
	n.synchronizing.Go(func() { finish(n.ctx) })
	n.setConnected(true)
	return nil, nil
}

// RunPodSandbox is called when a pod has its network namespace, before any of
// its containers. An error makes the runtime discard the sandbox.
func (n *NRI) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	// Leave time for CNI DEL and for the answer.
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.FromContext(n.ctx)), n.timeout()/2)
	defer cancel()
	return n.driver.Attach(ctx, sandboxOf(pod))
}

// StopPodSandbox is called before the network namespace is removed.
func (n *NRI) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return n.driver.Detach(klog.NewContext(ctx, klog.FromContext(n.ctx)), pod.GetId())
}

// RemovePodSandbox is called when nothing is left of a sandbox, also when another
// plugin or the runtime failed to start it.
func (n *NRI) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return n.driver.Detach(klog.NewContext(ctx, klog.FromContext(n.ctx)), pod.GetId())
}

func sandboxOf(pod *api.PodSandbox) Sandbox {
	sandbox := Sandbox{
		ID:           pod.GetId(),
		PodNamespace: pod.GetNamespace(),
		PodName:      pod.GetName(),
		PodUID:       types.UID(pod.GetUid()),
		Running:      true,
	}
	for _, namespace := range pod.GetLinux().GetNamespaces() {
		if namespace.GetType() == "network" {
			sandbox.NetNS = namespace.GetPath()
		}
	}
	return sandbox
}

// nriLogger passes on what the NRI library logs.
type nriLogger struct{ logger klog.Logger }

func (l nriLogger) Debugf(_ context.Context, format string, args ...any) {
	l.logger.V(5).Info(fmt.Sprintf(format, args...))
}

func (l nriLogger) Infof(_ context.Context, format string, args ...any) {
	l.logger.V(3).Info(fmt.Sprintf(format, args...))
}

func (l nriLogger) Warnf(_ context.Context, format string, args ...any) {
	l.logger.Info(fmt.Sprintf(format, args...))
}

func (l nriLogger) Errorf(_ context.Context, format string, args ...any) {
	l.logger.Error(nil, fmt.Sprintf(format, args...))
}
