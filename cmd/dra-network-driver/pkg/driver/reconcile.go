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
	"sync"

	"github.com/containernetworking/cni/pkg/types/create"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"kubernetes-dra/cnistatus"
)

// Run writes the status of claims, and tries again what failed, until the
// context is done.
func (d *Driver) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, d.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range statusWorkers {
		workers.Go(func() {
			for d.processNext(ctx) {
			}
		})
	}
	workers.Wait()
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
	detachErr := d.detachDeleting(ctx, uid)

	d.mutex.Lock()
	claim := d.claims[uid]
	if claim == nil {
		d.mutex.Unlock()
		return nil
	}
	namespace, name, reported, released := claim.Namespace, claim.Name, claim.Reported, claim.Released
	devices, err := d.report(claim)
	d.mutex.Unlock()

	errs := []error{detachErr, err}
	if reported {
		errs = append(errs, d.writeStatus(ctx, namespace, name, uid, devices, released))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !released {
		return nil
	}
	return d.forget(ctx, claim)
}

// detachDeleting tries again to remove what is left of a claim. If something else is done
// for the claim, it has to wait, and not the status.
func (d *Driver) detachDeleting(ctx context.Context, uid types.UID) error {
	deleting := func(device *Device) bool { return device.Attachment != nil && device.Attachment.Phase == Deleting }
	d.mutex.Lock()
	claim := d.claims[uid]
	needed := claim != nil && slices.ContainsFunc(claim.Devices, deleting)
	d.mutex.Unlock()
	if !needed {
		return nil
	}
	unlock, ok := d.claimLocks.tryLock(uid)
	if !ok {
		return errors.New("something has to be removed, and something else is done for the claim")
	}
	defer unlock()
	claim = d.get(uid)
	if claim == nil {
		return nil
	}
	var errs []error
	for _, device := range claim.Devices {
		if deleting(device) {
			errs = append(errs, d.detach(ctx, claim, device, nil))
		}
	}
	return errors.Join(errs...)
}

// writeStatus makes the devices those that the driver reports. A refusal is told to
// whoever looks at the claim.
func (d *Driver) writeStatus(ctx context.Context, namespace, name string, uid types.UID, devices []resourceapi.AllocatedDeviceStatus, released bool) error {
	writeCtx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err := d.Status.Apply(writeCtx, namespace, name, uid, devices)
	result, final := outcome(err, name)
	d.Metrics.statusWrites.WithLabelValues(result).Inc()
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(namespace, name), "claimUID", uid)
	switch {
	case err == nil:
		logger.V(3).Info("Wrote status", "devices", len(devices))
		return nil
	case final || released && result == resultForbidden:
		// When devices are freed, the API server removes the entries.
		logger.V(2).Info("Status cannot be written", "result", result, "err", err)
		return nil
	case result == resultForbidden:
		d.Events.Event(&v1.ObjectReference{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim", Namespace: namespace, Name: name, UID: uid},
			v1.EventTypeWarning, EventStatusRefused,
			fmt.Sprintf("driver %s on node %s may not write the status of its devices, will try again; 'kubectl dra doctor access' says what it lacks: %v", d.Name, d.NodeName, err))
	}
	return fmt.Errorf("writing the status of claim %s/%s: %w", namespace, name, err)
}

// forget removes a claim that is not prepared any more, and whose status says so.
func (d *Driver) forget(ctx context.Context, claim *Claim) error {
	unlock, err := d.lockClaim(ctx, claim.UID)
	if err != nil {
		return err
	}
	defer unlock()
	d.mutex.Lock()
	again := d.claims[claim.UID] != claim || !claim.Released
	d.mutex.Unlock()
	if again {
		return nil // prepared again in the meantime
	}
	if err := errors.Join(d.Gate.Set(claim), d.Store.Delete(claim.UID)); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.claims, claim.UID)
	return nil
}

const resultForbidden = "forbidden"

// outcome says for metrics what became of a write to the claim of that name, and whether another try
// would be useless.
func outcome(err error, name string) (result string, final bool) {
	switch {
	case err == nil:
		return "success", true
	case errors.Is(err, ErrStatusDropped):
		return "dropped", false
	case isGone(err, "resourceclaims", name), apierrors.IsConflict(err):
		return "gone", true // or there is another claim with this name
	case apierrors.IsForbidden(err), apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeForbidden)):
		// Who may write which device is decided after the request was let in, and so is
		// one of the causes for which the object is invalid.
		return resultForbidden, false
	case apierrors.IsInvalid(err):
		return "invalid", true // the devices are not allocated any more
	default:
		return "error", false
	}
}

// report returns what the status of the claim shall be. What another device
// reports does not depend on one that cannot be reported. It is called with the mutex.
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
