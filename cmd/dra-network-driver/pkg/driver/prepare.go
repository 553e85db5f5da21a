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
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

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
		this := &prepared[len(prepared)-1]
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
		this.CDIDeviceIDs = []string{d.Gate.ID(claim.UID, result.Device)}
		for _, other := range wanted {
			if device.InterfaceName != "" && other.InterfaceName == device.InterfaceName {
				return nil, fmt.Errorf("devices %s and %s have the same interfaceName %s", other.Name, result.Device, device.InterfaceName)
			}
		}
		wanted = append(wanted, &Device{Pool: result.Pool, Name: result.Device, InterfaceName: device.InterfaceName, Network: device.Network})
	}

	if err := d.keep(ctx, claim, wanted); err != nil {
		return nil, err
	}
	return prepared, nil
}

// keep remembers a claim, from when on its devices are connected to pods.
func (d *Driver) keep(ctx context.Context, claim *resourceapi.ResourceClaim, wanted []*Device) error {
	if len(wanted) > 0 && !d.Connected() {
		return errors.New("the driver does not hear from the container runtime of pods that start, so they would not be connected to their networks; the driver needs NRI, and the kubelet tries again")
	}
	unlock, err := d.lockClaim(ctx, claim.UID)
	if err != nil {
		return err
	}
	defer unlock()
	conflict, err := d.conflict(claim, wanted)
	if err != nil && d.reclaim(ctx, conflict) {
		_, err = d.conflict(claim, wanted)
	}
	if err != nil {
		return err
	}

	before := d.get(claim.UID)
	next := &Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Devices: wanted}
	if before != nil {
		next.Reported = before.Reported
		for _, device := range before.Devices {
			i := slices.IndexFunc(wanted, device.same)
			switch {
			case device.Attachment == nil:
				if i >= 0 && !before.Released {
					wanted[i].Ready, wanted[i].Former = device.Ready, device.Former
				}
			case i >= 0:
				// The kubelet repeats itself: what is connected stays so.
				wanted[i] = device
			default:
				// Allocated differently, and nobody told.
				if err := d.detach(ctx, before, device, nil); err != nil {
					return err
				}
			}
		}
	}
	return d.replace(before, next)
}

// replace puts a claim in the place of the former one with the same UID, nil if there is
// none. The lock of the claim is held.
func (d *Driver) replace(before, next *Claim) error {
	d.mutex.Lock()
	// Another claim may have taken the devices in the meantime.
	_, err := d.conflictLocked(next.Namespace, next.Name, next.UID, next.Devices)
	if err == nil {
		d.claims[next.UID] = next
	}
	d.mutex.Unlock()
	if err != nil {
		return err
	}
	if err := d.change(next, func() {}); err != nil {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.claims[next.UID] = before
		if before == nil {
			delete(d.claims, next.UID)
		}
		return err
	}
	d.changed(next)
	return nil
}

// conflict returns the UID of another claim that keeps this one from being prepared, and
// what to say about that.
func (d *Driver) conflict(claim *resourceapi.ResourceClaim, wanted []*Device) (types.UID, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.conflictLocked(claim.Namespace, claim.Name, claim.UID, wanted)
}

func (d *Driver) conflictLocked(namespace, name string, uid types.UID, wanted []*Device) (types.UID, error) {
	for _, other := range d.claims {
		if other.UID == uid || other.Released {
			continue
		}
		if other.Namespace == namespace && other.Name == name {
			return other.UID, fmt.Errorf("a former claim of this name, with UID %s, is still in use on node %s", other.UID, d.NodeName)
		}
		for _, device := range wanted {
			if other.device(device.Pool, device.Name) != nil {
				return other.UID, fmt.Errorf("device %s/%s is still in use by claim %s/%s", device.Pool, device.Name, other.Namespace, other.Name)
			}
		}
	}
	return "", nil
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
	unlock, err := d.lockClaim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	claim := d.get(uid)
	if claim == nil {
		return nil
	}
	return d.release(ctx, claim)
}

// release frees the devices of a claim whose lock is held.
func (d *Driver) release(ctx context.Context, claim *Claim) error {
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
	return d.change(claim, func() { claim.Released = true })
}

// Reclaim releases claims which are not allocated any more, and about which the kubelet
// did not tell: it forgets them if it loses its own checkpoint.
func (d *Driver) Reclaim(ctx context.Context) {
	d.forgetUnused()
	d.mutex.Lock()
	var uids []types.UID
	for uid, claim := range d.claims {
		if !claim.Released {
			uids = append(uids, uid)
		}
	}
	d.mutex.Unlock()
	for _, uid := range uids {
		d.reclaim(ctx, uid)
	}
}

// reclaim returns true if it has released the claim. It leaves one alone for which
// something is done, or whose interfaces are in a network namespace that exists.
func (d *Driver) reclaim(ctx context.Context, uid types.UID) bool {
	unlock, ok := d.claimLocks.tryLock(uid)
	if !ok {
		return false
	}
	defer unlock()
	claim := d.get(uid)
	if claim == nil || claim.Released {
		return false
	}
	for _, device := range claim.Devices {
		if a := device.Attachment; a != nil && d.NetNSExists(a.NetNS) {
			return false
		}
	}
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", uid)
	if allocated, err := d.allocated(ctx, claim); err != nil || allocated {
		if err != nil {
			logger.Error(err, "Cannot find out whether the claim is still allocated")
		}
		return false
	}
	if err := d.release(ctx, claim); err != nil {
		logger.Error(err, "Releasing a claim that is not allocated any more, will try again")
		return false
	}
	logger.Info("Released a claim that is not allocated any more; the kubelet did not unprepare it")
	return true
}

// allocated asks the API server whether a claim has devices of this node.
func (d *Driver) allocated(ctx context.Context, claim *Claim) (bool, error) {
	current, err := d.getClaim(ctx, claim.Namespace, claim.Name)
	if isGone(err, "resourceclaims", claim.Name) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if current.UID != claim.UID || current.Status.Allocation == nil {
		return false, nil
	}
	return slices.ContainsFunc(current.Status.Allocation.Devices.Results, func(result resourceapi.DeviceRequestAllocationResult) bool {
		return result.Driver == d.Name && result.Pool == d.NodeName
	}), nil
}
