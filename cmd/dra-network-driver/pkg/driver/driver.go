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

// Package driver connects pods to networks: the devices of claims become
// interfaces in the network namespaces of pods, made by CNI plugins, and the
// status of the claims says what came out of it.
//
// Three parties tell the driver what to do, and each of them may repeat itself,
// stop in the middle, or be restarted:
//
//   - the kubelet prepares and unprepares claims,
//   - the container runtime tells through NRI when a pod's network namespace
//     begins and ends, and on each connection which ones there are,
//   - CNI plugins create and remove interfaces.
//
// What the driver is about to do is on disk before it is done. So it never has to
// guess: CNI DEL is run for everything that may exist and should not, which is
// harmless if it does not exist. The status of a claim follows from what is
// stored, and is written as a whole until that succeeds.
package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/dra-network-driver/pkg/cnistatus"
	"kubernetes-dra/cmd/dra-network-driver/pkg/config"
)

const (
	// ConditionReady is the type of the one condition of a device.
	ConditionReady = "Ready"

	// Reasons of that condition.
	ReasonAttached      = "Attached"     // the interface exists
	ReasonAddFailed     = "CNIAddFailed" // CNI ADD failed, and DEL has been run
	ReasonCheckFailed   = "CNICheckFailed"
	ReasonDelFailed     = "CNIDelFailed"  // it is tried again
	ReasonPodIncomplete = "PodIncomplete" // another device of the pod failed

	// EventAttachFailed is the reason of the Event of a pod.
	EventAttachFailed = "FailedAttachNetworkDevice"

	// cniTimeout is for each run of a network's plugins.
	cniTimeout = 30 * time.Second
)

// PodGetter gets pods from the API server.
type PodGetter func(ctx context.Context, namespace, name string) (*v1.Pod, error)

// Options of a driver; all are needed.
type Options struct {
	Name     string
	NodeName string
	Source   config.Source
	CNI      CNI
	Store    Store
	Status   StatusWriter
	Pods     PodGetter
	Events   record.EventRecorder
	// NetNSExists says whether a path is that of a network namespace.
	NetNSExists func(path string) bool
	Clock       clock.Clock
	Metrics     *Metrics
	// Fatal ends the driver when its servers fail.
	Fatal func(error)
}

// Driver is the logic of the driver.
type Driver struct {
	Options

	queue workqueue.TypedRateLimitingInterface[types.UID]

	// mutex guards everything below, and also serializes what CNI plugins are
	// run for: some lock up or fail when they run at the same time.
	mutex  sync.Mutex
	claims map[types.UID]*Claim
}

var _ kubeletplugin.DRAPlugin = &Driver{}

// Sandbox is what the driver needs to know about a pod in the container runtime.
type Sandbox struct {
	ID           string
	PodNamespace string
	PodName      string
	PodUID       types.UID
	// NetNS is the path of the network namespace, empty for that of the host.
	NetNS string
	// Running is false if the sandbox has ended, but was not yet removed.
	Running bool
}

// New returns a driver that continues where the last one stopped.
func New(options Options) (*Driver, error) {
	d := &Driver{
		Options: options,
		claims:  make(map[types.UID]*Claim),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](100*time.Millisecond, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "claims"},
		),
	}
	claims, err := d.Store.Load()
	if err != nil {
		return nil, fmt.Errorf("cannot read what the driver has stored: %w", err)
	}
	for _, claim := range claims {
		d.claims[claim.UID] = claim
		// It may be that what is stored was never written to the API server.
		d.queue.Add(claim.UID)
	}
	d.countAttachments()
	return d, nil
}

// Run writes the status of claims, and tries again what failed, until the
// context is done.
func (d *Driver) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, d.queue.ShutDown)
	defer stop()
	for d.processNext(ctx) {
	}
}

func (d *Driver) processNext(ctx context.Context) bool {
	uid, shutdown := d.queue.Get()
	if shutdown {
		return false
	}
	defer d.queue.Done(uid)
	if err := d.reconcile(ctx, uid); err != nil {
		klog.FromContext(ctx).Error(err, "Claim is not in its final state, will try again", "claimUID", uid)
		d.queue.AddRateLimited(uid)
		return true
	}
	d.queue.Forget(uid)
	return true
}

// reconcile removes what has to be removed, and then writes the status.
func (d *Driver) reconcile(ctx context.Context, uid types.UID) error {
	d.mutex.Lock()
	claim := d.claims[uid]
	if claim == nil {
		d.mutex.Unlock()
		return nil
	}
	var errs []error
	for _, device := range claim.Devices {
		if device.Attachment != nil && device.Attachment.Phase == Deleting {
			errs = append(errs, d.detach(ctx, claim, device, nil))
		}
	}
	namespace, name, reported, released := claim.Namespace, claim.Name, claim.Reported, claim.Released
	devices, err := d.report(claim)
	errs = append(errs, err)
	d.mutex.Unlock()

	if reported {
		err := d.Status.Apply(ctx, namespace, name, uid, devices)
		result, final := outcome(err)
		d.Metrics.statusWrites.WithLabelValues(result).Inc()
		logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(namespace, name), "claimUID", uid)
		switch {
		case err == nil:
			logger.V(3).Info("Wrote status", "devices", len(devices))
		case final || released && result == "forbidden":
			// When devices are freed, the API server removes the entries.
			logger.V(2).Info("Status cannot be written", "result", result, "err", err)
		default:
			errs = append(errs, fmt.Errorf("writing the status of claim %s/%s: %w", namespace, name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !released {
		return nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.claims[uid] != claim || !claim.Released {
		return nil // prepared again in the meantime
	}
	if err := d.Store.Delete(uid); err != nil {
		return err
	}
	delete(d.claims, uid)
	return nil
}

// outcome says for metrics what became of a write, and whether another try
// would be useless.
func outcome(err error) (result string, final bool) {
	switch {
	case err == nil:
		return "success", true
	case errors.Is(err, ErrStatusDropped):
		return "dropped", false
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "gone", true // or there is another claim with this name
	case apierrors.IsInvalid(err):
		return "invalid", true // the devices are not allocated any more
	case apierrors.IsForbidden(err):
		return "forbidden", false
	default:
		return "error", false
	}
}

// report returns what the status of the claim shall be. What another device
// reports does not depend on one that cannot be reported.
func (d *Driver) report(claim *Claim) ([]resourceapi.AllocatedDeviceStatus, error) {
	if claim.Released {
		return nil, nil
	}
	var devices []resourceapi.AllocatedDeviceStatus
	var errs []error
	for _, device := range claim.Devices {
		if device.Ready == nil {
			continue
		}
		status := resourceapi.AllocatedDeviceStatus{
			Driver: d.Name,
			Pool:   device.Pool,
			Device: device.Name,
			Conditions: []metav1.Condition{{
				Type:               ConditionReady,
				Status:             device.Ready.Status,
				Reason:             device.Ready.Reason,
				Message:            device.Ready.Message,
				LastTransitionTime: device.Ready.Since,
			}},
		}
		if a := device.Attachment; a != nil && len(a.Result) > 0 {
			result, err := create.CreateFromBytes(a.Result)
			if err == nil {
				err = cnistatus.Write(&status, result, a.InterfaceName)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("device %s/%s: %w", device.Pool, device.Name, err))
			}
		}
		devices = append(devices, status)
	}
	return devices, errors.Join(errs...)
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. Nothing is
// connected here: the pod has no network namespace yet.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, claim := range claims {
		devices, err := d.prepare(ctx, claim)
		if err != nil {
			err = fmt.Errorf("claim %s: %w", klog.KObj(claim), err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("it is not allocated")
	}
	var prepared []kubeletplugin.Device
	var wanted []*Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.Name {
			continue
		}
		if result.Pool != d.NodeName {
			return nil, fmt.Errorf("device %s/%s is not one of node %s", result.Pool, result.Device, d.NodeName)
		}
		if result.ShareID != nil {
			return nil, fmt.Errorf("device %s/%s has a share ID, but a network device is for one claim only", result.Pool, result.Device)
		}
		prepared = append(prepared, kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device})
		if ptr.Deref(result.AdminAccess, false) {
			// Somebody else uses the device: there is nothing to connect.
			continue
		}
		device, err := d.Source.ForResult(claim.Status.Allocation, result)
		if err != nil {
			return nil, err
		}
		if err := d.CNI.Validate(ctx, device.Network); err != nil {
			return nil, fmt.Errorf("device %s/%s: its network does not work on node %s: %w", result.Pool, result.Device, d.NodeName, err)
		}
		wanted = append(wanted, &Device{Pool: result.Pool, Name: result.Device, InterfaceName: device.InterfaceName, Network: device.Network})
	}

	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, other := range d.claims {
		if other.UID == claim.UID || other.Released {
			continue
		}
		if other.Namespace == claim.Namespace && other.Name == claim.Name {
			return nil, fmt.Errorf("a former claim of this name, with UID %s, is still in use on node %s", other.UID, d.NodeName)
		}
		for _, device := range wanted {
			if other.device(device.Pool, device.Name) != nil {
				return nil, fmt.Errorf("device %s/%s is still in use by claim %s/%s", device.Pool, device.Name, other.Namespace, other.Name)
			}
		}
	}
	next := &Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Devices: wanted}
	if before := d.claims[claim.UID]; before != nil {
		next.Reported = before.Reported
		for _, device := range before.Devices {
			i := slices.IndexFunc(wanted, device.same)
			switch {
			case device.Attachment == nil:
				if i >= 0 && !before.Released {
					wanted[i].Ready = device.Ready
				}
			case i >= 0:
				// The kubelet repeats itself: what is connected stays so.
				wanted[i] = device
			default:
				// Allocated differently, and nobody told.
				if err := d.detach(ctx, before, device, nil); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := d.save(next); err != nil {
		return nil, err
	}
	d.claims[claim.UID] = next
	d.changed(next)
	return prepared, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error)
	for _, claim := range claims {
		err := d.unprepare(ctx, claim.UID)
		if err != nil {
			err = fmt.Errorf("claim %s: %w", claim, err)
		}
		results[claim.UID] = err
	}
	return results, nil
}

func (d *Driver) unprepare(ctx context.Context, uid types.UID) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	claim := d.claims[uid]
	if claim == nil {
		return nil
	}
	defer d.changed(claim)
	var errs []error
	for _, device := range claim.Devices {
		if device.Attachment != nil {
			errs = append(errs, d.detach(ctx, claim, device, nil))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	claim.Released = true
	return d.save(claim)
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.Fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// Attach connects a pod to the networks of its claims. If that fails for one of
// them, then none is left connected, because the container runtime discards the
// sandbox, and does not tell.
func (d *Driver) Attach(ctx context.Context, sandbox Sandbox) error {
	if !d.mayHaveClaims(sandbox.PodNamespace) {
		return nil
	}
	pod, err := d.Pods(ctx, sandbox.PodNamespace, sandbox.PodName)
	if apierrors.IsNotFound(err) {
		return nil // of the kubelet's own, or deleted by force
	}
	if err != nil {
		return fmt.Errorf("cannot find out which network devices pod %s/%s has: %w", sandbox.PodNamespace, sandbox.PodName, err)
	}
	if pod.UID != sandbox.PodUID {
		return nil // the kubelet's own pods have another UID in the API
	}
	names, err := claimNames(pod)
	if err != nil {
		return fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
	}

	d.mutex.Lock()
	defer d.mutex.Unlock()
	var attached []func(*Ready)
	for _, name := range names {
		claim := d.claim(sandbox.PodNamespace, name)
		if claim == nil {
			continue // of other drivers
		}
		defer d.changed(claim)
		for _, device := range claim.Devices {
			err := d.attach(ctx, claim, device, sandbox)
			if err == nil {
				attached = append(attached, func(ready *Ready) {
					// What fails is tried again later.
					_ = d.detach(ctx, claim, device, ready)
				})
				continue
			}
			err = fmt.Errorf("network device %s of claim %s/%s: %w", device.Name, claim.Namespace, claim.Name, err)
			d.Events.Event(pod, v1.EventTypeWarning, EventAttachFailed, err.Error())
			for _, undo := range attached {
				undo(d.ready(nil, metav1.ConditionFalse, ReasonPodIncomplete, fmt.Sprintf("not attached, because another device of pod %s failed", sandbox.PodName)))
			}
			return err
		}
	}
	return nil
}

// claimNames returns the names of the claims that a pod uses, in its order: the
// default names of the interfaces depend on it.
func claimNames(pod *v1.Pod) ([]string, error) {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != nil {
			add(*name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		add(extended.ResourceClaimName)
	}
	return names, nil
}

// claim returns the one that is prepared under this name.
func (d *Driver) claim(namespace, name string) *Claim {
	for _, claim := range d.claims {
		if claim.Namespace == namespace && claim.Name == name && !claim.Released {
			return claim
		}
	}
	return nil
}

func (d *Driver) mayHaveClaims(namespace string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, claim := range d.claims {
		if claim.Namespace == namespace && !claim.Released && len(claim.Devices) > 0 {
			return true
		}
	}
	return false
}

// attach makes sure that the device is connected to the sandbox. The mutex is
// held.
func (d *Driver) attach(ctx context.Context, claim *Claim, device *Device, sandbox Sandbox) error {
	if sandbox.NetNS == "" {
		return errors.New("the pod uses the host's network; it cannot have network devices")
	}
	if a := device.Attachment; a != nil {
		if a.SandboxID == sandbox.ID && a.Phase == Added {
			return nil
		}
		if a.PodUID != sandbox.PodUID {
			return fmt.Errorf("it is in use by pod %s/%s, and can be in one pod at a time", a.PodNamespace, a.PodName)
		}
		// The former sandbox of the pod, or an ADD of which the end is unknown.
		if err := d.detach(ctx, claim, device, nil); err != nil {
			return err
		}
	}
	name, err := d.interfaceName(device, sandbox)
	if err != nil {
		return err
	}
	device.Attachment = &Attachment{
		Phase:         Adding,
		PodNamespace:  sandbox.PodNamespace,
		PodName:       sandbox.PodName,
		PodUID:        sandbox.PodUID,
		SandboxID:     sandbox.ID,
		NetNS:         sandbox.NetNS,
		InterfaceName: name,
	}
	if err := d.save(claim); err != nil {
		device.Attachment = nil
		return err
	}
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "device", device.Name, "pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName), "interface", name)
	addCtx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	result, err := d.CNI.Add(addCtx, device.Network, device.Attachment)
	if err == nil {
		err = d.added(claim, device, result)
	}
	if err != nil {
		logger.Error(err, "CNI ADD failed")
		err = fmt.Errorf("interface %s: %w", name, err)
		ready := d.ready(device.Ready, metav1.ConditionFalse, ReasonAddFailed, err.Error())
		if err := d.detach(ctx, claim, device, ready); err != nil {
			logger.Error(err, "CNI DEL after a failed ADD failed, too, will try again")
		}
		return err
	}
	logger.V(2).Info("Attached network device")
	return nil
}

// added stores what ADD has done. An error means that it cannot be reported.
func (d *Driver) added(claim *Claim, device *Device, result cnitypes.Result) error {
	encoded, err := json.Marshal(result)
	if err != nil {
		return err
	}
	a := device.Attachment
	if err := cnistatus.Write(&resourceapi.AllocatedDeviceStatus{}, result, a.InterfaceName); err != nil {
		return fmt.Errorf("what the CNI plugins of its network returned does not fit into the status of the claim: %w", err)
	}
	a.Phase, a.Result = Added, encoded
	device.Ready = d.ready(device.Ready, metav1.ConditionTrue, ReasonAttached, fmt.Sprintf("interface %s of pod %s", a.InterfaceName, a.PodName))
	claim.Reported = true
	return d.save(claim)
}

// interfaceName returns a name which the sandbox does not have yet.
func (d *Driver) interfaceName(device *Device, sandbox Sandbox) (string, error) {
	used := make(map[string]*Device)
	for _, claim := range d.claims {
		for _, other := range claim.Devices {
			if other != device && other.Attachment != nil && other.Attachment.SandboxID == sandbox.ID {
				used[other.Attachment.InterfaceName] = other
			}
		}
	}
	if name := device.InterfaceName; name != "" {
		if other := used[name]; other != nil {
			return "", fmt.Errorf("the interface name %s is taken by network device %s of the same pod", name, other.Name)
		}
		return name, nil
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("net%d", i)
		if used[name] == nil {
			return name, nil
		}
	}
}

// detach runs CNI DEL for a device that has an attachment. After that, the device
// has the given condition; nil says that there is nothing to report about it. The
// mutex is held.
func (d *Driver) detach(ctx context.Context, claim *Claim, device *Device, after *Ready) error {
	a := device.Attachment
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "device", device.Name, "pod", klog.KRef(a.PodNamespace, a.PodName), "interface", a.InterfaceName)
	a.Phase, a.Result = Deleting, nil
	if after != nil {
		device.Ready, claim.Reported = after, true
	}
	if err := d.save(claim); err != nil {
		return err
	}
	// This has to be tried even when the caller does not wait any longer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cniTimeout)
	defer cancel()
	gone := *a
	if !d.NetNSExists(a.NetNS) {
		gone.NetNS = ""
	}
	if err := d.CNI.Del(ctx, device.Network, &gone); err != nil {
		err = fmt.Errorf("interface %s: %w", a.InterfaceName, err)
		device.Ready = d.ready(device.Ready, metav1.ConditionFalse, ReasonDelFailed, err.Error())
		claim.Reported = true
		return errors.Join(err, d.save(claim))
	}
	device.Attachment = nil
	// A failure of ADD stays visible when DEL had to be tried again.
	if after == nil && (device.Ready == nil || device.Ready.Reason != ReasonAddFailed && device.Ready.Reason != ReasonPodIncomplete) {
		device.Ready = nil
	}
	logger.V(2).Info("Detached network device")
	return d.save(claim)
}

// Detach disconnects everything from a sandbox that ends.
func (d *Driver) Detach(ctx context.Context, sandboxID string) error {
	return d.detachIf(ctx, func(a *Attachment) bool { return a.SandboxID == sandboxID })
}

func (d *Driver) detachIf(ctx context.Context, condition func(*Attachment) bool) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(d.claims)) {
		claim := d.claims[uid]
		for _, device := range claim.Devices {
			if device.Attachment != nil && condition(device.Attachment) {
				errs = append(errs, d.detach(ctx, claim, device, nil))
				d.changed(claim)
			}
		}
	}
	return errors.Join(errs...)
}

// Synchronize compares with the sandboxes that the container runtime has. What
// has to be done is up to the function that it returns: the runtime starts no
// pods until Synchronize returns, and waits only for a short time.
func (d *Driver) Synchronize(sandboxes []Sandbox) func(context.Context) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	exist := sets.New[string]()
	var running []Sandbox
	for _, sandbox := range sandboxes {
		if d.NetNSExists(sandbox.NetNS) {
			exist.Insert(sandbox.ID)
			if sandbox.Running {
				running = append(running, sandbox)
			}
		}
	}
	// Sandboxes which are started after Synchronize are none of those that
	// have ended.
	ended := sets.New[string]()
	for _, claim := range d.claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && !exist.Has(a.SandboxID) {
				ended.Insert(a.SandboxID)
			}
		}
	}
	return func(ctx context.Context) {
		logger := klog.FromContext(ctx)
		if err := d.detachIf(ctx, func(a *Attachment) bool { return ended.Has(a.SandboxID) }); err != nil {
			logger.Error(err, "Cleaning up after pods that ended, will try again")
		}
		for _, sandbox := range running {
			// The driver may not have been there when the pod was started.
			if !d.NetNSExists(sandbox.NetNS) {
				continue
			}
			if err := d.Attach(ctx, sandbox); err != nil {
				logger.Error(err, "Attaching a pod that runs already", "pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName))
			}
		}
		d.Check(ctx)
	}
}

// Check runs CNI CHECK for everything that is connected, and reports what is
// not as it should be. It repairs nothing: an interface that somebody changed
// on purpose, or that a pod uses, is not for the driver to replace.
func (d *Driver) Check(ctx context.Context) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	logger := klog.FromContext(ctx)
	for _, uid := range slices.Sorted(maps.Keys(d.claims)) {
		claim := d.claims[uid]
		for _, device := range claim.Devices {
			a := device.Attachment
			if a == nil || a.Phase != Added || !d.NetNSExists(a.NetNS) {
				continue
			}
			ready := d.ready(device.Ready, metav1.ConditionTrue, ReasonAttached, fmt.Sprintf("interface %s of pod %s", a.InterfaceName, a.PodName))
			if err := d.check(ctx, device); err != nil {
				ready = d.ready(device.Ready, metav1.ConditionFalse, ReasonCheckFailed, fmt.Sprintf("interface %s: %v", a.InterfaceName, err))
			}
			if device.Ready != nil && *device.Ready == *ready {
				continue
			}
			device.Ready = ready
			if err := d.save(claim); err != nil {
				logger.Error(err, "Storing the result of CNI CHECK", "claim", klog.KRef(claim.Namespace, claim.Name))
			}
			d.changed(claim)
		}
	}
}

func (d *Driver) check(ctx context.Context, device *Device) error {
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	return d.CNI.Check(ctx, device.Network, device.Attachment)
}

// ready returns a condition. The time is that at which the status changed.
func (d *Driver) ready(before *Ready, status metav1.ConditionStatus, reason, message string) *Ready {
	const limit = 32 * 1024 // of the API
	// In JSON, what is not UTF-8 gets replaced by something longer.
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "")
	}
	ready := &Ready{Status: status, Reason: reason, Message: message, Since: metav1.NewTime(d.Clock.Now().Truncate(time.Second))}
	if before != nil && before.Status == status {
		ready.Since = before.Since
	}
	return ready
}

// save stores the claim.
func (d *Driver) save(claim *Claim) error {
	if err := d.Store.Save(claim); err != nil {
		return fmt.Errorf("storing claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	d.countAttachments()
	return nil
}

// changed has the status of the claim written, and tries again what is left to be
// removed. It is not for what happens during that: there, failures have to wait.
func (d *Driver) changed(claim *Claim) { d.queue.Add(claim.UID) }

func (d *Driver) countAttachments() {
	n := 0
	for _, claim := range d.claims {
		for _, device := range claim.Devices {
			if device.Attachment != nil {
				n++
			}
		}
	}
	d.Metrics.attachments.Set(float64(n))
}

func (c *Claim) device(pool, name string) *Device {
	for _, device := range c.Devices {
		if device.Pool == pool && device.Name == name {
			return device
		}
	}
	return nil
}

func (d *Device) same(other *Device) bool { return d.Pool == other.Pool && d.Name == other.Name }
