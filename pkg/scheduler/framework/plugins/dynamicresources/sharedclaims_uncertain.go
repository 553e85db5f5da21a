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
	"net/http/httptrace"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// This file contains for how long the API server is waited for (callAPI), and what
// happens when it is not known whether it has stored an allocation: the request timed
// out, the connection got lost, or the server failed. If the allocation simply was not
// in flight anymore, then the devices could be given to some other claim before the
// informer delivers what was stored.

const (
	// claimLookTimeout limits how long the API server has for the answer to a look at
	// a claim.
	claimLookTimeout = 10 * time.Second

	// claimLookInterval is the time between looks at the cache, which learns of most
	// claims that were stored, and until the first look at the API server. Each time
	// that it says no, the time until the next look doubles.
	claimLookInterval = 5 * time.Second

	// maxClaimLooks limits how many claims are being looked at at the same time. Those
	// requests compete with those which bind pods.
	maxClaimLooks = 2

	// uncertainWriteTimeout is the time after which a request that was sent to
	// the API server cannot be stored anymore. The API server gives up after
	// one minute (--request-timeout).
	uncertainWriteTimeout = 90 * time.Second

	// wakeUpPause is for how long allocations that were not stored are collected before
	// pods get woken up. After an outage of the API server, there are many.
	wakeUpPause = time.Second
)

// uncertainWriteError wraps the error of a write that may have been stored.
type uncertainWriteError struct {
	error
}

func (e *uncertainWriteError) Unwrap() error {
	return e.error
}

func isUncertain(err error) bool {
	var uncertain *uncertainWriteError
	return errors.As(err, &uncertain)
}

// mayHaveBeenStored returns true unless the API server said that it rejected the write.
func mayHaveBeenStored(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code < 400 || code >= 500
}

// writeError returns the error of a write, such that isUncertain recognizes it if the write may
// have been stored. What was not sent was not.
func writeError(err error, unsent bool) error {
	if !unsent && mayHaveBeenStored(err) {
		return &uncertainWriteError{err}
	}
	return err
}

// writeClaim makes one request that changes a claim. isUncertain recognizes its error if the change may
// have been stored.
func writeClaim(ctx context.Context, write func(ctx context.Context) (*resourceapi.ResourceClaim, error)) (*resourceapi.ResourceClaim, error) {
	claim, unsent, err := callAPI(ctx, claimWriteTimeout, write)
	if err != nil {
		return nil, writeError(err, unsent)
	}
	return claim, nil
}

// settleLater keeps the allocation in flight, as if one more pod used it, until it
// is known whether it was stored.
func (pl *DynamicResources) settleLater(logger klog.Logger, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) {
	if pl.pendingAllocations().GetPendingAllocation(claim.UID) != allocation {
		// Settled already.
		return
	}
	allocatedClaim := *claim
	allocatedClaim.Status.Allocation = allocation
	if err := pl.pendingAllocations().SignalClaimPendingAllocation(claim.UID, &allocatedClaim); err != nil {
		logger.Error(err, "Keeping allocation in flight", "claim", klog.KObj(claim))
		return
	}
	logger.V(2).Info("Unknown whether the allocation was stored, keeping it in flight", "claim", klog.KObj(claim), "uid", claim.UID)
	go pl.settle(klog.NewContext(pl.claimReserver.ctx, logger), claim, allocation)
}

func (pl *DynamicResources) settle(ctx context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) {
	logger := klog.FromContext(ctx)
	deadline := time.Now().Add(uncertainWriteTimeout)
	interval := claimLookInterval
	nextLook := time.Now().Add(interval)
	ticker := time.NewTicker(claimLookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if pl.pendingAllocations().GetPendingAllocation(claim.UID) != allocation {
			// Stored for some other pod.
			return
		}
		if pl.isAllocatedInCache(claim) {
			pl.removePendingAllocation(logger, claim, allocation)
			return
		}
		overdue := !time.Now().Before(deadline)
		if !overdue && time.Now().Before(nextLook) {
			continue
		}
		looked, stored, err := pl.lookAtClaim(ctx, claim)
		switch {
		case err != nil:
			logger.V(2).Info("Looking at claim failed", "claim", klog.KObj(claim), "err", err)
		case stored != nil:
			pl.assumeClaim(logger, stored)
			if pl.isAllocatedInCache(claim) {
				pl.removePendingAllocation(logger, claim, allocation)
				return
			}
		case looked && overdue:
			// While looking, another pod may have stored it, and a later allocation
			// may be in flight. That one belongs to other pods.
			if pl.pendingAllocations().GetPendingAllocation(claim.UID) == allocation &&
				pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(claim.UID, false) {
				pl.wakeUp(logger)
			}
			logger.V(2).Info("The allocation was not stored", "claim", klog.KObj(claim), "uid", claim.UID)
			return
		case looked:
			interval *= 2
			nextLook = time.Now().Add(interval)
		}
	}
}

// wakeUp lets pods try again which wait for a node and may use devices, because devices are free
// although no object changed and no pod failed just now.
func (pl *DynamicResources) wakeUp(logger klog.Logger) {
	if !pl.claimReserver.wakingUp.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(wakeUpPause, func() {
		pl.claimReserver.wakingUp.Store(false)
		if pl.claimReserver.ctx.Err() != nil {
			return
		}
		pods, err := pl.fh.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
		if err != nil {
			// Cannot happen with a cache.
			logger.Error(err, "Listing pods which may wait for devices")
			return
		}
		waiting := make(map[string]*v1.Pod)
		for _, pod := range pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && mayUseDevices(pod) {
				waiting[string(pod.UID)] = pod
			}
		}
		pl.fh.Activate(logger, waiting)
	})
}

// lookAtClaim returns the claim if the API server says that it is allocated, nil if
// not. It does not look while as many other claims as possible are being looked at.
func (pl *DynamicResources) lookAtClaim(ctx context.Context, claim *resourceapi.ResourceClaim) (looked bool, stored *resourceapi.ResourceClaim, err error) {
	select {
	case pl.claimReserver.looks <- struct{}{}:
		defer func() { <-pl.claimReserver.looks }()
	default:
		return false, nil, nil
	}
	latest, err := pl.getClaim(ctx, claim)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil, nil
	case err != nil:
		return true, nil, err
	case latest.UID == claim.UID && latest.Status.Allocation != nil:
		return true, latest, nil
	default:
		return true, nil, nil
	}
}

// getClaim returns what the API server has.
func (pl *DynamicResources) getClaim(ctx context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	latest, _, err := callAPI(ctx, claimLookTimeout, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return pl.claimClient(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	})
	return latest, err
}

// apiCall is one call of a client. It knows what happens on the wire.
//
// A client holds requests back, because of its own limit or because the API server
// asked for that. With many pods that takes minutes, and each request is served
// in the end if nobody gives up. A time limit for all of that would be exceeded by most
// of the pods, again and again. Therefore the time only runs while the API server
// owes an answer.
type apiCall struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration

	mutex            sync.Mutex
	connecting, sent bool
	timer            *time.Timer
}

// callAPI invokes call and returns its result. The API server has the given time to answer each
// request. unsent is true if it is certain that no request reached an API server.
func callAPI[T any](ctx context.Context, timeout time.Duration, call func(ctx context.Context) (T, error)) (result T, unsent bool, err error) {
	c := &apiCall{timeout: timeout}
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	defer c.stopTimer()
	result, err = call(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { c.connect() },
		GotConn:              func(httptrace.GotConnInfo) { c.send() },
		GotFirstResponseByte: c.stopTimer,
	}))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return result, c.connecting && !c.sent, err
}

func (c *apiCall) connect() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.connecting = true
}

func (c *apiCall) send() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sent = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(c.timeout, func() {
		c.cancel(fmt.Errorf("no answer from the API server within %s", c.timeout))
	})
}

func (c *apiCall) stopTimer() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}
