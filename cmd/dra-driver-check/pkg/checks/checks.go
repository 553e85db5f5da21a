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

// Package checks is the list: one file for each group.
package checks

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

// All are the checks, in the order in which they run: what others depend on first, what disturbs
// the driver last.
func All() []check.Check {
	return slices.Concat(sliceChecks, accessChecks, podChecks, sharedChecks, consumerChecks, statusChecks, adminChecks, taintChecks, forceChecks, restartChecks)
}

// needsReservedFor is for claims that are reserved for a workload.
func needsReservedFor(c *check.Case) string {
	if c.Keeps("reservedFor", nil, c.Job("question")) {
		return ""
	}
	return "the cluster has no spec.reservedFor of ResourceClaims (KEP-5194, gate DRAReservedForWorkloads)"
}

// needsSharing is for devices that several pods use at once.
func needsSharing(c *check.Case) string {
	if c.Exclusive {
		return "only one pod at a time can use a device (--exclusive)"
	}
	return ""
}

// needsExclusive is for all others.
func needsExclusive(c *check.Case) string {
	if c.Exclusive {
		return ""
	}
	return "several pods can use a device (no --exclusive)"
}

// needsDevices is for checks that take so many devices of a node at once.
func needsDevices(n int) check.Need {
	return func(c *check.Case) string {
		free, reason := freeDevices(c)
		if reason == "" && free < n {
			reason = fmt.Sprintf("it takes %d devices on node %s, and %d are free", n, c.Node(), free)
		}
		return reason
	}
}

// freeDevices are how many of the node nobody has, or a reason why they cannot be counted.
func freeDevices(c *check.Case) (int, string) {
	type device struct{ pool, name string }
	free := map[device]bool{}
	for _, slice := range c.Slices() {
		if len(slice.Spec.SharedCounters) > 0 {
			return 0, "the devices are parts of others: nobody knows how many fit at once"
		}
		if slice.Spec.NodeName != nil && *slice.Spec.NodeName != c.Node() {
			continue
		}
		for _, d := range slice.Spec.Devices {
			free[device{slice.Spec.Pool.Name, d.Name}] = true
		}
	}
	for _, claim := range c.Claims("") {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == c.Driver {
				delete(free, device{r.Pool, r.Device})
			}
		}
	}
	return len(free), ""
}

// onNode returns true for a slice of the node alone.
func onNode(slice resourceapi.ResourceSlice, node string) bool {
	return slice.Spec.NodeName != nil && *slice.Spec.NodeName == node
}
