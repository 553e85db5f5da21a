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

package dynamicresources

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

const (
	// stressRounds is how often each claim gets allocated and released.
	stressRounds = 20
	// stressClaims is how many claims get allocated at the same time. A fake watch has room
	// for all their updates.
	stressClaims = 16
	// stressReaders is how many goroutines list the allocated devices meanwhile.
	stressReaders = 2
	// stressTimeout is only reached if the test hangs.
	stressTimeout = time.Minute
)

var stressResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")

// TestAllocatedDevicesStress stores allocations while others list the allocated devices. A device
// which is not in the list, although its allocation was signalled and not released, could be
// given to another claim. With the code of v1.32.2, 200 of 200 runs failed (upstream's pull
// request 136564).
func TestAllocatedDevicesStress(t *testing.T) {
	for name, list := range allocatedDevicesLists {
		for order, informerFirst := range map[string]bool{"scheduler-first": false, "informer-first": true} {
			t.Run(name+"/"+order, func(t *testing.T) {
				s := newAllocationStress(t, list, informerFirst)
				for round := 0; round < stressRounds && !t.Failed(); round++ {
					s.allocateAll()
					s.releaseAll()
				}
			})
		}
	}
}

// allocationStress drives a claim tracker like many scheduling and binding cycles do.
type allocationStress struct {
	t       *testing.T
	ctx     context.Context
	api     cgotesting.ObjectTracker
	tracker *claimTracker
	list    func(*claimTracker) (sets.Set[structured.DeviceID], error)
	claims  []*stressClaim

	// informerFirst is set if the informer tells of an allocation before the scheduler does.
	informerFirst bool
}

// stressClaim is a claim with a device of its own. One goroutine at a time uses it, except for
// what is constant and for taken.
type stressClaim struct {
	name       string
	deviceID   structured.DeviceID
	allocation *resourceapi.AllocationResult

	// taken is true from when an allocation was signalled until it gets released.
	taken atomic.Bool

	stored *resourceapi.ResourceClaim
}

func newAllocationStress(t *testing.T, list func(*claimTracker) (sets.Set[structured.DeviceID], error), informerFirst bool) *allocationStress {
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logr.New(yieldingLogSink{t})), stressTimeout)
	s := &allocationStress{t: t, ctx: ctx, list: list, informerFirst: informerFirst}
	var objs []apiruntime.Object
	for i := range stressClaims {
		claim := newStressClaim(fmt.Sprintf("claim-%d", i), fmt.Sprintf("device-%d", i))
		s.claims = append(s.claims, claim)
		objs = append(objs, claim.stored)
	}

	client := fake.NewSimpleClientset(objs...)
	s.api = client.Tracker()
	// The informer would not be told of anything that happens between its list and its watch.
	watching := make(chan struct{})
	var once sync.Once
	client.PrependWatchReactor(stressResource.Resource, func(action cgotesting.Action) (bool, watch.Interface, error) {
		defer once.Do(func() { close(watching) })
		watcher, err := s.api.Watch(stressResource, action.GetNamespace())
		return true, watcher, err
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	informer, err := factory.ForResource(stressResource)
	require.NoError(t, err)
	s.tracker = newStressTracker(ctx, assumecache.NewAssumeCache(klog.FromContext(ctx), informer.Informer(), "resource claim", "", nil), factory)
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})

	select {
	case <-watching:
	case <-ctx.Done():
		t.Fatal("the informer does not watch claims")
	}
	for _, claim := range s.claims {
		s.waitFor("claim in cache", func() bool {
			_, err := s.tracker.Get(namespace, claim.name)
			return err == nil
		})
	}
	return s
}

func newStressClaim(name, device string) *stressClaim {
	const driver, pool = "driver.example.com", "pool"
	return &stressClaim{
		name:     name,
		deviceID: structured.MakeDeviceID(driver, pool, device),
		allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Request: "req", Driver: driver, Pool: pool, Device: device}},
			},
		},
		stored: &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		},
	}
}

// allocateAll allocates all claims at once. It returns when the readers saw all devices.
func (s *allocationStress) allocateAll() {
	var writers, readers sync.WaitGroup
	for _, claim := range s.claims {
		writers.Add(1)
		go func() {
			defer writers.Done()
			if err := s.allocate(claim); err != nil {
				s.t.Errorf("allocate %s: %v", claim.name, err)
			}
		}()
	}
	var written atomic.Bool
	for range stressReaders {
		readers.Add(1)
		go func() {
			defer readers.Done()
			s.checkUntil(&written)
		}()
	}
	writers.Wait()
	written.Store(true)
	readers.Wait()
}

// allocate does for one claim what Reserve and PreBind do.
func (s *allocationStress) allocate(claim *stressClaim) error {
	allocated := claim.stored.DeepCopy()
	allocated.Status.Allocation = claim.allocation
	if err := s.tracker.SignalClaimPendingAllocation(allocated.UID, allocated); err != nil {
		return err
	}
	claim.taken.Store(true)

	if err := s.store(claim, claim.allocation); err != nil {
		return err
	}
	if s.informerFirst {
		s.waitFor("allocation in cache", func() bool {
			cached, err := s.tracker.Get(namespace, claim.name)
			return err == nil && cached.Status.Allocation != nil
		})
	}
	if err := s.tracker.AssumeClaimAfterAPICall(claim.stored); err != nil {
		return err
	}
	if !removeStressPending(s.tracker, claim.stored.UID) {
		return errors.New("the allocation was not pending")
	}
	return nil
}

// removeStressPending removes an allocation that no other pod uses.
func removeStressPending(tracker *claimTracker, claimUID types.UID) bool {
	switch tracker := any(tracker).(type) {
	case interface{ RemoveClaimPendingAllocation(types.UID) bool }: // Until 1.35.
		return tracker.RemoveClaimPendingAllocation(claimUID)
	case interface {
		MaybeRemoveClaimPendingAllocation(types.UID, bool) bool
	}:
		return tracker.MaybeRemoveClaimPendingAllocation(claimUID, false)
	}
	panic(fmt.Sprintf("%T cannot remove a pending allocation", tracker))
}

// store changes the allocation of the stored claim.
func (s *allocationStress) store(claim *stressClaim, allocation *resourceapi.AllocationResult) error {
	version, err := strconv.Atoi(claim.stored.ResourceVersion)
	if err != nil {
		return err
	}
	claim.stored = claim.stored.DeepCopy()
	claim.stored.ResourceVersion = strconv.Itoa(version + 1)
	claim.stored.Status.Allocation = allocation
	return s.api.Update(stressResource, claim.stored, namespace)
}

// checkUntil lists the allocated devices until it could do so after everything was written.
func (s *allocationStress) checkUntil(written *atomic.Bool) {
	for s.ctx.Err() == nil {
		last := written.Load()
		var taken []*stressClaim
		for _, claim := range s.claims {
			if claim.taken.Load() {
				taken = append(taken, claim)
			}
		}
		devices, err := s.list(s.tracker)
		switch {
		case errors.Is(err, errClaimTrackerConcurrentModification):
			runtime.Gosched()
			continue
		case err != nil:
			s.t.Errorf("list allocated devices: %v", err)
			return
		}
		for _, claim := range taken {
			if !devices.Has(claim.deviceID) {
				s.t.Errorf("device %s of %s is not in the list of allocated devices, it could get allocated twice", claim.deviceID, claim.name)
				return
			}
		}
		if last {
			return
		}
	}
	s.t.Error("no list of allocated devices in time")
}

// releaseAll deallocates all claims. It returns when no device is allocated.
func (s *allocationStress) releaseAll() {
	for _, claim := range s.claims {
		claim.taken.Store(false)
		require.NoError(s.t, s.store(claim, nil))
	}
	s.waitFor("release of all devices", func() bool {
		devices, err := s.list(s.tracker)
		return err == nil && len(devices) == 0
	})
}

func (s *allocationStress) waitFor(what string, done func() bool) {
	for !done() {
		if s.ctx.Err() != nil {
			s.t.Errorf("waited in vain: %s", what)
			return
		}
		runtime.Gosched()
	}
}

// yieldingLogSink lets other goroutines run where something gets logged. The claim tracker does
// that between the steps which have to fit together.
type yieldingLogSink struct {
	t *testing.T
}

func (yieldingLogSink) Init(logr.RuntimeInfo) {}

func (yieldingLogSink) Enabled(int) bool { return true }

func (yieldingLogSink) Info(int, string, ...any) { runtime.Gosched() }

func (l yieldingLogSink) Error(err error, msg string, keysAndValues ...any) {
	l.t.Errorf("%s: %v %v", msg, err, keysAndValues)
}

func (l yieldingLogSink) WithValues(...any) logr.LogSink { return l }

func (l yieldingLogSink) WithName(string) logr.LogSink { return l }
