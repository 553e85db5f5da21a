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
	"errors"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var forceChecks = []check.Check{{
	ID:   "force-delete",
	Asks: "Does the next pod start with the same claim after one was deleted by force while it started? Calls overlap then.",
	Do:   "Let prepare and unprepare of a claim wait for each other, and let both succeed if there is nothing to do.",
	Run: func(c *check.Case) {
		for _, m := range moments {
			claim := c.NewClaim(m.name)
			pod := c.Start(m.name, check.Pod{}, claim)
			c.Pod(pod, "is "+m.name, func(pod *corev1.Pod) error {
				if !m.is(pod) {
					return errors.New("not yet")
				}
				return nil
			})
			had := c.Devices(claim)[0]
			c.Delete(pod, true)
			// The UID of the claim is the same, so the kubelet may not even have unprepared it.
			next := c.Start(m.name+"-next", check.Pod{}, claim)
			c.Runs(next)
			has := c.Devices(claim)[0]
			c.Note("%s: the pod had %s/%s, the next one %s/%s", m.name, had.Pool, had.Device, has.Pool, has.Device)
			c.Stop(next)
			c.Free(claim)
			runOnce(c, m.name+"-other", check.Pod{})
		}
	},
}}

// moments are those at which a pod is deleted by force.
var moments = []struct {
	name string
	is   func(pod *corev1.Pod) bool
}{
	{"bound", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }},
	{"seen", func(pod *corev1.Pod) bool { return len(pod.Status.ContainerStatuses) > 0 }},
	{"running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }},
}
