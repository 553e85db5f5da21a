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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
)

// Synchronize compares with the sandboxes that the container runtime has. What
// has to be done is up to the function that it returns: the runtime starts no
// pods until Synchronize returns, and waits only for a short time.
func (d *Driver) Synchronize(sandboxes []Sandbox) func(context.Context) {
	exist := sets.New[string]()
	running := make(map[string]Sandbox)
	for _, sandbox := range sandboxes {
		if d.NetNSExists(sandbox.NetNS) {
			exist.Insert(sandbox.ID)
			if sandbox.Running {
				running[sandbox.ID] = sandbox
			}
		}
	}
	d.mutex.Lock()
	d.complete = d.complete.Intersection(exist)
	// Nobody else may have told that these have ended. The other ones go on by themselves.
	for id, end := range d.later {
		if delete(running, id); !exist.Has(id) {
			end(errSandboxEnded)
			delete(d.later, id)
		}
	}
	// The driver may not have been there when these pods were started.
	d.missing = running
	d.mutex.Unlock()
	// Sandboxes which are started after Synchronize are none of those that
	// have ended.
	ended := make(map[types.UID]sets.Set[string])
	d.mutex.Lock()
	for uid, claim := range d.claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && !exist.Has(a.SandboxID) {
				if ended[uid] == nil {
					ended[uid] = sets.New[string]()
				}
				ended[uid].Insert(a.SandboxID)
			}
		}
	}
	d.mutex.Unlock()
	return func(ctx context.Context) { d.finish(ctx, ended) }
}

// finish does what Synchronize has found. No claim and no pod has to wait for another.
func (d *Driver) finish(ctx context.Context, ended map[types.UID]sets.Set[string]) {
	logger := klog.FromContext(ctx)
	var work []func()
	for uid, sandboxes := range ended {
		work = append(work, func() {
			if err := d.detachIf(ctx, uid, func(a *Attachment) bool { return sandboxes.Has(a.SandboxID) }); err != nil {
				logger.Error(err, "Cleaning up after pods that ended, will try again", "claimUID", uid)
			}
		})
	}
	parallel(append(work, d.attachMissing(ctx)...))
	d.check(ctx, nil)
}

// attachMissing returns what has to be done for pods that run already. What fails, for instance because
// the API server or the network does not answer, is done again with the next check.
func (d *Driver) attachMissing(ctx context.Context) []func() {
	d.mutex.Lock()
	missing := maps.Clone(d.missing)
	d.mutex.Unlock()
	var work []func()
	for id, sandbox := range missing {
		work = append(work, func() {
			if !d.Pods.WaitForSync(ctx) {
				return
			}
			// Whose containers wait does not keep others waiting here.
			if d.NetNSExists(sandbox.NetNS) && (d.isAttached(id) || !d.AttachLater(ctx, sandbox)) {
				if err := d.Attach(ctx, sandbox); err != nil {
					klog.FromContext(ctx).Error(err, "Attaching a pod that runs already, will try again", "pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName))
					return
				}
			}
			d.mutex.Lock()
			defer d.mutex.Unlock()
			delete(d.missing, id)
		})
	}
	return work
}

const (
	// minLater is when a sandbox whose containers wait is attached again for the first time, and maxLater the
	// most that is waited after a failure.
	minLater, maxLater = time.Second, 30 * time.Second
)

// AttachLater attaches a sandbox in the background, until it works or the sandbox ends. It returns false, and does
// nothing, unless no container of the pod can be created before that. A sandbox that is refused instead costs all pods
// of the node more: the kubelet makes another one every few seconds.
func (d *Driver) AttachLater(ctx context.Context, sandbox Sandbox) bool {
	short, cancel := context.WithTimeout(ctx, podWait)
	defer cancel()
	pod, err := d.Pods.Get(short, sandbox.PodNamespace, sandbox.PodName, sandbox.PodUID)
	if err != nil || !d.holdsContainers(pod) {
		return false
	}
	key := d.networksOf(pod)
	ctx, end := context.WithCancelCause(ctx)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.later[sandbox.ID] != nil {
		end(nil)
		return true
	}
	d.later[sandbox.ID] = end
	d.background.Go(func() {
		defer d.endLater(sandbox.ID)
		for wait := minLater; ; wait = min(2*wait, maxLater) {
			select {
			case <-d.Clock.After(wait):
			case <-ctx.Done():
				return
			}
			if d.attachNow(ctx, sandbox, key) {
				return
			}
		}
	})
	return true
}

// networks are those of a pod, in its namespace.
type networks struct {
	namespace string
	networks  [sha256.Size]byte
}

// networksOf returns the networks of the pod's claims.
func (d *Driver) networksOf(pod *v1.Pod) networks {
	names, _ := claimNames(pod) // holdsContainers has looked at them.
	d.mutex.Lock()
	defer d.mutex.Unlock()
	all := sets.New[string]()
	for _, claim := range d.claimsByNameLocked(pod.Namespace, names) {
		for _, device := range claim.Devices {
			all.Insert(string(device.Network))
		}
	}
	return networks{pod.Namespace, sha256.Sum256([]byte(strings.Join(sets.List(all), "\n")))}
}

// attachNow attaches a sandbox for which nobody waits but its containers, and returns true if nothing is left to do.
// Plugins run for one such sandbox of a namespace and its networks at a time, whatever their number.
func (d *Driver) attachNow(ctx context.Context, sandbox Sandbox, key networks) bool {
	unlock, err := d.laterLocks.lock(ctx, key, nil)
	if err != nil {
		return false
	}
	defer unlock()
	// That may have taken minutes, in which the pod may have got another sandbox.
	if !d.IsLater(sandbox.ID) || !d.NetNSExists(sandbox.NetNS) {
		return true
	}
	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(sandbox.PodNamespace, sandbox.PodName))
	if err := d.Attach(ctx, sandbox); err != nil {
		logger.V(2).Info("Attaching a pod whose containers wait, will try again", "err", err)
		return false
	}
	if !d.IsLater(sandbox.ID) {
		// It has ended in the meantime, and whoever said so may have found nothing.
		if err := d.Detach(context.WithoutCancel(ctx), sandbox.ID); err != nil {
			logger.Error(err, "Cleaning up after a pod that ended, will try again")
		}
	}
	return true
}

// IsLater returns true if a sandbox is attached in the background, and is not yet.
func (d *Driver) IsLater(sandboxID string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.later[sandboxID] != nil
}

// endLater gives up attaching a sandbox in the background.
func (d *Driver) endLater(sandboxID string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if end := d.later[sandboxID]; end != nil {
		end(errSandboxEnded)
		delete(d.later, sandboxID)
	}
}

// errSandboxEnded is why a sandbox is not attached any longer.
var errSandboxEnded = errors.New("the sandbox of the pod has ended")

// isAttached returns true if a device is attached to the sandbox.
func (d *Driver) isAttached(sandboxID string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, claim := range d.claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && a.SandboxID == sandboxID && a.Phase == Added {
				return true
			}
		}
	}
	return false
}

// holdsContainers returns true if each container of a pod waits for all of the pod's network devices, because it
// lists their claims: the [Gate] is closed until they are attached, also while the driver is not there.
func (d *Driver) holdsContainers(pod *v1.Pod) bool {
	ours := func(name string) []*Claim { return d.claimsByName(pod.Namespace, []string{name}) }
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	held := false
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, entry)
		if err != nil {
			return false
		}
		if name == nil {
			continue
		}
		claims := ours(*name)
		if len(claims) == 0 {
			continue
		}
		// With a request, it would get only some of the devices.
		starts := func(container v1.Container) bool {
			return !slices.Contains(container.Resources.Claims, v1.ResourceClaim{Name: entry.Name})
		}
		if slices.ContainsFunc(containers, starts) || d.isOpenFor(claims, pod.UID) {
			return false
		}
		held = len(containers) > 0
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && len(ours(extended.ResourceClaimName)) > 0 {
		return false
	}
	return held
}

// isOpenFor returns true if devices of the claims are attached to another pod, for which the gate is open.
func (d *Driver) isOpenFor(claims []*Claim, pod types.UID) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, claim := range claims {
		for _, device := range claim.Devices {
			if a := device.Attachment; a != nil && a.PodUID != pod {
				return true
			}
		}
	}
	return false
}

// parallel runs all functions, some of them at a time.
func parallel(work []func()) {
	var running sync.WaitGroup
	places := make(chan struct{}, sandboxWorkers)
	for _, run := range work {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			run()
		})
	}
	running.Wait()
}

// Check attaches pods that run and could not be attached until now, runs CNI CHECK for everything
// that is connected, and reports what is not as it should be. It repairs nothing: an interface that
// somebody changed on purpose, or that a pod uses, is not for the driver to replace. A check that
// goes on already is enough.
func (d *Driver) Check(ctx context.Context) { d.check(ctx, d.attachMissing(ctx)) }

func (d *Driver) check(ctx context.Context, work []func()) {
	if !d.checking.TryLock() {
		return
	}
	defer d.checking.Unlock()
	d.mutex.Lock()
	uids := slices.Sorted(maps.Keys(d.claims))
	d.mutex.Unlock()
	for _, uid := range uids {
		work = append(work, func() { d.checkClaim(ctx, uid) })
	}
	parallel(work)
}

// checkClaim leaves a claim alone for which something else is done, and ends when
// somebody waits for it.
func (d *Driver) checkClaim(ctx context.Context, uid types.UID) {
	unlock, ok := d.claimLocks.tryLock(uid)
	if !ok {
		return
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mutex.Lock()
	claim := d.claims[uid]
	d.checks[uid] = cancel
	d.mutex.Unlock()
	defer func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		delete(d.checks, uid)
	}()
	if claim == nil {
		return
	}
	for _, device := range claim.Devices {
		if a := device.Attachment; a == nil || a.Phase != Added || !d.NetNSExists(a.NetNS) {
			continue
		}
		// Who began to wait before the cancel function was there.
		if d.claimLocks.contended(uid) {
			return
		}
		d.checkDevice(ctx, claim, device)
	}
}

func (d *Driver) checkDevice(ctx context.Context, claim *Claim, device *Device) {
	a := device.Attachment
	ready := d.ready(device.Ready, metav1.ConditionTrue, ReasonAttached, fmt.Sprintf("interface %s of pod %s", a.InterfaceName, a.PodName))
	err := d.runCNI(ctx, "CHECK", claim, a, func(ctx context.Context) error { return d.CNI.Check(ctx, device.Network, a) })
	if ctx.Err() != nil {
		return // and nothing was found out
	}
	if err != nil {
		ready = d.ready(device.Ready, metav1.ConditionFalse, ReasonCheckFailed, fmt.Sprintf("interface %s: %v", a.InterfaceName, err))
	}
	if device.Ready != nil && *device.Ready == *ready {
		return
	}
	if err := d.change(claim, func() { device.Ready = ready }); err != nil {
		klog.FromContext(ctx).Error(err, "Storing the result of CNI CHECK", "claim", klog.KRef(claim.Namespace, claim.Name))
	}
	d.changed(claim)
}
