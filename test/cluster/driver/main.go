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

// Driver is the DRA driver on the real node of a cluster. It has no devices of
// its own unless it is told to: it prepares whatever the scheduler allocated under its name, and
// tells the containers of a pod by environment variables which devices they
// got. A file for the claim, in the format of CDI, is all its state.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	draclient "k8s.io/dynamic-resource-allocation/client"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

func main() {
	var d driver
	var kubeconfig, nodeName, dataDir, registryDir, readyFile string
	flag.StringVar(&d.name, "driver-name", "", "name of the driver")
	flag.StringVar(&d.cdiDir, "cdi-dir", "/run/cdi", "where the container runtime looks for CDI files")
	flag.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&nodeName, "node-name", "", "name of the node")
	flag.StringVar(&dataDir, "data-dir", "", "folder of the driver's socket")
	flag.StringVar(&registryDir, "registry-dir", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for drivers")
	flag.StringVar(&readyFile, "ready-file", "", "a file that is created when the kubelet knows the driver, and its devices are published")
	flag.IntVar(&d.devices, "devices", 0, "how many devices it publishes for its node")
	flag.StringVar(&d.withoutPod, "without-pod", "", "what it does with a claim that is not reserved for a pod, as some drivers do: refuse it, or ignore it and report success")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx, kubeconfig, nodeName, dataDir, registryDir, readyFile); err != nil {
		klog.FromContext(ctx).Error(err, "Driver failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

type driver struct {
	name       string
	cdiDir     string
	devices    int
	withoutPod string
}

var _ kubeletplugin.DRAPlugin = &driver{}

func (d *driver) run(ctx context.Context, kubeconfig, nodeName, dataDir, registryDir, readyFile string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, dir := range []string{dataDir, d.cdiDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name),
		kubeletplugin.NodeName(nodeName),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(dataDir),
		kubeletplugin.RegistrarDirectoryPath(registryDir),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if d.devices > 0 {
		if err := helper.PublishResources(ctx, d.resources(nodeName)); err != nil {
			return err
		}
	}

	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for registered := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		status := helper.RegistrationStatus()
		switch {
		case status == nil || registered:
		case status.Error != "":
			return fmt.Errorf("the kubelet refuses the driver: %s", status.Error)
		case status.PluginRegistered:
			if published, err := d.published(ctx, client, nodeName); err != nil || !published {
				klog.FromContext(ctx).Info("The devices are not published yet", "err", err)
				continue
			}
			registered = true
			klog.FromContext(ctx).Info("The kubelet knows the driver")
			if readyFile != "" {
				if err := os.WriteFile(readyFile, nil, 0o644); err != nil {
					return err
				}
			}
		}
	}
}

// resources are the devices that it publishes.
func (d *driver) resources(nodeName string) resourceslice.DriverResources {
	var devices []resourceapi.Device
	for i := range d.devices {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{nodeName: {Slices: []resourceslice.Slice{{Devices: devices}}}}}
}

// published returns true if there is a slice with them, or if there are none.
func (d *driver) published(ctx context.Context, client kubernetes.Interface, nodeName string) (bool, error) {
	if d.devices == 0 {
		return true, nil
	}
	list, err := draclient.New(client).ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + d.name + "," + resourceapi.ResourceSliceSelectorNodeName + "=" + nodeName,
	})
	return err == nil && len(list.Items) > 0, err
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		klog.FromContext(ctx).Info("Prepared", "claim", klog.KObj(claim), "uid", claim.UID, "devices", len(devices), "err", err)
	}
	return results, nil
}

// cdiFile is the part of a CDI specification that is needed here.
type cdiFile struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name           string   `json:"name"`
	ContainerEdits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Env []string `json:"env"`
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	if d.withoutPod != "" && !slices.ContainsFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool {
		return c.APIGroup == "" && c.Resource == "pods"
	}) {
		if d.withoutPod == "ignore" {
			return nil, nil
		}
		return nil, errors.New("no pod in status.reservedFor")
	}
	file := cdiFile{Version: "0.5.0", Kind: d.name + "/claim"}
	var devices []kubeletplugin.Device
	for i, allocated := range claim.Status.Allocation.Devices.Results {
		if allocated.Driver != d.name {
			continue
		}
		device := cdiDevice{
			Name: fmt.Sprintf("%s-%d", claim.UID, i),
			ContainerEdits: cdiEdits{Env: []string{
				"DRA_CLAIM=" + claim.Namespace + "/" + claim.Name,
				fmt.Sprintf("DRA_DEVICE_%s=%s/%s", variable(allocated.Request), allocated.Pool, allocated.Device),
			}},
		}
		file.Devices = append(file.Devices, device)
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{allocated.Request},
			PoolName:     allocated.Pool,
			DeviceName:   allocated.Device,
			CDIDeviceIDs: []string{file.Kind + "=" + device.Name},
		})
	}
	content, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	// The runtime must not see half of it.
	name := d.cdiFile(claim.UID)
	if err := os.WriteFile(name+".tmp", content, 0o644); err != nil {
		return nil, err
	}
	return devices, os.Rename(name+".tmp", name)
}

// variable turns the name of a request into a part of that of an environment
// variable.
func variable(request string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", "/", "_", ".", "_").Replace(request))
}

func (d *driver) cdiFile(uid types.UID) string {
	return filepath.Join(d.cdiDir, fmt.Sprintf("%s-%s.json", d.name, uid))
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.cdiFile(claim.UID))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
		klog.FromContext(ctx).Info("Unprepared", "claim", klog.KRef(claim.Namespace, claim.Name), "uid", claim.UID, "err", err)
	}
	return results, nil
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin].
func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
}
