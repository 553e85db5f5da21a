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

package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/resource"
)

func TestKeepFormat(t *testing.T) {
	device := func(name, raw string) resource.AllocatedDeviceStatus {
		d := resource.AllocatedDeviceStatus{Driver: "driver", Pool: "pool", Device: name}
		setData(&d.Data, raw)
		return d
	}
	allocation := func(raw string) *resource.AllocationResult {
		return &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: make([]resource.DeviceRequestAllocationResult, 6), Config: []resource.DeviceAllocationConfiguration{{
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{Parameters: runtime.RawExtension{Raw: []byte(raw)}}},
		}}}}
	}
	stored := resource.ResourceClaimStatus{
		Allocation: allocation(`{"b": 1.0, "a": 2}`),
		Devices: []resource.AllocatedDeviceStatus{
			device("a", `{ "x": 1 }`), device("b", `{"y":1,"x":2}`), device("gone", `{}`),
			device("big", `{"x":12345678901234567890}`), device("twice", `{"x":1,"x":2}`),
		},
	}
	for name, tc := range map[string]struct {
		status, want resource.ResourceClaimStatus
		disabled     bool
		// forbidden is set if the user may not write any entry.
		forbidden bool
	}{
		"reformatted": {
			status: resource.ResourceClaimStatus{
				Allocation: allocation(`{"a":2,"b":1}`),
				Devices:    []resource.AllocatedDeviceStatus{device("b", `{"x":2,"y":1}`), device("a", `{"x":1}`), device("new", `{ "x": 1 }`)},
			},
			want: resource.ResourceClaimStatus{
				Allocation: allocation(`{"b": 1.0, "a": 2}`),
				Devices:    []resource.AllocatedDeviceStatus{device("b", `{"y":1,"x":2}`), device("a", `{ "x": 1 }`), device("new", `{ "x": 1 }`)},
			},
		},
		"changed": {
			status: resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":2}`), Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":2}`)}},
			want:   resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":2}`), Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":2}`)}},
		},
		"deallocated": {},
		"deallocated, devices still there": {
			status: resource.ResourceClaimStatus{Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":1}`)}},
			want:   resource.ResourceClaimStatus{Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":1}`)}},
		},
		"rounded, by a user who may write it": {
			status: resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567000}`), device("twice", `{"x":2}`)}},
			want:   resource.ResourceClaimStatus{Allocation: allocation(`{"b": 1.0, "a": 2}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567000}`), device("twice", `{"x":2}`)}},
		},
		"rounded, by a user who may not write it": {
			status:    resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567000}`), device("twice", `{"x":2}`)}},
			want:      resource.ResourceClaimStatus{Allocation: allocation(`{"b": 1.0, "a": 2}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567890}`), device("twice", `{"x":1,"x":2}`)}},
			forbidden: true,
		},
		"corrected, by a user who may not write it": {
			status:    resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567891}`), device("twice", `{"x":1}`)}},
			want:      resource.ResourceClaimStatus{Allocation: allocation(`{"b": 1.0, "a": 2}`), Devices: []resource.AllocatedDeviceStatus{device("big", `{"x":12345678901234567891}`), device("twice", `{"x":1}`)}},
			forbidden: true,
		},
		"rounded allocation": {
			status: resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`), Devices: []resource.AllocatedDeviceStatus{}},
			want:   resource.ResourceClaimStatus{Allocation: allocation(`{"b": 1.0, "a": 2}`), Devices: []resource.AllocatedDeviceStatus{}},
		},
		"more devices than allocated": {
			status: resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`), Devices: slices.Repeat([]resource.AllocatedDeviceStatus{device("a", `{"x":1}`)}, 7)},
			want:   resource.ResourceClaimStatus{Allocation: allocation(`{"b": 1.0, "a": 2}`), Devices: slices.Repeat([]resource.AllocatedDeviceStatus{device("a", `{"x":1}`)}, 7)},
		},
		"disabled": {
			status:   resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`)},
			want:     resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`)},
			disabled: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			enableDeviceStatus(t, !tc.disabled)
			oldStatus, status := stored.DeepCopy(), tc.status.DeepCopy()
			KeepFormat(status, oldStatus, func([]resource.AllocatedDeviceStatus) bool { return !tc.forbidden })
			if diff := cmp.Diff(&tc.want, status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// What is done to one must not change the other.
			for i := range status.Devices {
				status.Devices[i].Data.Raw[0] = 'x'
			}
			if status.Allocation != nil {
				status.Allocation.Devices.Config[0].Opaque.Parameters.Raw[0] = 'x'
			}
			if diff := cmp.Diff(&stored, oldStatus); diff != "" {
				t.Errorf("what is stored has changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKeepFormatAsks checks what the user is asked to be allowed, and how often: nothing but who may write
// the entries of which it is not clear, once for each driver.
func TestKeepFormatAsks(t *testing.T) {
	enableDeviceStatus(t, true)
	device := func(driver, name, raw string) resource.AllocatedDeviceStatus {
		d := resource.AllocatedDeviceStatus{Driver: driver, Pool: "pool", Device: name}
		setData(&d.Data, raw)
		return d
	}
	const big, rounded = `{"x":12345678901234567890}`, `{"x":12345678901234567000}`
	oldStatus := &resource.ResourceClaimStatus{Allocation: allocationOf(5), Devices: []resource.AllocatedDeviceStatus{
		device("one", "a", big), device("one", "b", big), device("other", "a", big), device("other", "b", `{"y":1.0}`),
	}}
	status := &resource.ResourceClaimStatus{Allocation: allocationOf(5), Devices: []resource.AllocatedDeviceStatus{
		device("other", "b", `{"y":1}`), device("other", "a", rounded), device("one", "b", rounded), device("one", "a", rounded), device("new", "a", big),
	}}
	asked := map[string]int{}
	KeepFormat(status, oldStatus, func(devices []resource.AllocatedDeviceStatus) bool {
		changed := map[string]int{}
		for i := range devices {
			if devices[i].Driver != oldStatus.Devices[i].Driver || devices[i].Device != oldStatus.Devices[i].Device {
				t.Errorf("want the place of %s/%s, got %s/%s", oldStatus.Devices[i].Driver, oldStatus.Devices[i].Device, devices[i].Driver, devices[i].Device)
			}
			if string(devices[i].Data.Raw) != string(oldStatus.Devices[i].Data.Raw) {
				changed[devices[i].Driver]++
			}
		}
		if len(changed) != 1 {
			t.Errorf("want one driver, got %v", changed)
		}
		for driver, n := range changed {
			asked[fmt.Sprintf("%s, %d", driver, n)]++
		}
		return changed["one"] > 0
	})
	if diff := cmp.Diff(map[string]int{"one, 2": 1, "other, 1": 1}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	var got []string
	for _, d := range status.Devices {
		got = append(got, string(d.Data.Raw))
	}
	if diff := cmp.Diff([]string{`{"y":1.0}`, big, rounded, rounded, big}, got); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

// allocationOf has that many devices.
func allocationOf(results int) *resource.AllocationResult {
	return &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: make([]resource.DeviceRequestAllocationResult, results)}}
}

// TestKeepFormatCost checks that an update, which nobody has checked yet, cannot make it
// expensive: the number of entries, and what is in them, must not matter.
func TestKeepFormatCost(t *testing.T) {
	enableDeviceStatus(t, true)
	// What the server must format to see what it is.
	data := func(format string, n int) string { return `{"a":[` + strings.Repeat(format+",", n) + "0]}" }
	const values = 600
	stored := data(`"12345678901"`, values)
	same := strings.ReplaceAll(stored, ",", ", ")
	devices := func(n, names int, raw string) (entries []resource.AllocatedDeviceStatus) {
		device := resource.AllocatedDeviceStatus{Driver: "driver", Pool: "pool"}
		setData(&device.Data, raw)
		for i := range n {
			device.Device = fmt.Sprintf("device-%d", i%names)
			entries = append(entries, device)
		}
		return entries
	}
	// cost is the number of allocations, which is about that of values that were decoded.
	cost := func(entries []resource.AllocatedDeviceStatus, storedDevices int, raw string) float64 {
		oldStatus := &resource.ResourceClaimStatus{Allocation: allocationOf(storedDevices), Devices: devices(storedDevices, storedDevices, raw)}
		status := &resource.ResourceClaimStatus{Allocation: allocationOf(storedDevices)}
		return testing.AllocsPerRun(3, func() {
			status.Devices = slices.Clone(entries)
			KeepFormat(status, oldStatus, func([]resource.AllocatedDeviceStatus) bool { return false })
		})
	}
	twice := data(`{"a":1,"a":2}`, values)
	for name, tc := range map[string]struct {
		stored string
		sent   string
	}{
		"same":             {stored, same},
		"other":            {stored, data(`"12345678902"`, values)},
		"other, inexact":   {data("1e3", values), data("1e4", values)},
		"larger":           {stored, data(`"12345678901"`, 100*values)},
		"larger objects":   {stored, data(`{"a":{"b":1}}`, 20*values)},
		"smaller":          {stored, `{}`},
		"twice":            {twice, data(`{"a":1,"a":3}`, values)},
		"twice, larger":    {twice, data(`{"a":1,"a":3}`, 100*values)},
		"twice, formatted": {twice, data(`{"a":2}`, values)},
		"not JSON":         {stored, strings.Repeat("[", 1000*values)},
		"large text":       {stored, `{"a":"` + strings.Repeat(`\n`, 1000*values) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			one := cost(devices(1, 1, tc.sent), 1, tc.stored)
			// Nothing that is sent may cost more than to decode and encode what is stored, a few times.
			if limit := 12.0 * values * 3; one > limit {
				t.Errorf("one device: %v allocations, want no more than %v", one, limit)
			}
			if got := cost(devices(5000, 1, tc.sent), 1, tc.stored); got > one {
				t.Errorf("5000 entries for one device: %v allocations, want no more than %v", got, one)
			}
			limit := 33 * (one + 20)
			if got := cost(devices(32, 32, tc.sent), 32, tc.stored); got > limit {
				t.Errorf("32 devices: %v allocations, want no more than %v", got, limit)
			}
			limit = one + 32*20
			if got := cost(devices(32, 1, tc.sent), 32, tc.stored); got > limit {
				t.Errorf("32 entries for one of 32 devices: %v allocations, want no more than %v", got, limit)
			}
		})
	}
}
