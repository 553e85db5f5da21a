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
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

// reportsWithin is how long a driver may take to report on a device for the first time.
const reportsWithin = 30 * time.Second

var statusChecks = []check.Check{{
	ID:   "status",
	Asks: "Does status.devices have an entry for each device while a pod runs, with reasons and times, and none later?",
	Do:   "Apply status.devices of a claim as a whole, when its devices are ready. The API server limits each field: see docs/devicestatus.md.",
	Run: func(c *check.Case) {
		claim := c.NewClaim("claim")
		pod := c.Start("pod", check.Pod{}, claim)
		c.Runs(pod)
		start := time.Now()
		var devices []resourceapi.AllocatedDeviceStatus
		c.Within(2*reportsWithin, "the driver had time to report", func() error {
			if devices = c.Status(claim).Devices; len(devices) < len(c.Devices(claim)) && time.Since(start) < reportsWithin {
				return fmt.Errorf("status.devices has %d entries", len(devices))
			}
			return nil
		})
		if len(devices) == 0 {
			c.Skipf("the driver has not reported in status.devices after %s, which it need not do", reportsWithin)
		}
		c.Must(statusProblem(c.Devices(claim), devices))
		c.Stop(pod)
		c.Free(claim)
		c.Until("status.devices is empty again", func() error {
			if n := len(c.Status(claim).Devices); n > 0 {
				return fmt.Errorf("it has %d entries", n)
			}
			return nil
		})
	},
}}

// statusProblem is what a reader of the status would stumble over. The API server has seen to the rest.
func statusProblem(results []resourceapi.DeviceRequestAllocationResult, devices []resourceapi.AllocatedDeviceStatus) error {
	missing := sets.New[string]()
	for _, r := range results {
		missing.Insert(r.Pool + "/" + r.Device)
	}
	for _, d := range devices {
		name := d.Pool + "/" + d.Device
		missing.Delete(name)
		if len(d.Conditions) == 0 && d.Data == nil && d.NetworkData == nil {
			return check.Failf("the entry of device %s in status.devices says nothing", name)
		}
		for _, condition := range d.Conditions {
			if condition.LastTransitionTime.IsZero() || condition.Reason == "" {
				return check.Failf("condition %s of device %s has no reason, or no time of its transition", condition.Type, name)
			}
		}
		if n := d.NetworkData; n != nil && n.InterfaceName == "" && n.HardwareAddress == "" && len(n.IPs) == 0 {
			return check.Failf("networkData of device %s is empty", name)
		}
	}
	if missing.Len() > 0 {
		return check.Failf("status.devices has no entry for %q", sets.List(missing))
	}
	return nil
}
