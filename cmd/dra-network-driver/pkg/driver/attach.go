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
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"kubernetes-dra/cnistatus"
)

// errLate says that the container runtime does not wait any longer.
var errLate = errors.New("not done within the time that the container runtime waits (for containerd, plugin_request_timeout in its configuration of NRI)")

// AttachInTime is Attach for somebody who needs an answer when the context is done. With
// an error, everything gets undone, after the answer if that takes long.
func (d *Driver) AttachInTime(ctx context.Context, sandbox Sandbox) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &waiter{since: d.Clock.Now()}
	result := make(chan error, 1)
	d.background.Go(func() { result <- d.connect(ctx, sandbox, w) })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		if w.decide() {
			d.wasLate(w, func(a *Attachment) bool { return a.PodUID == sandbox.PodUID })
			return fmt.Errorf("attaching the network devices of pod %s/%s: %w", sandbox.PodNamespace, sandbox.PodName, errLate)
		}
		// It was done at the last moment.
		return <-result
	}
}

// Attach connects a pod to the networks of its claims. If that fails for one of
// them, then none is left that was not connected before, because the container
// runtime discards the sandbox, and does not tell.
func (d *Driver) Attach(ctx context.Context, sandbox Sandbox) error {
	return d.connect(ctx, sandbox, nil)
}

// waiter is somebody who waits for an answer, and with him all pods of the node: the container runtime talks
// about one pod at a time. Nil is nobody.
type waiter struct {
	since   time.Time
	decided atomic.Bool
	// blamed is true when it is remembered which network was late. Plugins that were stopped may be gone before the
	// one who waits has noticed that the time is up. The driver's mutex is for it.
	blamed bool
}

// decide returns true to the first who asks: to the one who waits when it takes too long, or to the one who
// has done the work.
func (w *waiter) decide() bool { return w == nil || w.decided.CompareAndSwap(false, true) }

// stopped is why something was not done: the one who waits does not do so any longer, or why the context is done.
func (w *waiter) stopped(ctx context.Context) error {
	if w != nil {
		return errLate
	}
	return fmt.Errorf("stopped: %w", context.Cause(ctx))
}

// connect undoes what it has done unless it decides at the end.
func (d *Driver) connect(ctx context.Context, sandbox Sandbox, w *waiter) error {
	if sandbox.Static || d.isComplete(sandbox.ID) {
		return nil
	}
	pod, err := d.podOf(ctx, sandbox)
	if err != nil {
		return fmt.Errorf("cannot find out which network devices pod %s/%s has: %w", sandbox.PodNamespace, sandbox.PodName, err)
	}
	if pod == nil {
		return nil
	}
	names, err := claimNames(pod)
	if err != nil {
		if !d.mayHaveClaims(sandbox.PodNamespace) {
			return nil // Whatever is wrong is for another driver.
		}
		return fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
	}
	err = d.checkRecords(sandbox.PodNamespace, names)
	if err == nil && w != nil {
		// Before anything is waited for.
		err = d.checkRest(sandbox.PodNamespace, names)
	}
	if err != nil {
		d.Events.Event(pod, v1.EventTypeWarning, EventAttachFailed, err.Error())
		return err
	}
	claims, unlock, err := d.lockClaims(ctx, sandbox.PodNamespace, names)
	if err == nil {
		defer unlock()
		err = d.attachAll(ctx, claims, sandbox, w)
	}
	if err != nil && (w != nil || ctx.Err() == nil) {
		// If nobody waits and it was told to end, then that is not the pod's trouble.
		d.Events.Event(pod, v1.EventTypeWarning, EventAttachFailed, err.Error())
	}
	return err
}

// attachAll connects the devices of claims, whose locks are held.
func (d *Driver) attachAll(ctx context.Context, claims []*Claim, sandbox Sandbox, w *waiter) error {
	var fresh []func(*Ready)
	fail := func(message string, err error) error {
		for _, undo := range fresh {
			undo(d.ready(nil, metav1.ConditionFalse, ReasonPodIncomplete, message))
		}
		return err
	}
	for _, claim := range claims {
		defer d.changed(claim)
		for _, device := range claim.Devices {
			attached, err := d.attach(ctx, claim, device, sandbox, w)
			switch {
			case w == nil:
			case ctx.Err() == nil && err != nil:
				d.rests(claim.Namespace, device, w.since)
			case ctx.Err() == nil && attached:
				d.wasInTime(device)
			case err != nil:
				d.hasEndedLate(w, device, claim.Namespace)
			}
			if err != nil {
				return fail(fmt.Sprintf("not attached, because another device of pod %s failed", sandbox.PodName),
					fmt.Errorf("network device %s of claim %s/%s: %w", device.Name, claim.Namespace, claim.Name, err))
			}
			if attached {
				fresh = append(fresh, func(ready *Ready) {
					// What fails is tried again later.
					_ = d.detach(ctx, claim, device, ready)
				})
			}
		}
	}
	if !w.decide() {
		return fail(fmt.Sprintf("pod %s was not started: its devices were %v", sandbox.PodName, errLate), fmt.Errorf("network devices of pod %s/%s: %w", sandbox.PodNamespace, sandbox.PodName, errLate))
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.complete.Insert(sandbox.ID)
	return nil
}

const (
	// rest is how many times as long as the runtime had to wait for a network that network is left alone.
	rest = 10
	// forgetTrouble is after which time it does not count anymore that a network was late, or failed.
	forgetTrouble = time.Hour
)

// troubled is a network, of one namespace or of all.
type troubled struct {
	namespace string
	network   [sha256.Size]byte
}

// trouble is that of a network whose plugins were not done in time, or failed, and have not worked since.
type trouble struct {
	times       int
	last, until time.Time
}

// wasLate remembers the networks for whose plugins somebody has waited, and does not any longer.
func (d *Driver) wasLate(w *waiter, condition func(*Attachment) bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	devices := d.unfinishedLocked(condition)
	if w.blamed || len(devices) == 0 {
		return
	}
	for _, device := range devices {
		d.wasLateLocked(w, device, device.Attachment.PodNamespace)
	}
}

// begins remembers when something began for a device.
func (d *Driver) begins(device *Device) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	device.began = d.Clock.Now()
}

// wasLateLocked blames the network of a device. If the time was spent elsewhere for the most part, for instance on
// another network of the pod, then that counts in the pod's namespace only: no tenant can have others refused so.
func (d *Driver) wasLateLocked(w *waiter, device *Device, namespace string) {
	w.blamed = true
	if now := d.Clock.Now(); 2*now.Sub(device.began) >= now.Sub(w.since) {
		namespace = ""
	}
	d.restsLocked(namespace, device, w.since)
}

// rests remembers the network of a device that was late, or that failed in a namespace, for which somebody has waited
// since then. A tenant can make plugins fail, for instance with more pods than addresses. So pods of other namespaces
// are not refused for that.
func (d *Driver) rests(namespace string, device *Device, since time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.restsLocked(namespace, device, since)
}

// hasEndedLate is wasLate for a device whose plugin has ended meanwhile.
func (d *Driver) hasEndedLate(w *waiter, device *Device, namespace string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !w.blamed {
		d.wasLateLocked(w, device, namespace)
	}
}

// wasInTime forgets that the network of a device was late. That it works when nobody waits does not say that.
func (d *Driver) wasInTime(device *Device) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.troubles, troubled{"", sha256.Sum256(device.Network)})
}

// restsLocked leaves the network of a device alone, for ten times as long as somebody has waited. Once can happen
// on a busy node. After that, pods that fail again and again take a tenth of the time from all other pods of the
// node at most.
func (d *Driver) restsLocked(namespace string, device *Device, since time.Time) {
	now := d.Clock.Now()
	maps.DeleteFunc(d.troubles, func(_ troubled, t trouble) bool { return now.Sub(t.last) > forgetTrouble })
	key := troubled{namespace, sha256.Sum256(device.Network)}
	t := d.troubles[key]
	t.times++
	t.last = now
	if t.times > 1 {
		t.until = now.Add(rest * now.Sub(since))
	}
	d.troubles[key] = t
}

// unfinishedLocked returns devices for which plugins run, or should.
func (d *Driver) unfinishedLocked(condition func(*Attachment) bool) []*Device {
	var devices []*Device
	for _, claim := range d.claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && a.Phase != Added && condition(a) {
				devices = append(devices, device)
			}
		}
	}
	return devices
}

// checkRest returns an error if one of the claims has a network that is left alone.
func (d *Driver) checkRest(namespace string, names []string) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, claim := range d.claims {
		if claim.Namespace != namespace || !slices.Contains(names, claim.Name) || claim.Released {
			continue
		}
		for _, device := range claim.Devices {
			what, rest := "its network did not answer in time a moment ago", d.restLocked("", device)
			if rest <= 0 {
				what, rest = "CNI ADD of its network failed or was late a moment ago for pods of this namespace", d.restLocked(namespace, device)
			}
			if rest > 0 {
				return fmt.Errorf("network device %s of claim %s/%s: %s, and other pods have to wait meanwhile: it is tried again after %s", device.Name, claim.Namespace, claim.Name, what, roundUp(rest))
			}
		}
	}
	return nil
}

// restLocked returns for how long the network of a device is left alone, in a namespace or, without one, in all.
func (d *Driver) restLocked(namespace string, device *Device) time.Duration {
	return d.troubles[troubled{namespace, sha256.Sum256(device.Network)}].until.Sub(d.Clock.Now())
}

func roundUp(duration time.Duration) time.Duration {
	return (duration + time.Second - 1).Truncate(time.Second)
}

// isLate returns true if plugins run for a network that is left alone.
func (d *Driver) isLate(condition func(*Attachment) bool) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.ContainsFunc(d.unfinishedLocked(condition), func(device *Device) bool { return d.restLocked("", device) > 0 })
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

// lockClaims returns the claims that are prepared under these names, in this order, and
// locks them.
func (d *Driver) lockClaims(ctx context.Context, namespace string, names []string) (claims []*Claim, unlock func(), err error) {
	var unlocks []func()
	unlock = func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
	uids := claimUIDs(d.claimsByName(namespace, names))
	for _, uid := range slices.Sorted(slices.Values(uids)) {
		one, err := d.lockClaim(ctx, uid)
		if err != nil {
			unlock()
			return nil, nil, err
		}
		unlocks = append(unlocks, one)
	}
	claims = d.claimsByName(namespace, names)
	if !slices.Equal(claimUIDs(claims), uids) {
		unlock()
		return nil, nil, errors.New("the claims of the pod have just changed, it will be tried again")
	}
	return claims, unlock, nil
}

func claimUIDs(claims []*Claim) []types.UID {
	uids := make([]types.UID, 0, len(claims))
	for _, claim := range claims {
		uids = append(uids, claim.UID)
	}
	return uids
}

// claimsByName leaves out those that are only of other drivers.
func (d *Driver) claimsByName(namespace string, names []string) []*Claim {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.claimsByNameLocked(namespace, names)
}

func (d *Driver) claimsByNameLocked(namespace string, names []string) []*Claim {
	var claims []*Claim
	for _, name := range names {
		for _, claim := range d.claims {
			if claim.Namespace == namespace && claim.Name == name && !claim.Released {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// podOf returns the pod of a sandbox, nil if it is not known and no claim of its namespace is prepared.
func (d *Driver) podOf(ctx context.Context, sandbox Sandbox) (*v1.Pod, error) {
	mayHaveClaims := d.mayHaveClaims(sandbox.PodNamespace)
	ctx, cancel := context.WithTimeout(ctx, podWait)
	defer cancel()
	if !mayHaveClaims {
		cancel() // No reason to wait.
	}
	pod, err := d.Pods.Get(ctx, sandbox.PodNamespace, sandbox.PodName, sandbox.PodUID)
	if err != nil && !mayHaveClaims {
		return nil, nil
	}
	return pod, err
}

// isComplete returns true if nothing is missing in the sandbox.
func (d *Driver) isComplete(sandboxID string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.complete.Has(sandboxID)
}

// mayHaveClaims returns true if there are claims with devices for pods of the namespace.
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

// attach makes sure that the device is connected to the sandbox. It returns whether it
// was not before. The lock of the claim is held.
func (d *Driver) attach(ctx context.Context, claim *Claim, device *Device, sandbox Sandbox, w *waiter) (bool, error) {
	d.begins(device)
	if sandbox.NetNS == "" {
		return false, errors.New("the pod uses the host's network; it cannot have network devices")
	}
	if a := device.Attachment; a != nil {
		if a.SandboxID == sandbox.ID && a.Phase == Added {
			return false, d.Gate.Set(claim)
		}
		if a.PodUID != sandbox.PodUID {
			return false, fmt.Errorf("it is in use by pod %s/%s, and can be in one pod at a time", a.PodNamespace, a.PodName)
		}
		if !d.NetNSExists(sandbox.NetNS) {
			// Then the other one is not the former one.
			return false, errSandboxEnded
		}
		// The former sandbox of the pod, or an ADD of which the end is unknown.
		if err := d.detach(ctx, claim, device, nil); err != nil {
			return false, err
		}
	}
	if ctx.Err() != nil {
		return false, w.stopped(ctx)
	}
	links, err := d.Links(sandbox.NetNS)
	if err != nil {
		return false, fmt.Errorf("cannot look at the interfaces that the pod has already: %w", err)
	}
	name, err := d.interfaceName(device, sandbox, links)
	if err != nil {
		return false, err
	}
	err = d.change(claim, func() {
		device.Attachment = &Attachment{
			Phase:         Adding,
			PodNamespace:  sandbox.PodNamespace,
			PodName:       sandbox.PodName,
			PodUID:        sandbox.PodUID,
			SandboxID:     sandbox.ID,
			NetNS:         sandbox.NetNS,
			InterfaceName: name,
		}
		if f := device.Former; f != nil && f.PodUID == sandbox.PodUID {
			device.Attachment.Former = f
		}
		// Once: if somebody else has got the address meanwhile, the next attempt takes another one.
		device.Former = nil
	})
	if err != nil {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		device.Attachment = nil
		d.countAttachments()
		return false, err
	}
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "device", device.Name, "pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName), "interface", name)
	if err := d.add(ctx, claim, device); err != nil {
		logger.Error(err, "CNI ADD failed")
		if ctx.Err() != nil {
			// The plugin was stopped, and does not know why.
			err = fmt.Errorf("CNI ADD was %w: %w", w.stopped(ctx), err)
		}
		err = fmt.Errorf("interface %s: %w", name, err)
		ready := d.ready(device.Ready, metav1.ConditionFalse, ReasonAddFailed, err.Error())
		if err := d.detach(ctx, claim, device, ready); err != nil {
			logger.Error(err, "CNI DEL after a failed ADD failed, too, will try again")
		}
		return false, err
	}
	logger.V(2).Info("Attached network device")
	return true, nil
}

// add runs CNI ADD.
func (d *Driver) add(ctx context.Context, claim *Claim, device *Device) error {
	return d.runCNI(ctx, "ADD", claim, device.Attachment, func(ctx context.Context) error {
		result, err := d.CNI.Add(ctx, device.Network, device.Attachment)
		if err != nil {
			return err
		}
		return d.added(claim, device, result)
	})
}

// added stores what ADD has done, and lets containers use it. An error means that it
// cannot be reported.
func (d *Driver) added(claim *Claim, device *Device, result cnitypes.Result) error {
	encoded, err := json.Marshal(result)
	if err != nil {
		return err
	}
	a := device.Attachment
	if err := cnistatus.Write(&resourceapi.AllocatedDeviceStatus{}, result, a.InterfaceName); err != nil {
		return fmt.Errorf("what the CNI plugins of its network returned does not fit into the status of the claim: %w", err)
	}
	err = d.change(claim, func() {
		a.Phase, a.Result = Added, encoded
		delete(d.troubles, troubled{claim.Namespace, sha256.Sum256(device.Network)})
		device.Ready = d.ready(device.Ready, metav1.ConditionTrue, ReasonAttached, fmt.Sprintf("interface %s of pod %s", a.InterfaceName, a.PodName))
		claim.Reported = true
	})
	if err != nil {
		return err
	}
	return d.Gate.Set(claim)
}

// interfaceName returns a name which the sandbox does not have yet. CNI DEL removes whatever has the name,
// also after an ADD that failed because of it. So links that somebody else made are left alone.
func (d *Driver) interfaceName(device *Device, sandbox Sandbox, links sets.Set[string]) (string, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
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
		if links.Has(name) {
			return "", fmt.Errorf("the pod has an interface %s already, which is not one of this driver: choose another interfaceName, or none", name)
		}
		return name, nil
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("net%d", i)
		if used[name] == nil && !links.Has(name) {
			return name, nil
		}
	}
}

// detach runs CNI DEL for a device that has an attachment. After that, the device
// has the given condition; nil says that there is nothing to report about it. The
// lock of the claim is held.
func (d *Driver) detach(ctx context.Context, claim *Claim, device *Device, after *Ready) error {
	a := device.Attachment
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "device", device.Name, "pod", klog.KRef(a.PodNamespace, a.PodName), "interface", a.InterfaceName)
	former := formerOf(a)
	err := d.change(claim, func() {
		if former != nil {
			device.Former = former
		}
		a.Phase, a.Result = Deleting, nil
		d.complete.Delete(a.SandboxID)
		if after != nil {
			device.Ready, claim.Reported = after, true
		}
	})
	if err != nil {
		return err
	}
	if err := d.Gate.Set(claim); err != nil {
		// What stays is tied to a sandbox that ends.
		logger.Error(err, "Containers which use the device cannot be kept from being created")
	}
	gone := *a
	if !d.NetNSExists(a.NetNS) {
		gone.NetNS = ""
	}
	// This has to be tried even when the caller does not wait any longer.
	err = d.runCNI(context.WithoutCancel(ctx), "DEL", claim, a, func(ctx context.Context) error {
		return d.CNI.Del(ctx, device.Network, &gone)
	})
	if err != nil {
		err = fmt.Errorf("interface %s: %w", a.InterfaceName, err)
		return errors.Join(err, d.change(claim, func() {
			device.Ready = d.ready(device.Ready, metav1.ConditionFalse, ReasonDelFailed, err.Error())
			claim.Reported = true
		}))
	}
	logger.V(2).Info("Detached network device")
	return d.change(claim, func() {
		device.Attachment = nil
		// A failure of ADD stays visible when DEL had to be tried again.
		if after == nil && (device.Ready == nil || device.Ready.Reason != ReasonAddFailed && device.Ready.Reason != ReasonPodIncomplete) {
			device.Ready = nil
		}
	})
}

// formerOf returns what the pod of an attachment has, nil if that is not known.
func formerOf(a *Attachment) *Former {
	if a.Phase != Added {
		return nil
	}
	result, err := create.CreateFromBytes(a.Result)
	var status resourceapi.AllocatedDeviceStatus
	if err != nil || cnistatus.Write(&status, result, a.InterfaceName) != nil || status.NetworkData == nil {
		return nil
	}
	return &Former{PodUID: a.PodUID, IPs: status.NetworkData.IPs, MAC: status.NetworkData.HardwareAddress}
}

// ending is a sandbox that is being disconnected.
type ending struct {
	done chan struct{}
	// err is there when that is done.
	err error
}

// DetachInTime is Detach for somebody who needs an answer when the context is done. What
// was begun goes on after that, once for each sandbox.
func (d *Driver) DetachInTime(ctx context.Context, sandboxID string) error {
	d.mutex.Lock()
	e := d.ending[sandboxID]
	if e == nil {
		e = &ending{done: make(chan struct{})}
		d.ending[sandboxID] = e
		d.background.Go(func() {
			e.err = d.Detach(context.WithoutCancel(ctx), sandboxID)
			d.mutex.Lock()
			defer d.mutex.Unlock()
			delete(d.ending, sandboxID)
			close(e.done)
		})
	}
	d.mutex.Unlock()
	since, ofSandbox := d.Clock.Now(), func(a *Attachment) bool { return a.SandboxID == sandboxID }
	select {
	case <-e.done:
		return e.err
	case <-time.After(podWait):
	case <-ctx.Done():
	}
	// It takes long. If it did so the last time, then nobody has to wait for it.
	if d.isLate(ofSandbox) {
		return fmt.Errorf("detaching the network devices of sandbox %s: it goes on without anybody waiting, because their network did not answer in time a moment ago", sandboxID)
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		d.wasLate(&waiter{since: since}, ofSandbox)
		return fmt.Errorf("detaching the network devices of sandbox %s: %w; it goes on", sandboxID, errLate)
	}
}

// Detach disconnects everything from a sandbox that ends.
func (d *Driver) Detach(ctx context.Context, sandboxID string) error {
	d.endLater(sandboxID)
	d.mutex.Lock()
	d.complete.Delete(sandboxID)
	delete(d.missing, sandboxID)
	d.mutex.Unlock()
	var errs []error
	ended := func(a *Attachment) bool { return a.SandboxID == sandboxID }
	for _, uid := range d.attached(ended) {
		errs = append(errs, d.detachIf(ctx, uid, ended))
	}
	return errors.Join(errs...)
}

// attached returns the claims that have an attachment with a condition.
func (d *Driver) attached(condition func(*Attachment) bool) []types.UID {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	uids := make(map[types.UID]bool)
	for uid, claim := range d.claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && condition(a) {
				uids[uid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(uids))
}

// detachIf disconnects the devices of a claim for whose attachments the condition holds.
func (d *Driver) detachIf(ctx context.Context, uid types.UID, condition func(*Attachment) bool) error {
	unlock, err := d.lockClaim(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	claim := d.get(uid)
	if claim == nil {
		return nil
	}
	var errs []error
	for _, device := range claim.Devices {
		if device.Attachment != nil && condition(device.Attachment) {
			d.begins(device)
			errs = append(errs, d.detach(ctx, claim, device, nil))
			d.changed(claim)
		}
	}
	return errors.Join(errs...)
}
