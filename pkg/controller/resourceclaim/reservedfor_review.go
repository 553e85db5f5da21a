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

package resourceclaim

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
)

// purposeRelease is the purpose of looking for pods before removing a
// reservation.
const purposeRelease = "release"

// maxLookupsPerReview limits how many objects get retrieved for one claim before
// others get their turn. Usually it's just one.
const maxLookupsPerReview = 10

// workloadReview determines which of the entries in status.reservedFor for
// something other than a pod are kept. It covers all of them because
// they depend on each other.
type workloadReview struct {
	ec      *Controller
	claim   *resourceapi.ResourceClaim
	entries []*reviewedEntry

	// The following facts are about the claim and thus shared by all entries.

	// idle is what is known about how long the claim was not used.
	idle idleness
	// cachedUser and storedUser use the claim.
	cachedUsers, storedUsers retention.Usage
	cachedUser, storedUser   *v1.Pod
	// lookups contains what was retrieved for this review.
	lookups map[workloadKey]*lookupResult

	// asked is true while it matters which pods use the claim according to the API server.
	asked bool

	errs []error
}

// reviewedEntry is one entry in status.reservedFor.
type reviewedEntry struct {
	workloadRef
	facts retention.Facts
	// cached and stored correspond to the facts with the same name.
	cached, stored workloadStatus
	keep           bool
}

// reviewWorkloads checks all entries in status.reservedFor for something other
// than a pod, unless they are managed by someone else. It gets called often
// (for each pod of the workload which ends).
func (ec *Controller) reviewWorkloads(ctx context.Context, claim *resourceapi.ResourceClaim) *workloadReview {
	r := &workloadReview{ec: ec, claim: claim}
	if err := ec.endGenerated(ctx, claim); err != nil {
		r.errs = append(r.errs, err)
	}
	if !ec.checksWorkloads(claim) {
		return r
	}
	if len(claim.Status.ReservedFor) > 0 {
		ec.workloads.reserved(claim)
	}
	for _, ref := range claim.Status.ReservedFor {
		if !resourceclaim.IsPodReference(ref) {
			r.entries = append(r.entries, &reviewedEntry{workloadRef: workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: ref}})
		}
	}
	if len(r.entries) == 0 {
		return r
	}

	r.lookups = make(map[workloadKey]*lookupResult)
	r.idle = ec.checkAnnotation(claim)
	if pending, wait := ec.workloads.users.isPending(claimName(claim), purposeRelease); pending {
		r.storedUsers = retention.UsagePending
		if wait > 0 {
			ec.recheckClaim(claim, wait)
		}
	}
	for _, entry := range r.entries {
		r.initFacts(entry)
	}
	if len(r.entries) > 1 && claim.DeletionTimestamp == nil {
		r.compare(ctx)
	}
	for _, entry := range r.entries {
		r.review(ctx, entry)
	}
	if !r.asked {
		// Whoever needs to know later must not get an answer from before.
		ec.workloads.users.cancel(claimName(claim))
	}
	return r
}

// checked returns true if the reference was checked. Then it is added to the given ones if
// it is kept.
func (r *workloadReview) checked(ref resourceapi.ResourceClaimConsumerReference, kept *[]resourceapi.ResourceClaimConsumerReference) bool {
	for _, entry := range r.entries {
		if entry.ResourceClaimConsumerReference != ref {
			continue
		}
		if entry.keep {
			*kept = append(*kept, ref)
		}
		return true
	}
	return false
}

// err returns what went wrong. It does not affect any other entry.
func (r *workloadReview) err() error {
	return errors.Join(r.errs...)
}

func (r *workloadReview) initFacts(entry *reviewedEntry) {
	entry.facts = retention.Facts{
		ClaimDeleted:    r.claim.DeletionTimestamp != nil,
		ReleaseWhenIdle: r.idle.wanted > 0,
		Several:         len(r.entries) > 1,
	}
	cached, err := r.ec.workloads.fromInformer(entry.workloadRef)
	switch {
	case err != nil:
		r.errs = append(r.errs, fmt.Errorf("get %s from cache: %w", entry.workloadRef, err))
	case cached != nil:
		entry.cached = *cached
		entry.facts.Cached = cached.state
	}
}

// compare finds out about all entries and then determines which of them
// are not needed because of some other one. This prevents entries of dead
// workloads from filling the list while it never becomes unused.
func (r *workloadReview) compare(ctx context.Context) {
	for _, entry := range r.entries {
		if entry.facts.Cached != retention.Active {
			r.getStored(ctx, entry)
		}
	}

	// Starting with the one that was added last.
	dead := false
	unchecked := make(map[workloadKey]bool)
	for i := len(r.entries) - 1; i >= 0; i-- {
		entry := r.entries[i]
		switch {
		case entry.facts.Cached == retention.Active, entry.facts.Stored == retention.Active:
			r.cover(entry)
		case entry.facts.Stored == retention.Forbidden, entry.facts.Stored == retention.UnknownResource:
			// There can be only one object with that name.
			entry.facts.Superseded = unchecked[entry.key()]
			unchecked[entry.key()] = true
			if !entry.facts.Superseded {
				r.cover(entry)
			}
		case entry.facts.Stored == retention.Done:
			entry.facts.Superseded = dead
			dead = true
		}
	}
}

// cover gets called for an entry which is kept.
func (r *workloadReview) cover(by *reviewedEntry) {
	for _, entry := range r.entries {
		if entry != by {
			entry.facts.Covered = true
		}
	}
}

// review gathers facts until they are sufficient for a decision.
func (r *workloadReview) review(ctx context.Context, entry *reviewedEntry) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "workload", entry.workloadRef)
	ctx = klog.NewContext(ctx, logger)
	for {
		entry.facts.CachedUsers, entry.facts.StoredUsers, entry.facts.Idle = r.cachedUsers, r.storedUsers, r.idle.expired
		decision := retention.Decide(entry.facts)
		switch decision {
		case retention.FindCachedUsers:
			r.findCachedUsers()
		case retention.FindStoredUsers:
			r.findStoredUsers(ctx)
		case retention.GetStored:
			r.getStored(ctx, entry)
		default:
			entry.keep = decision != retention.Release
			logger.V(5).Info("Checked reservation", "decision", decision, "facts", entry.facts)
			r.act(ctx, entry, decision)
			return
		}
	}
}

func (r *workloadReview) findCachedUsers() {
	w := r.ec.workloads
	pod, err := r.ec.findUserInCache(r.claim)
	switch {
	case err != nil:
		// Cannot happen because that index exists. Better safe than sorry.
		r.errs = append(r.errs, err)
		r.cachedUsers, r.storedUsers = retention.UsageNone, retention.UsageFailed
	case pod != nil:
		r.cachedUsers, r.cachedUser = retention.UsageFound, pod
		r.storedUsers = retention.UsageUnknown
		w.users.cancel(claimName(r.claim))
		w.setUsed(r.claim)
	default:
		r.cachedUsers = retention.UsageNone
		r.ec.checkIdle(r.claim, &r.idle)
	}
}

func (r *workloadReview) findStoredUsers(ctx context.Context) {
	pod, found, err := r.ec.findStoredUser(ctx, r.claim, purposeRelease)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	r.storedUsers, r.storedUser = found, pod
}

// getStored determines the status of one incarnation, with at most one request
// for each object.
func (r *workloadReview) getStored(ctx context.Context, entry *reviewedEntry) {
	if entry.facts.Stored != "" {
		return
	}
	w := r.ec.workloads
	maxAge := w.lookupInterval
	if len(r.entries) > 1 {
		// This is also done while pods use the claim.
		maxAge = w.pollInterval
	}
	entry.stored = workloadStatus{state: retention.Failed}
	if result := r.lookups[entry.key()]; result != nil {
		entry.stored = result.statusOf(entry.UID)
	} else if status := w.recentStatus(entry.workloadRef, maxAge); status != nil {
		entry.stored = *status
	} else if len(r.lookups) >= maxLookupsPerReview {
		entry.stored = workloadStatus{state: retention.Deferred, checkAfter: w.lookupInterval}
	} else {
		result, err := r.ec.lookUpWorkload(ctx, entry.workloadRef)
		if err != nil {
			r.errs = append(r.errs, err)
		}
		r.lookups[entry.key()] = result
		entry.stored = result.statusOf(entry.UID)
	}
	entry.facts.Stored = entry.stored.state
}

// act carries out a decision, except for removing the entry. If it is kept, then
// it ensures that there will be a next check.
func (r *workloadReview) act(ctx context.Context, entry *reviewedEntry, decision retention.Decision) {
	ec := r.ec
	w := ec.workloads
	logger := klog.FromContext(ctx)
	switch decision {
	case retention.KeepForPods:
		ec.noticePodsUseClaim(ctx, r.claim, entry.workloadRef, r.explanation(entry), r.cachedUser)
		return
	case retention.KeepForNewPod:
		// The cache will catch up and then there will be an event for the end
		// of the pod.
		ec.noticePodsUseClaim(ctx, r.claim, entry.workloadRef, r.explanation(entry), r.storedUser)
		ec.recheckClaim(r.claim, w.pollInterval)
		return
	case retention.KeepUnchecked:
		ec.noticeWorkloadUnknown(ctx, r.claim, entry.workloadRef, entry.stored)
		ec.recheckClaim(r.claim, entry.stored.checkAfter)
		return
	case retention.KeepUntilChecked:
		ec.recheckClaim(r.claim, entry.stored.checkAfter)
		return
	case retention.KeepUntilListed:
		r.asked = true
		return
	case retention.KeepAfterError:
		// Besides the usual retry with exponential backoff, which may take
		// long.
		ec.recheckClaim(r.claim, w.retryInterval)
		return
	case retention.KeepActive:
		if entry.facts.Cached != retention.Active {
			ec.recheckClaim(r.claim, entry.stored.checkAfter)
		}
	case retention.Release:
		reason, explanation := r.reasonForRelease(entry)
		logger.V(2).Info("Removing reservation", "explanation", "workload "+explanation)
		if entry.stored.state == retention.Done && !entry.stored.mayResume {
			w.done.Add(entry.namespace, entry.workloadRef, true, doneInterval)
		}
		resourceclaimmetrics.WorkloadReservationsRemoved.WithLabelValues(reason).Inc()
		if reason == "idle" {
			ec.event(r.claim, v1.EventTypeNormal, reasonIdle, fmt.Sprintf("reservation for %s gets removed because %s", entry.workloadRef, explanation))
		}
	}
	ec.clearNotice(r.claim, entry.workloadRef)
}

// explanation completes a sentence which starts with the name of the object.
func (r *workloadReview) explanation(entry *reviewedEntry) string {
	switch {
	case entry.stored.state == retention.Done:
		return entry.stored.explanation
	case entry.cached.state == retention.Done:
		return entry.cached.explanation
	case entry.facts.ClaimDeleted:
		return "does not matter anymore because the claim is being deleted"
	default:
		return "does not need it at the moment"
	}
}

// reasonForRelease returns a label for metrics and an explanation like above.
func (r *workloadReview) reasonForRelease(entry *reviewedEntry) (string, string) {
	switch {
	case entry.facts.Superseded || entry.facts.Covered:
		return "covered", "is not needed because the claim is also reserved for a newer or living one"
	case entry.facts.ClaimDeleted:
		return "claim_deleted", "does not matter because the claim is being deleted and no pod uses it"
	case entry.facts.Stored == retention.Done:
		return "done", r.explanation(entry) + " and no pod uses the claim"
	default:
		return "idle", fmt.Sprintf("no pod has used the claim for %s", r.idle.wanted)
	}
}
