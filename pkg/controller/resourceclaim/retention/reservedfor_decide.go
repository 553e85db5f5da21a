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

// Package retention decides whether an entry in the status.reservedFor of a ResourceClaim that
// is for something other than a pod is kept (KEP-5194). It does nothing else: the ResourceClaim
// controller gathers the facts that are asked for, and carries out what was decided. The
// table of states is in reservedfor_doc.go of that controller.
package retention

// Usage says whether some pod uses a claim, as far as it is known.
type Usage int

const (
	// UsageUnknown means that nobody looked yet.
	UsageUnknown Usage = iota
	// UsagePending means that someone is looking. The claim gets processed
	// again when the result is known.
	UsagePending
	// UsageFailed means that looking was not possible.
	UsageFailed
	// UsageNone means that no pod uses the claim.
	UsageNone
	// UsageFound means that some pod uses the claim.
	UsageFound
)

// Facts is what is known about one entry in status.reservedFor.
type Facts struct {
	// ClaimDeleted is true if the claim is being deleted. Then nothing can be
	// added to it anymore, and the object in the entry does not matter.
	ClaimDeleted bool

	// ReleaseWhenIdle is true if the user wants the claim to be released after
	// it was not used for some time.
	ReleaseWhenIdle bool
	// Idle is true if that time has passed.
	Idle bool

	// Several is true if the list has more than one entry for something other
	// than a pod. The state of each of them is needed then.
	Several bool
	// Covered is true if some other entry is for an object which needs or might
	// need the claim. The claim then remains reserved in any case.
	Covered bool
	// Superseded is true if some entry which was added later protects the pods
	// just as well.
	Superseded bool

	// Cached is the state of the object in the informer cache, empty if
	// it is not watched.
	Cached State
	// Stored is the state of the object in the API server, empty if
	// not retrieved yet.
	Stored State

	// CachedUsers is about pods in the informer cache.
	CachedUsers Usage
	// StoredUsers is about pods in the API server.
	StoredUsers Usage
}

// Decision is what to do about one entry in status.reservedFor.
type Decision string

// These decisions ask for one more fact.
const (
	// FindCachedUsers asks for Facts.CachedUsers.
	FindCachedUsers Decision = "find cached users"
	// FindStoredUsers asks for Facts.StoredUsers.
	FindStoredUsers Decision = "find stored users"
	// GetStored asks for Facts.Stored.
	GetStored Decision = "get stored state"
)

// These decisions are final. All but the last one keep the entry.
const (
	// KeepActive is for an object which might start more pods.
	KeepActive Decision = "active"
	// KeepInUse is for an object about which nothing needs to be known
	// because a pod uses the claim.
	KeepInUse Decision = "in use"
	// KeepForPods is for an object which does not need the claim anymore, in
	// contrast to some pod.
	KeepForPods Decision = "pods"
	// KeepForNewPod is the same for a pod which isn't in the informer cache yet.
	KeepForNewPod Decision = "new pod"
	// KeepUnchecked is for an object which cannot be checked.
	KeepUnchecked Decision = "unchecked"
	// KeepUntilChecked is for an object which gets checked later.
	KeepUntilChecked Decision = "checked later"
	// KeepUntilListed is for an object where it will be known later whether
	// some pod uses the claim.
	KeepUntilListed Decision = "listed later"
	// KeepAfterError is for an object where a fact could not be determined.
	KeepAfterError Decision = "error"
	// Release removes the entry.
	Release Decision = "release"
)

// Decide returns what to do about one entry. What is cheap to find out gets asked
// for first because this is done for each pod of a workload which ends.
func Decide(f Facts) Decision {
	if f.Cached == Active && !f.ClaimDeleted && !f.ReleaseWhenIdle {
		// What the informer cache says is sufficient for keeping the entry
		// because the controller will be told when that changes. The same
		// is true for pods.
		return KeepActive
	}
	if f.CachedUsers == UsageUnknown {
		return FindCachedUsers
	}
	if f.ClaimDeleted || f.Idle {
		return decideByUsers(f)
	}
	if f.Cached == Active {
		return KeepActive
	}
	if f.CachedUsers == UsageFound && !f.Several {
		if f.Cached == Done {
			return KeepForPods
		}
		// Looking up the object would be too early.
		return KeepInUse
	}
	if f.Stored == "" && f.StoredUsers == UsagePending {
		// Don't retrieve the object again and again in the meantime.
		return KeepUntilListed
	}

	switch f.Stored {
	case "":
		return GetStored
	case Active:
		return KeepActive
	case Forbidden, UnknownResource:
		if f.Superseded {
			return Release
		}
		return KeepUnchecked
	case Deferred:
		return KeepUntilChecked
	case Done:
		if f.Covered || f.Superseded {
			return Release
		}
		return decideByUsers(f)
	default:
		return KeepAfterError
	}
}

// decideByUsers is for an entry which is needed only for the pods.
func decideByUsers(f Facts) Decision {
	if f.CachedUsers == UsageFound {
		return KeepForPods
	}
	switch f.StoredUsers {
	case UsageUnknown:
		return FindStoredUsers
	case UsagePending:
		return KeepUntilListed
	case UsageFound:
		return KeepForNewPod
	case UsageNone:
		return Release
	default:
		return KeepAfterError
	}
}

// State says whether a workload might start more pods.
type State string

const (
	// Active is the state of a workload which might start more pods.
	// This includes one which is suspended or scaled down to zero.
	Active State = "active"

	// Done is the state of a workload which certainly will not start
	// more pods.
	Done State = "done"

	// Forbidden is used for a workload that the controller may not get.
	Forbidden State = "forbidden"

	// UnknownResource is used when there is no such resource.
	UnknownResource State = "unknown_resource"

	// Deferred is used when too many workloads get looked up at the
	// moment.
	Deferred State = "deferred"

	// Failed is used when looking up the workload failed for some other
	// reason.
	Failed State = "failed"
)
