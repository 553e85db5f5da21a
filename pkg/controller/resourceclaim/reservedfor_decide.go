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

// This file decides whether an entry in status.reservedFor other than a pod is
// kept. It does not do anything else: facts get gathered and decisions carried
// out by a workloadReview.

// usage says whether some pod uses a claim.
type usage int

const (
	// usageUnknown means that nobody looked yet.
	usageUnknown usage = iota
	// usagePending means that someone is looking. The claim gets processed
	// again when the result is known.
	usagePending
	// usageFailed means that looking was not possible.
	usageFailed
	// usageNone means that no pod uses the claim.
	usageNone
	// usageFound means that some pod uses the claim.
	usageFound
)

// entryFacts is what is known about one entry in status.reservedFor.
type entryFacts struct {
	// claimDeleted is true if the claim is being deleted. Then nothing can be
	// added to it anymore, and the object in the entry does not matter.
	claimDeleted bool

	// releaseWhenIdle is true if the user wants the claim to be released after
	// it was not used for some time.
	releaseWhenIdle bool
	// idle is true if that time has passed.
	idle bool

	// several is true if the list has more than one entry for something other
	// than a pod. The state of each of them is needed then.
	several bool
	// covered is true if some other entry is for an object which needs or might
	// need the claim. The claim then remains reserved in any case.
	covered bool
	// superseded is true if some entry which was added later protects the pods
	// just as well.
	superseded bool

	// cached is the state of the object in the informer cache, empty if
	// it is not watched.
	cached workloadState
	// stored is the state of the object in the API server, empty if
	// not retrieved yet.
	stored workloadState

	// cachedUsers is about pods in the informer cache.
	cachedUsers usage
	// storedUsers is about pods in the API server.
	storedUsers usage
}

// decision is what to do about one entry in status.reservedFor.
type decision string

// These decisions ask for one more fact.
const (
	// findCachedUsers asks for cachedUsers.
	findCachedUsers decision = "find cached users"
	// findStoredUsers asks for storedUsers.
	findStoredUsers decision = "find stored users"
	// getStored asks for the stored state.
	getStored decision = "get stored state"
)

// These decisions are final. All but the last one keep the entry.
const (
	// keepActive is for an object which might start more pods.
	keepActive decision = "active"
	// keepInUse is for an object about which nothing needs to be known
	// because a pod uses the claim.
	keepInUse decision = "in use"
	// keepForPods is for an object which does not need the claim anymore, in
	// contrast to some pod.
	keepForPods decision = "pods"
	// keepForNewPod is the same for a pod which isn't in the informer cache yet.
	keepForNewPod decision = "new pod"
	// keepUnchecked is for an object which cannot be checked.
	keepUnchecked decision = "unchecked"
	// keepUntilChecked is for an object which gets checked later.
	keepUntilChecked decision = "checked later"
	// keepUntilListed is for an object where it will be known later whether
	// some pod uses the claim.
	keepUntilListed decision = "listed later"
	// keepAfterError is for an object where a fact could not be determined.
	keepAfterError decision = "error"
	// release removes the entry.
	release decision = "release"
)

// decide returns what to do about one entry. What is cheap to find out gets asked
// for first because this is done for each pod of a workload which ends.
func decide(f entryFacts) decision {
	if f.cached == workloadActive && !f.claimDeleted && !f.releaseWhenIdle {
		// What the informer cache says is sufficient for keeping the entry
		// because the controller will be told when that changes. The same
		// is true for pods.
		return keepActive
	}
	if f.cachedUsers == usageUnknown {
		return findCachedUsers
	}
	if f.claimDeleted || f.idle {
		return decideByUsers(f)
	}
	if f.cached == workloadActive {
		return keepActive
	}
	if f.cachedUsers == usageFound && !f.several {
		if f.cached == workloadDone {
			return keepForPods
		}
		// Looking up the object would be too early.
		return keepInUse
	}
	if f.stored == "" && f.storedUsers == usagePending {
		// Don't retrieve the object again and again in the meantime.
		return keepUntilListed
	}

	switch f.stored {
	case "":
		return getStored
	case workloadActive:
		return keepActive
	case workloadForbidden, workloadUnknownResource:
		if f.superseded {
			return release
		}
		return keepUnchecked
	case workloadDeferred:
		return keepUntilChecked
	case workloadDone:
		if f.covered || f.superseded {
			return release
		}
		return decideByUsers(f)
	default:
		return keepAfterError
	}
}

// decideByUsers is for an entry which is needed only for the pods.
func decideByUsers(f entryFacts) decision {
	if f.cachedUsers == usageFound {
		return keepForPods
	}
	switch f.storedUsers {
	case usageUnknown:
		return findStoredUsers
	case usagePending:
		return keepUntilListed
	case usageFound:
		return keepForNewPod
	case usageNone:
		return release
	default:
		return keepAfterError
	}
}
