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

package internalversion

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cliprinters "k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/printers"
)

// decodeClaim reads a claim of the API version that all releases have.
func decodeClaim(t *testing.T, manifest string) *resource.ResourceClaim {
	t.Helper()
	manifest = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\n" + manifest
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(resource.SchemeGroupVersion), []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*resource.ResourceClaim)
}

// printClaims returns what kubectl prints for the table of the API server.
func printClaims(t *testing.T, wide bool, claims ...*resource.ResourceClaim) string {
	t.Helper()
	list := &resource.ResourceClaimList{}
	for _, claim := range claims {
		list.Items = append(list.Items, *claim)
	}
	table, err := printers.NewTableGenerator().With(AddHandlers).GenerateTable(list, printers.GenerateOptions{Wide: true})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := cliprinters.NewTablePrinter(cliprinters.PrintOptions{Wide: wide}).PrintObj(table, &out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(out.String(), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return "\n" + strings.Join(lines, "\n")
}

const (
	pendingClaim = `
metadata:
  name: pending
spec:
  devices:
    requests:
    - name: gpu
      deviceClassName: gpu.example.com
      allocationMode: ExactCount
      count: 2
`
	monitorClaim = `
metadata:
  name: monitor
spec:
  devices:
    requests:
    - name: accelerators
      deviceClassName: accelerator
      allocationMode: All
      adminAccess: true
    - name: others
      deviceClassName: other
      allocationMode: ExactCount
      count: 1
    - name: more
      deviceClassName: more
      allocationMode: ExactCount
      count: 1
status:
  allocation:
    devices:
      results:
      - {request: accelerators, driver: dra.example.com, pool: node, device: a-0, adminAccess: true}
      - {request: accelerators, driver: dra.example.com, pool: node, device: a-1, adminAccess: true}
      - {request: others, driver: dra.example.com, pool: node, device: b-0}
      - {request: more, driver: dra.example.com, pool: node, device: c-0}
  reservedFor:
  - {resource: pods, name: monitor-x7k2p, uid: "1"}
  - {resource: pods, name: monitor-8qqrt, uid: "2"}
  - {resource: pods, name: monitor-zzv9c, uid: "3"}
`
	networkClaim = `
metadata:
  name: nics
spec:
  devices:
    requests:
    - name: nics
      deviceClassName: macvlan
      allocationMode: ExactCount
      count: 2
status:
  allocation:
    devices:
      results:
      - {request: nics, driver: net.example.com, pool: worker-1, device: eth1-0}
      - {request: nics, driver: net.example.com, pool: worker-1, device: eth1-1}
  reservedFor:
  - {apiGroup: batch, resource: jobs, name: training, uid: "1"}
  devices:
  - driver: net.example.com
    pool: worker-1
    device: eth1-0
    conditions:
    - {type: Ready, status: "True"}
    - {type: LinkUp, status: "True"}
    networkData:
      interfaceName: net1
      ips: ["10.20.0.17/24", "10.20.0.18/24", "fd00:10:20::11/64"]
      hardwareAddress: 0a:58:0a:14:00:11
  - driver: net.example.com
    pool: worker-1
    device: eth1-1
    conditions:
    - {type: Ready, status: "False"}
    - {type: LinkUp, status: "True"}
    networkData:
      ips: ["10.20.0.19/24"]
`
)

func TestPrintResourceClaimWide(t *testing.T) {
	claims := []*resource.ResourceClaim{decodeClaim(t, pendingClaim), decodeClaim(t, monitorClaim), decodeClaim(t, networkClaim)}
	want := `
NAME      STATE                AGE         REQUESTS                                     DEVICES                                                                       CONDITIONS                                    NETWORK                                                                        RESERVED FOR
pending   pending              <unknown>   gpu.example.com:2                            <none>                                                                        <none>                                        <none>                                                                         <none>
monitor   allocated,reserved   <unknown>   accelerator:All(admin),other:1 + 1 more...   dra.example.com/node/a-0(admin),dra.example.com/node/a-1(admin) + 2 more...   <none>                                        <none>                                                                         pods/monitor-x7k2p,pods/monitor-8qqrt + 1 more...
nics      allocated,reserved   <unknown>   macvlan:2                                    net.example.com/worker-1/eth1-0,net.example.com/worker-1/eth1-1               LinkUp=True(2),Ready=False(1),Ready=True(1)   net1=10.20.0.17/24,10.20.0.18/24,...,0a:58:0a:14:00:11; eth1-1=10.20.0.19/24   jobs.batch/training
`
	if diff := cmp.Diff(want, printClaims(t, true, claims...)); diff != "" {
		t.Errorf("-o wide (-want +got):\n%s", diff)
	}
	want = `
NAME      STATE                AGE
pending   pending              <unknown>
monitor   allocated,reserved   <unknown>
nics      allocated,reserved   <unknown>
`
	if diff := cmp.Diff(want, printClaims(t, false, claims...)); diff != "" {
		t.Errorf("without -o wide (-want +got):\n%s", diff)
	}
}

// TestPrintResourceClaimNotWide checks that there are as many cells as columns.
func TestPrintResourceClaimNotWide(t *testing.T) {
	table, err := printers.NewTableGenerator().With(AddHandlers).GenerateTable(decodeClaim(t, networkClaim), printers.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.ColumnDefinitions) != 3 || len(table.Rows[0].Cells) != 3 {
		t.Errorf("%d columns, cells %q", len(table.ColumnDefinitions), table.Rows[0].Cells)
	}
}

// TestPrintResourceClaimCells has what the claims above do not, and checks that printing
// does not change anything.
func TestPrintResourceClaimCells(t *testing.T) {
	no := false
	claim := &resource.ResourceClaim{}
	claim.Status.Allocation = &resource.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resource.DeviceRequestAllocationResult{{Driver: "driver", Pool: "pool", Device: "device", AdminAccess: &no}}
	claim.Status.Devices = []resource.AllocatedDeviceStatus{{
		Device:      "device",
		Conditions:  []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}},
		NetworkData: &resource.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.1/24", "10.0.0.2/24"}},
	}}
	three := claim.DeepCopy()
	three.Status.Devices[0].NetworkData.IPs = append(three.Status.Devices[0].NetworkData.IPs, "10.0.0.3/24")
	nameOnly := claim.DeepCopy()
	nameOnly.Status.Devices[0].NetworkData = &resource.NetworkDeviceData{InterfaceName: "net1"}
	without := claim.DeepCopy()
	without.Status.Devices[0].NetworkData = nil
	hostile := claim.DeepCopy()
	hostile.Status.Devices[0].NetworkData = &resource.NetworkDeviceData{InterfaceName: "net1\u202e\x1b[2J\n", HardwareAddress: "\u2066aa"}
	for _, tc := range []struct {
		claim   *resource.ResourceClaim
		network string
	}{
		{hostile, "net1\ufffd\ufffd[2J\ufffd=\ufffdaa"},
		{without, "<none>"},
		{claim, "net1=10.0.0.1/24,10.0.0.2/24"},
		{three, "net1=10.0.0.1/24,10.0.0.2/24,..."},
		{nameOnly, "net1"},
	} {
		before := tc.claim.DeepCopy()
		want := []interface{}{"<none>", "driver/pool/device", "Ready=True", tc.network, "<none>"}
		if diff := cmp.Diff(want, resourceClaimWideCells(tc.claim)); diff != "" {
			t.Errorf("cells (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, tc.claim); diff != "" {
			t.Errorf("the claim was changed (-before +after):\n%s", diff)
		}
	}
	if got, want := claimRequestDetails("class", "", 2, &no), "class:2"; got != want {
		t.Errorf("request without mode: %q, want %q", got, want)
	}
}

// TestPrintResourceClaimWorkload checks what is shown of spec.reservedFor, if the
// feature "reservedfor" is in the tree.
func TestPrintResourceClaimWorkload(t *testing.T) {
	claim := decodeClaim(t, `
metadata:
  name: training
spec:
  reservedFor: {apiGroup: batch, resource: jobs, name: training}
`)
	want := "<none>"
	if _, ok := reflect.TypeFor[resource.ResourceClaimSpec]().FieldByName("ReservedFor"); ok {
		want = "(jobs.batch/training)"
	}
	if got := claimReservedForCell(claim); got != want {
		t.Errorf("not reserved yet: %q, want %q", got, want)
	}
	claim.Status.ReservedFor = []resource.ResourceClaimConsumerReference{{APIGroup: "batch", Resource: "jobs", Name: "training", UID: "1"}}
	if got, want := claimReservedForCell(claim), "jobs.batch/training"; got != want {
		t.Errorf("reserved: %q, want %q", got, want)
	}
}

// TestPrintResourceClaimOdd prints what validation does not permit, or only just.
func TestPrintResourceClaimOdd(t *testing.T) {
	empty := &resource.ResourceClaim{}
	empty.Spec.Devices.Requests = make([]resource.DeviceRequest, 1)
	empty.Status.Allocation = &resource.AllocationResult{}
	empty.Status.Allocation.Devices.Results = make([]resource.DeviceRequestAllocationResult, 1)
	empty.Status.Devices = make([]resource.AllocatedDeviceStatus, 1)
	empty.Status.Devices[0].NetworkData = &resource.NetworkDeviceData{}
	empty.Status.Devices[0].Conditions = make([]metav1.Condition, 1)
	empty.Status.ReservedFor = make([]resource.ResourceClaimConsumerReference, 1)

	largest := &resource.ResourceClaim{}
	for i := range 32 {
		status := resource.AllocatedDeviceStatus{Device: fmt.Sprintf("device-%d", i), NetworkData: &resource.NetworkDeviceData{InterfaceName: fmt.Sprintf("net%d", i)}}
		for j := range 16 {
			status.NetworkData.IPs = append(status.NetworkData.IPs, fmt.Sprintf("10.0.%d.%d/16", i, j))
		}
		for j := range 8 {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: fmt.Sprintf("Type%d-%d", i, j), Status: metav1.ConditionTrue})
		}
		largest.Status.Devices = append(largest.Status.Devices, status)
	}
	got := printClaims(t, true, empty, largest)
	for _, want := range []string{
		" net0=10.0.0.0/16,10.0.0.1/16,...; net1=10.0.1.0/16,10.0.1.1/16,... + 30 more... ",
		" Type0-0=True(1),Type0-1=True(1),Type0-2=True(1),Type0-3=True(1),Type0-4=True(1),Type0-5=True(1),Type0-6=True(1),Type0-7=True(1) + 248 more... ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in%s", want, got)
		}
	}
}
