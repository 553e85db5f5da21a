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
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/resource"
)

const (
	// claimCellItems is how many items a cell of the wide table of
	// ResourceClaims has. There may be hundreds.
	claimCellItems = 2
	// claimCellConditions is the same for conditions. There are few types, and
	// one that is different must not be hidden behind others.
	claimCellConditions = 8
)

// resourceClaimWideColumns are what "kubectl get resourceclaims -o wide" shows
// in addition.
var resourceClaimWideColumns = []metav1.TableColumnDefinition{
	{Name: "Requests", Type: "string", Priority: 1, Description: "Device classes with the number of devices, and whether admin access is requested; alternatives are separated by |."},
	{Name: "Devices", Type: "string", Priority: 1, Description: "Allocated devices as driver/pool/device, and whether the claim has admin access to them."},
	{Name: "Conditions", Type: "string", Priority: 1, Description: "Conditions that the drivers report, with the number of devices that they are the same for."},
	{Name: "Network", Type: "string", Priority: 1, Description: "Network interfaces that the drivers report, with IPs and hardware address."},
	{Name: "Reserved For", Type: "string", Priority: 1, Description: "Pods or other objects that the claim is reserved for; in parentheses, the one that it will be reserved for."},
}

// resourceClaimWideCells returns the cells for these columns.
func resourceClaimWideCells(claim *resource.ResourceClaim) []interface{} {
	return []interface{}{
		claimRequestsCell(claim),
		claimDevicesCell(claim),
		claimConditionsCell(claim),
		claimNetworkCell(claim),
		claimReservedForCell(claim),
	}
}

func claimRequestsCell(claim *resource.ResourceClaim) string {
	var items []string
	for i := range claim.Spec.Devices.Requests {
		items = append(items, claimRequest(&claim.Spec.Devices.Requests[i]))
	}
	return claimCell(items, ",", claimCellItems)
}

// claimRequestDetails formats a request, or one alternative of it.
func claimRequestDetails(class string, mode resource.DeviceAllocationMode, count int64, adminAccess *bool) string {
	amount := fmt.Sprint(count)
	if mode != "" && mode != resource.DeviceAllocationModeExactCount {
		amount = string(mode)
	}
	return class + ":" + amount + claimAdminAccess(adminAccess)
}

func claimAdminAccess(adminAccess *bool) string {
	if adminAccess != nil && *adminAccess {
		return "(admin)"
	}
	return ""
}

func claimDevicesCell(claim *resource.ResourceClaim) string {
	var items []string
	if claim.Status.Allocation != nil {
		for _, r := range claim.Status.Allocation.Devices.Results {
			items = append(items, r.Driver+"/"+r.Pool+"/"+r.Device+claimAdminAccess(r.AdminAccess))
		}
	}
	return claimCell(items, ",", claimCellItems)
}

// claimConditionsCell has each condition once. Those that differ from device
// to device are what one looks for.
func claimConditionsCell(claim *resource.ResourceClaim) string {
	var items []string
	count := map[string]int{}
	for _, d := range claim.Status.Devices {
		for _, c := range d.Conditions {
			item := c.Type + "=" + string(c.Status)
			if count[item] == 0 {
				items = append(items, item)
			}
			count[item]++
		}
	}
	slices.Sort(items)
	if len(claim.Status.Devices) > 1 {
		for i, item := range items {
			items[i] = fmt.Sprintf("%s(%d)", item, count[item])
		}
	}
	return claimCell(items, ",", claimCellConditions)
}

func claimNetworkCell(claim *resource.ResourceClaim) string {
	var items []string
	for _, d := range claim.Status.Devices {
		n := d.NetworkData
		if n == nil {
			continue
		}
		details := slices.Clone(n.IPs[:min(len(n.IPs), claimCellItems)])
		if len(n.IPs) > claimCellItems {
			// Without their number, which could be taken for that of the
			// interfaces.
			details = append(details, "...")
		}
		if n.HardwareAddress != "" {
			details = append(details, n.HardwareAddress)
		}
		item := n.InterfaceName
		if item == "" {
			item = d.Device
		}
		if len(details) > 0 {
			item += "=" + strings.Join(details, ",")
		}
		items = append(items, item)
	}
	return claimCell(items, "; ", claimCellItems)
}

func claimReservedForCell(claim *resource.ResourceClaim) string {
	var items []string
	for _, r := range claim.Status.ReservedFor {
		items = append(items, claimConsumer(r))
	}
	if len(items) == 0 {
		if r := claimWorkload(&claim.Spec); r != nil {
			items = append(items, "("+claimConsumer(*r)+")")
		}
	}
	return claimCell(items, ",", claimCellItems)
}

// claimWorkload returns spec.reservedFor. Only trees with the feature
// "reservedfor" have the field, and this one has to build without it.
func claimWorkload(spec *resource.ResourceClaimSpec) *resource.ResourceClaimConsumerReference {
	field := reflect.ValueOf(spec).Elem().FieldByName("ReservedFor")
	consumer := reflect.TypeFor[*resource.ResourceClaimConsumerReference]()
	if !field.IsValid() || !field.CanConvert(consumer) {
		return nil
	}
	reference, _ := field.Convert(consumer).Interface().(*resource.ResourceClaimConsumerReference)
	return reference
}

// claimConsumer formats a reference as kubectl understands it.
func claimConsumer(r resource.ResourceClaimConsumerReference) string {
	return schema.GroupResource{Group: r.APIGroup, Resource: r.Resource}.String() + "/" + r.Name
}

// claimCell joins the first items and says how many more there are.
func claimCell(items []string, separator string, limit int) string {
	if len(items) == 0 {
		return "<none>"
	}
	cell := strings.Join(items[:min(len(items), limit)], separator)
	if len(items) > limit {
		cell = fmt.Sprintf("%s + %d more...", cell, len(items)-limit)
	}
	return strings.Map(printable, cell)
}

// printable replaces what would disturb the terminal: drivers choose some of the texts, and kubectl
// lets characters through that turn the direction of the text around.
func printable(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return unicode.ReplacementChar
	}
	return r
}
