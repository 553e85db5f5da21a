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
//
// A pod never runs without what its claims promise. There are three lines, and each
// holds when the ones before it do not:
//
//   - a claim is not prepared while the driver does not hear of pods,
//   - a sandbox does not start unless its interfaces exist, and the runtime is told so
//     before it stops to listen,
//   - a container that uses a claim needs something which exists only as long as the
//     devices of the claim are attached to the sandbox, see [CDIGate].
package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

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

	// EventStatusRefused is the reason of the Event of a claim.
	EventStatusRefused = "FailedWriteDeviceStatus"

	// cniTimeout is for each run of a network's plugins.
	cniTimeout = 30 * time.Second
	// statusTimeout is for each write of a status.
	statusTimeout = 30 * time.Second
	// claimTimeout is for asking whether a claim is still allocated.
	claimTimeout = 5 * time.Second

	// statusWorkers is how many claims are brought into their final state at a time,
	// and sandboxWorkers how many are looked at when all of them are. Each may have to
	// wait for a plugin that does not answer.
	statusWorkers  = 16
	sandboxWorkers = 16
)

// ClaimGetter gets claims from the API server.
type ClaimGetter func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)

// Options of a driver; all are needed.
type Options struct {
	Name     string
	NodeName string
	Source   config.Source
	CNI      CNI
	Store    Store
	Gate     Gate
	Status   StatusWriter
	Pods     Pods
	Claims   ClaimGetter
	Events   record.EventRecorder
	// NetNSExists says whether a path is that of a network namespace.
	NetNSExists func(path string) bool
	// Links returns the names of the interfaces in a network namespace.
	Links   func(path string) (sets.Set[string], error)
	Clock   clock.Clock
	Metrics *Metrics
	// Fatal ends the driver when its servers fail.
	Fatal func(error)
}

// Driver is the logic of the driver.
type Driver struct {
	Options

	queue workqueue.TypedRateLimitingInterface[types.UID]

	// claimLocks are held by whoever changes a claim, also while CNI plugins run for
	// it. Whoever takes several takes them in the order of their UIDs.
	claimLocks locks[types.UID]
	// sandboxLocks are held while CNI plugins run: the specification does not allow two
	// at a time in a container. Nothing else is locked by whoever has one.
	sandboxLocks locks[string]
	// laterLocks are held while a sandbox with these networks is attached for which only its containers wait.
	laterLocks locks[networks]
	// background is what goes on although nobody waits for it.
	background sync.WaitGroup
	// checking is held by the one who runs CNI CHECK for everything.
	checking sync.Mutex

	// mutex guards everything below. It is held for moments only, never while a plugin
	// runs, a file is written or somebody is asked. Claims are changed with their lock
	// and the mutex, and so can be read with either.
	mutex  sync.Mutex
	claims map[types.UID]*Claim
	// connected says that the container runtime tells about all pods.
	connected bool
	// ours are "<namespace>/<name>" of claims that have devices of this driver, and that were not prepared
	// when a pod with them was seen.
	ours sets.Set[string]
	// complete are the sandboxes in which nothing is missing.
	complete sets.Set[string]
	// missing are sandboxes of pods that run already and are to be attached.
	missing map[string]Sandbox
	// later are sandboxes that are attached in the background while their containers wait. The function ends that.
	later map[string]context.CancelCauseFunc
	// ending are the sandboxes that are being disconnected, until the channel is closed.
	ending map[string]*ending
	// troubles are those of networks for which pods had to wait, in vain.
	troubles map[troubled]trouble
	// running is what plugins do for a claim.
	running map[types.UID]string
	// checks end a CHECK when somebody else needs the claim.
	checks map[types.UID]context.CancelFunc
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
	// Static is true for a pod that the kubelet did not get from the API server. It has no claims.
	Static bool
}

// New returns a driver that continues where the last one stopped.
func New(options Options) (*Driver, error) {
	d := &Driver{
		Options:  options,
		claims:   make(map[types.UID]*Claim),
		complete: sets.New[string](),
		ours:     sets.New[string](),
		ending:   make(map[string]*ending),
		later:    make(map[string]context.CancelCauseFunc),
		troubles: make(map[troubled]trouble),
		running:  make(map[types.UID]string),
		checks:   make(map[types.UID]context.CancelFunc),
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
		if err := d.Gate.Set(claim); err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	if err := d.Gate.Retain(slices.Collect(maps.Keys(d.claims))); err != nil {
		return nil, fmt.Errorf("cannot remove what a former driver has left: %w", err)
	}
	d.countAttachments()
	return d, nil
}

// SetConnected says whether the container runtime tells the driver about all pods.
func (d *Driver) SetConnected(connected bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.connected = connected
	value := 0.0
	if connected {
		value = 1
	}
	d.Metrics.nriConnected.Set(value)
}

// Connected says whether the container runtime tells the driver about all pods.
func (d *Driver) Connected() bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.connected
}

// Wait returns when nothing goes on in the background.
func (d *Driver) Wait() { d.background.Wait() }

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.Fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. The driver does not know the health of devices.
func (d *Driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// ready returns a condition. The time is that at which the status changed.
func (d *Driver) ready(before *Ready, status metav1.ConditionStatus, reason, message string) *Ready {
	const limit = 32 * 1024 // of the API
	// In JSON, what is not UTF-8 gets replaced by something longer.
	message = truncate(strings.ToValidUTF8(message, "\uFFFD"), limit)
	ready := &Ready{Status: status, Reason: reason, Message: message, Since: metav1.NewTime(d.Clock.Now().Truncate(time.Second))}
	if before != nil && before.Status == status {
		ready.Since = before.Since
	}
	return ready
}

// lockClaim waits for the lock of a claim. The error says what keeps it from getting it.
// A CHECK does not: it is ended, and comes again.
func (d *Driver) lockClaim(ctx context.Context, uid types.UID) (unlock func(), err error) {
	unlock, err = d.claimLocks.lock(ctx, uid, func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		if end := d.checks[uid]; end != nil {
			end()
		}
	})
	if err == nil {
		return unlock, nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	what := "something else is done for this claim"
	if running := d.running[uid]; running != "" {
		what = running + " has not ended"
	}
	return nil, fmt.Errorf("%s, it will be tried again: %w", what, err)
}

// runCNI runs plugins for an attachment of a claim, whose lock is held.
func (d *Driver) runCNI(ctx context.Context, command string, claim *Claim, a *Attachment, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	unlock, err := d.sandboxLocks.lock(ctx, a.SandboxID, nil)
	if err != nil {
		return fmt.Errorf("CNI %s has to wait for other interfaces of the pod: %w", command, err)
	}
	defer unlock()
	set := func(what string) {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.running[claim.UID] = what
		if what == "" {
			delete(d.running, claim.UID)
		}
	}
	set(fmt.Sprintf("CNI %s of interface %s of pod %s/%s", command, a.InterfaceName, a.PodNamespace, a.PodName))
	defer set("")
	return run(ctx)
}

// isGone returns true if the API server says that this very object does not exist. A server that does not
// have that version of the API, or a proxy in front of it, answers 404, too.
func isGone(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name == name
}

// get returns a claim, nil if it is not known.
func (d *Driver) get(uid types.UID) *Claim {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.claims[uid]
}

// change changes a claim whose lock is held, and stores it.
func (d *Driver) change(claim *Claim, change func()) error {
	d.mutex.Lock()
	change()
	d.countAttachments()
	d.mutex.Unlock()
	if err := d.Store.Save(claim); err != nil {
		return fmt.Errorf("storing claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// changed has the status of the claim written, and tries again what is left to be
// removed. It is not for what happens during that: there, failures have to wait.
func (d *Driver) changed(claim *Claim) { d.queue.Add(claim.UID) }

// countAttachments is called with the mutex.
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
