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
	"net"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// NRI connects a driver to the container runtime.
type NRI struct {
	driver *Driver
	socket string
	// registration is the constant, except in tests.
	registration time.Duration
}

// session is one connection to the container runtime.
type session struct {
	*NRI
	ctx  context.Context
	conn *usedConn
	// timeout returns how long the runtime waits for an answer. A plugin
	// which needs longer is disconnected, and its error is not seen.
	timeout func() time.Duration
	// abandoned says that nobody waits for this connection any more.
	abandoned atomic.Bool
	// configured says that the runtime has configured the plugin.
	configured atomic.Bool
	// synchronized says that the runtime tells about pods.
	synchronized atomic.Bool
}

var (
	_ stub.ConfigureInterface       = &session{}
	_ stub.SynchronizeInterface     = &session{}
	_ stub.RunPodInterface          = &session{}
	_ stub.StopPodInterface         = &session{}
	_ stub.RemovePodInterface       = &session{}
	_ stub.CreateContainerInterface = &session{}
)

const (
	// PluginName is how NRI knows the driver.
	PluginName  = "dra-network-driver"
	pluginIndex = "50"
	reconnect   = time.Second
	// registration is how long the runtime may take until it tells about its pods.
	registration = 30 * time.Second
)

// NewNRI returns a connection through the given socket.
func NewNRI(driver *Driver, socket string) *NRI {
	return &NRI{driver: driver, socket: socket, registration: registration}
}

// Run connects, and does so again whenever the connection is lost, for example
// because the runtime is restarted, until the context is done.
func (n *NRI) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "nri")
	ctx = klog.NewContext(ctx, logger)
	said := ""
	for ctx.Err() == nil {
		synchronized, err := n.connect(ctx)
		if synchronized {
			said = ""
		}
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
	n.driver.Wait()
}

// connect returns when the connection is lost, or did not get anywhere.
func (n *NRI) connect(ctx context.Context) (synchronized bool, err error) {
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unix", n.socket)
	if err != nil {
		return false, err
	}
	conn := &usedConn{Conn: dialed}
	defer conn.Close()
	s := &session{NRI: n, ctx: ctx, conn: conn}
	plugin, err := stub.New(s,
		stub.WithPluginName(PluginName),
		stub.WithPluginIdx(pluginIndex),
		stub.WithConnection(conn),
		stub.WithLogger(nriLogger{klog.FromContext(ctx)}),
	)
	if err != nil {
		return false, err
	}
	s.timeout = plugin.RequestTimeout
	defer s.end()
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()
	late := time.NewTimer(n.registration)
	defer late.Stop()
	for {
		select {
		case err := <-ended:
			return s.synchronized.Load(), err
		case <-late.C:
			if !s.synchronized.Load() {
				s.abandon(plugin, ended)
				return false, fmt.Errorf("the container runtime did not complete the registration within %s", n.registration)
			}
		case <-ctx.Done():
			s.abandon(plugin, ended)
			return s.synchronized.Load(), context.Cause(ctx)
		}
	}
}

// end is called when the connection is not used any more, whatever the runtime still says
// on it.
func (s *session) end() {
	s.abandoned.Store(true)
	s.driver.SetConnected(false)
}

// usedConn knows whether something was written to it. The library does that when it
// begins to wait for its configuration.
type usedConn struct {
	net.Conn
	used atomic.Bool
}

// Write implements [net.Conn].
func (c *usedConn) Write(data []byte) (int, error) {
	c.used.Store(true)
	return c.Conn.Write(data)
}

// abandon ends what the library does for a connection. Until the runtime has configured
// the plugin, the library waits for that and for nothing else: it cannot be stopped, and
// does not notice that the connection was lost. So it gets configured here, and that fails.
func (s *session) abandon(plugin stub.Stub, ended <-chan error) {
	s.abandoned.Store(true)
	if service, ok := plugin.(api.PluginService); ok && s.conn.used.Load() && !s.configured.Load() {
		// The channel that takes the error has place for one, the library takes one.
		go func() { _, _ = service.Configure(s.ctx, &api.ConfigureRequest{}) }()
	}
	plugin.Stop()
	<-ended
}

// Configure is called once for each connection, before Synchronize.
func (s *session) Configure(context.Context, string, string, string) (api.EventMask, error) {
	s.configured.Store(true)
	if s.abandoned.Load() {
		return 0, errors.New("the connection is not used any more")
	}
	return 0, nil // all that there are functions for
}

// Synchronize is called once for each connection. The runtime starts no pod before it
// returns.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	if s.abandoned.Load() {
		return nil, errors.New("the connection is not used any more")
	}
	sandboxes := make([]Sandbox, 0, len(pods))
	for _, pod := range pods {
		sandbox := sandboxOf(pod)
		// The process of one that has ended is gone.
		sandbox.Running = pod.GetPid() != 0
		sandboxes = append(sandboxes, sandbox)
	}
	finish := s.driver.Synchronize(sandboxes)
	s.driver.background.Go(func() { finish(s.ctx) })
	s.synchronized.Store(true)
	s.driver.SetConnected(true)
	if s.abandoned.Load() {
		// It has ended in the meantime, and this came after that.
		s.driver.SetConnected(false)
	}
	return nil, nil
}

// RunPodSandbox is called when a pod has its network namespace, before any of
// its containers. An error makes the runtime discard the sandbox. There is none if all
// containers wait anyway.
func (s *session) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	ctx, done := s.inTime(ctx, "RunPodSandbox")
	defer done()
	sandbox := sandboxOf(pod)
	err := s.driver.AttachInTime(ctx, sandbox)
	// For a pod that is not known, there was no more time to wait.
	if err != nil && !errors.Is(err, errUnknownPod) && s.driver.AttachLater(s.ctx, sandbox) {
		klog.FromContext(s.ctx).Info("Containers wait for their network devices", "pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName), "err", err)
		return nil
	}
	return err
}

// CreateContainer is called before each container of a pod. If something is missing,
// because the driver did not hear of the sandbox in time, then this is the last chance.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ctx, done := s.inTime(ctx, "CreateContainer")
	defer done()
	sandbox := sandboxOf(pod)
	if s.driver.IsLater(sandbox.ID) {
		return nil, nil, fmt.Errorf("the network devices of pod %s/%s are not attached yet: its Events say why", sandbox.PodNamespace, sandbox.PodName)
	}
	return nil, nil, s.driver.AttachInTime(ctx, sandbox)
}

// StopPodSandbox is called before the network namespace is removed.
func (s *session) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	ctx, done := s.inTime(ctx, "StopPodSandbox")
	defer done()
	return s.driver.DetachInTime(ctx, pod.GetId())
}

// RemovePodSandbox is called when nothing is left of a sandbox, also when another
// plugin or the runtime failed to start it.
func (s *session) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return s.StopPodSandbox(ctx, pod)
}

// inTime is the context of a request, until done is called. It ends while there is still time for the answer: one
// that comes too late is not read, and the pod starts. The other half is for other pods, which wait meanwhile.
func (s *session) inTime(ctx context.Context, request string) (_ context.Context, done func()) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.FromContext(s.ctx)), s.timeout()/2)
	return ctx, func() {
		cancel()
		s.driver.Metrics.runtimeWait.WithLabelValues(request).Observe(time.Since(start).Seconds())
	}
}

func sandboxOf(pod *api.PodSandbox) Sandbox {
	sandbox := Sandbox{
		ID:           pod.GetId(),
		PodNamespace: pod.GetNamespace(),
		PodName:      pod.GetName(),
		PodUID:       types.UID(pod.GetUid()),
		Running:      true,
	}
	// The kubelet says so with each pod.
	if source := pod.GetAnnotations()["kubernetes.io/config.source"]; source != "" && source != "api" {
		sandbox.Static = true
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
