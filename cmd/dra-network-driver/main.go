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

// dra-network-driver is a DRA driver for additional network interfaces of pods.
// It is small, and meant to be learned from; what it does is what it says in the
// status of claims.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/dra-network-driver/pkg/config"
	"kubernetes-dra/cmd/dra-network-driver/pkg/driver"
)

type options struct {
	driverName    string
	nodeName      string
	kubeconfig    string
	devices       int
	dataDir       string
	cdiDir        string
	registryDir   string
	nriSocket     string
	cniBinDirs    string
	cniConfDir    string
	allowConfig   bool
	listen        string
	checkInterval time.Duration
	claimInterval time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.driverName, "driver-name", "network.dra.example.com", "name of the driver")
	flag.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node, which is also that of its pool of devices")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; empty in a pod. The status of claims has to be written by a service account whose token is bound to this node")
	flag.IntVar(&o.devices, "devices", 16, "how many network devices the node has: how many additional interfaces its pods can have together")
	flag.StringVar(&o.dataDir, "data-dir", "", "folder of the driver's socket and state (default: a folder with the driver's name in "+kubeletplugin.KubeletPluginsDir+")")
	flag.StringVar(&o.registryDir, "registry-dir", kubeletplugin.KubeletRegistryDir, "where the kubelet looks for drivers")
	flag.StringVar(&o.cdiDir, "cdi-dir", kubeletplugin.DefaultCDIDir, "where the container runtime looks for CDI files; without them, it would create containers of pods whose interfaces do not exist")
	flag.StringVar(&o.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "where the container runtime offers NRI")
	flag.StringVar(&o.cniBinDirs, "cni-bin-dirs", "/opt/cni/bin", "folders of CNI plugins, separated by colons")
	flag.StringVar(&o.cniConfDir, "cni-conf-dir", "/etc/cni/dra-network.d", "folder of CNI network configurations that claims may name")
	flag.BoolVar(&o.allowConfig, "allow-config-in-claims", false, "let claims, and not only DeviceClasses, contain a CNI network configuration; this gives everybody who may create claims the means to run CNI plugins of this node as root, with any configuration")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:9177", "address of /metrics, /healthz and /readyz; empty for none")
	flag.DurationVar(&o.checkInterval, "check-interval", time.Minute, "how often CNI CHECK is run for all interfaces; 0 for only when the container runtime connects")
	flag.DurationVar(&o.claimInterval, "claim-interval", 10*time.Minute, "how often the API server is asked whether claims are still allocated, in case the kubelet has forgotten them; 0 for only when their devices are needed")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		klog.FromContext(ctx).Error(err, "Driver failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, o options) error {
	if err := o.complete(); err != nil {
		return err
	}
	logger := klog.FromContext(ctx).WithValues("driver", o.driverName, "node", o.nodeName)
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, logger))
	defer cancel(nil)

	unlock, err := lock(ctx, o.dataDir)
	if err != nil {
		return err
	}
	defer unlock()

	clientConfig, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	clientConfig.UserAgent = "dra-network-driver"
	// Writes of status, one for each claim that changes. The default of 5 in a second is too few when many
	// pods start.
	clientConfig.QPS, clientConfig.Burst = 50, 100
	client, err := kubernetes.NewForConfig(clientConfig)
	if err != nil {
		return err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})

	registry := prometheus.NewRegistry()
	pods, err := driver.NewPodCache(client, o.nodeName)
	if err != nil {
		return err
	}
	metrics := driver.NewMetrics(registry)
	slices, err := driver.NewSlices(client, o.driverName, o.nodeName, o.devices, metrics)
	if err != nil {
		return err
	}
	d, err := newDriver(o, client, pods, events, metrics, cancel)
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	// Before the kubelet knows the driver: without NRI, claims cannot be prepared.
	background.Go(func() { driver.NewNRI(d, o.nriSocket).Run(ctx) })
	background.Go(func() { d.Run(ctx) })
	background.Go(func() { slices.Run(ctx) })
	background.Go(func() {
		if err := pods.Run(ctx, d.PodSeen); err != nil {
			cancel(err)
		}
	})
	if o.checkInterval > 0 {
		background.Go(func() { periodically(ctx, o.checkInterval, d.Check) })
	}
	if o.claimInterval > 0 {
		background.Go(func() { periodically(ctx, o.claimInterval, d.Reclaim) })
	}

	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(o.driverName),
		// Nothing is known about the health of devices. Old kubelets do not have to hear of the service.
		kubeletplugin.HealthService(false),
		kubeletplugin.NodeName(o.nodeName),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(o.dataDir),
		kubeletplugin.RegistrarDirectoryPath(o.registryDir),
		// The driver serializes what is about the same claim. Otherwise a plugin that
		// does not answer for one claim would keep all others waiting.
		kubeletplugin.Serialize(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resources(o.nodeName, o.devices)); err != nil {
		return err
	}
	if o.listen != "" {
		ready := func() error {
			if status := helper.RegistrationStatus(); status == nil || !status.PluginRegistered {
				return errors.New("the kubelet has not registered the driver")
			}
			if !d.Connected() {
				return errors.New("not connected to the container runtime through NRI")
			}
			return slices.Check()
		}
		stop, err := serve(ctx, o.listen, registry, ready)
		if err != nil {
			return err
		}
		defer stop()
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// complete checks the options, and makes the folders.
func (o *options) complete() error {
	if o.nodeName == "" {
		return errors.New("--node-name or the environment variable NODE_NAME must be set")
	}
	if o.devices < 0 || o.devices > resourceapi.ResourceSliceMaxDevices {
		return fmt.Errorf("--devices: %d is not in the range from 0 to %d", o.devices, resourceapi.ResourceSliceMaxDevices)
	}
	if o.dataDir == "" {
		o.dataDir = filepath.Join(kubeletplugin.KubeletPluginsDir, o.driverName)
	}
	for dir, mode := range map[string]os.FileMode{o.stateDir(): 0o700, o.cacheDir(): 0o700, o.cdiDir: 0o755} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// lock waits until no other process works on the folder. One whose pod was force-deleted may still wait for a CNI
// plugin, and would store what it knows of claims over what this one knows. It is the folder itself that is
// locked, so nothing is left when the driver is uninstalled.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { folder.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			folder.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if !told {
			klog.FromContext(ctx).Info("Another process of the driver works on the folder, waiting for its end", "dir", dir)
		}
		select {
		case <-ctx.Done():
			folder.Close()
			return nil, fmt.Errorf("another process of the driver works on %s: %w", dir, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

func (o *options) stateDir() string { return filepath.Join(o.dataDir, "state") }
func (o *options) cacheDir() string { return filepath.Join(o.dataDir, "cni") }

func newDriver(o options, client kubernetes.Interface, pods driver.Pods, events record.EventBroadcaster, metrics *driver.Metrics, fatal func(error)) (*driver.Driver, error) {
	applier := driver.NewApplier(client, o.driverName, o.nodeName)
	return driver.New(driver.Options{
		Name:        o.driverName,
		NodeName:    o.nodeName,
		Source:      config.Source{Driver: o.driverName, Dir: o.cniConfDir, AllowConfigInClaims: o.allowConfig},
		CNI:         driver.NewPluginCNI(strings.Split(o.cniBinDirs, ":"), o.cacheDir(), metrics),
		Store:       driver.Dir(o.stateDir()),
		Gate:        driver.CDIGate{Dir: o.cdiDir, Driver: o.driverName},
		Status:      applier,
		Pods:        pods,
		Claims:      applier.Get,
		Events:      events.NewRecorder(scheme.Scheme, v1.EventSource{Component: o.driverName, Host: o.nodeName}),
		NetNSExists: isNamespace,
		Links:       linksIn,
		Clock:       clock.RealClock{},
		Metrics:     metrics,
		Fatal:       fatal,
	})
}

// resources are the devices of the node: places for an interface each. Which
// network one gets connected to is up to the configuration in DeviceClass and
// claim.
func resources(nodeName string, n int) resourceslice.DriverResources {
	var slice resourceslice.Slice
	for i := range n {
		slice.Devices = append(slice.Devices, resourceapi.Device{
			Name: fmt.Sprintf("net-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": {StringValue: ptr.To("cni")},
			},
		})
	}
	return resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{nodeName: {Slices: []resourceslice.Slice{slice}}},
	}
}

// isNamespace says whether the path is that of a network namespace. A path that
// remains after its namespace is an ordinary file.
func isNamespace(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Type == unix.NSFS_MAGIC
}

// linksIn returns the names of the interfaces in a network namespace.
func linksIn(path string) (sets.Set[string], error) {
	names := sets.New[string]()
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		links, err := net.Interfaces()
		for _, link := range links {
			names.Insert(link.Name)
		}
		return err
	})
	return names, err
}

// periodically calls a function until the context is done.
func periodically(ctx context.Context, interval time.Duration, run func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// serve offers metrics, whether the process lives, and whether it is of use.
func serve(ctx context.Context, address string, registry *prometheus.Registry, ready func() error) (func(), error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Metrics and health cannot be served", "address", address)
		}
	}()
	return func() { _ = server.Close() }, nil
}
