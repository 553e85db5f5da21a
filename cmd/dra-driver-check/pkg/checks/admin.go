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

package checks

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var adminChecks = []check.Check{{
	ID:    "admin",
	Asks:  "Does a monitor with admin access get the devices of a pod that runs, and does that pod keep them?",
	Do:    "Prepare a claim with adminAccess beside the one that has the device: two claims have it. Unprepare only what belongs to a claim.",
	Needs: []check.Need{needsAdminAccess},
	Run: func(c *check.Case) {
		claim := c.NewClaim("claim")
		pod := c.Start("pod", check.Pod{}, claim)
		before := c.Runs(pod)
		monitor := c.NewClaimWith("monitor", monitorRequest(c), nil)
		// How a monitor sees a device is up to the driver.
		watcher := c.Start("monitor", check.Pod{Blind: true}, monitor)
		c.Runs(watcher)
		c.Note("the monitor got %d devices", len(c.Devices(monitor)))
		c.Stop(watcher)
		c.Free(monitor)
		c.Must(unchanged(before, c.Runs(pod)))
		c.Stop(pod)
		c.Free(claim)
	},
}}

// monitorRequest is for all devices of the node, or for as many as a claim can have.
func monitorRequest(c *check.Case) check.Fields {
	n := 0
	for _, slice := range localSlices(c) {
		n += len(slice.Spec.Devices)
	}
	if n <= resourceapi.AllocationResultsMaxSize {
		return check.Fields{"adminAccess": true, "allocationMode": "All"}
	}
	return check.Fields{"adminAccess": true, "allocationMode": "ExactCount", "count": int64(resourceapi.AllocationResultsMaxSize)}
}

func needsAdminAccess(c *check.Case) string {
	if c.Keeps("adminAccess", monitorRequest(c), nil) {
		return ""
	}
	return "the cluster has no adminAccess (gate DRAAdminAccess)"
}

// unchanged checks that a pod has the containers that it had.
func unchanged(before, now *corev1.Pod) error {
	ids := func(pod *corev1.Pod) (all []string) {
		for _, status := range pod.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s (%d restarts)", status.ContainerID, status.RestartCount))
		}
		return all
	}
	if now.UID != before.UID || !slices.Equal(ids(now), ids(before)) {
		return check.Failf("pod %s was to keep running; its containers were %v and are %v", before.Name, ids(before), ids(now))
	}
	return nil
}
