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

// Package cnistatus is the convention by which the result of CNI plugins
// stands in the status of an allocated device (resource.k8s.io, KEP-4817).
//
//   - networkData describes the one interface in the container that the device
//     stands for: its name, its addresses with their prefix lengths, and its
//     hardware address. What the plugins created on the host is not in there.
//   - data is the result, in the form of the newest version of the CNI
//     specification, whatever version the plugins used. So readers need to know
//     only one form. Paths of sandboxes and sockets, and addresses of PCI devices,
//     are left out: they mean something only on the node. Which interface is the container's says
//     networkData.
//
// What does not fit into the limits of the API is an error that names the field.
// Nothing is ever cut off: a status that lacks an address would be a wrong one.
package cnistatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Versions are the versions of the CNI specification whose results can be
// read, oldest first. All but the newest get converted.
var Versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", cni.ImplementedSpecVersion}

// Interface is a network interface of a container.
type Interface struct {
	// Name as it is inside the container.
	Name string
	// Addresses of the interface, each with the length of its network's prefix.
	Addresses []netip.Prefix
	// HardwareAddress is empty if it is not known: results of CNI 0.2.0 and
	// before do not have it.
	HardwareAddress string
}

// root is where the paths in errors about a CNI result begin.
var root = field.NewPath("result")

// ParseResult reads what a CNI plugin printed, in any of the [Versions].
func ParseResult(data []byte) (*cni.Result, error) {
	version, err := check(data)
	if err != nil {
		return nil, err
	}
	result, err := create.Create(version, data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a CNI result of version %s: %w", root, version, err)
	}
	return convert(result)
}

// check finds what the CNI library does not expect in an encoded result, and
// returns its version.
func check(data []byte) (string, error) {
	var raw struct {
		CNIVersion string            `json:"cniVersion"`
		Interfaces []json.RawMessage `json:"interfaces"`
		IPs        []json.RawMessage `json:"ips"`
		Routes     []json.RawMessage `json:"routes"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return "", fmt.Errorf("%s: not a CNI result: %w", root, err)
	}
	if trimmed := bytes.TrimSpace(data); trimmed[0] != '{' {
		return "", fmt.Errorf("%s: not a CNI result: must be a JSON object", root)
	}
	// The specification has it so: versions before 0.2.0 did not have the field.
	if raw.CNIVersion == "" {
		raw.CNIVersion = Versions[0]
	}
	if !slices.Contains(Versions, raw.CNIVersion) {
		return "", field.NotSupported(root.Child("cniVersion"), raw.CNIVersion, Versions)
	}
	for name, list := range map[string][]json.RawMessage{"interfaces": raw.Interfaces, "ips": raw.IPs, "routes": raw.Routes} {
		for i, entry := range list {
			if string(entry) == "null" {
				return "", field.Required(root.Child(name).Index(i), "must not be null")
			}
		}
	}
	return raw.CNIVersion, nil
}

// convert returns the form of the newest version, with canonical addresses.
func convert(result types.Result) (*cni.Result, error) {
	converted, err := cni.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot convert it from CNI version %q: %w", root, result.Version(), err)
	}
	// Some versions are converted by reference.
	copied := *converted
	converted = &copied
	converted.IPs = slices.Clone(converted.IPs)
	for i, ip := range converted.IPs {
		address, err := prefix(ip.Address, root.Child("ips").Index(i))
		if err != nil {
			return nil, err
		}
		converted.IPs[i] = ip.Copy()
		converted.IPs[i].Address = net.IPNet{
			IP:   address.Addr().AsSlice(),
			Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen()),
		}
	}
	return converted, nil
}

// Select returns the interface of the container that a result is about. It is
// the one that has the name which the plugins were asked for, or the only one
// that is inside a container, if a plugin named it differently. Results without
// any interfaces are about the one that was asked for.
func Select(result *cni.Result, name string) (*Interface, error) {
	selected, err := selectInterface(result, name)
	if err != nil {
		return nil, err
	}
	iface := &Interface{Name: name}
	if selected >= 0 {
		iface.Name = result.Interfaces[selected].Name
		iface.HardwareAddress = result.Interfaces[selected].Mac
	}
	if iface.Name == "" {
		return nil, field.Required(root.Child("interfaces"), "neither the result nor the caller has the name of the interface")
	}
	for i, ip := range result.IPs {
		path := root.Child("ips").Index(i)
		if index := ip.Interface; index != nil {
			if *index < 0 || *index >= len(result.Interfaces) {
				return nil, field.Invalid(path.Child("interface"), *index, fmt.Sprintf("the result has %d interfaces", len(result.Interfaces)))
			}
			if *index != selected {
				continue
			}
		}
		// An address without an index belongs to the interface that was asked
		// for: that is what IPAM plugins print.
		address, err := prefix(ip.Address, path)
		if err != nil {
			return nil, err
		}
		// Chained plugins may repeat what the ones before them did.
		if !slices.Contains(iface.Addresses, address) {
			iface.Addresses = append(iface.Addresses, address)
		}
	}
	return iface, nil
}

// selectInterface returns an index, or -1 if the result has no interfaces.
func selectInterface(result *cni.Result, name string) (int, error) {
	if len(result.Interfaces) == 0 {
		return -1, nil
	}
	path := root.Child("interfaces")
	var inside, named []int
	var names []string
	for i, iface := range result.Interfaces {
		if iface.Sandbox == "" {
			continue // on the host
		}
		inside = append(inside, i)
		names = append(names, iface.Name)
		if iface.Name == name {
			named = append(named, i)
		}
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return 0, field.Duplicate(path, name)
	case len(inside) == 1:
		return inside[0], nil
	case len(inside) == 0:
		return 0, field.Invalid(path, len(result.Interfaces), "all of them are on the host, none has a sandbox")
	default:
		return 0, field.Invalid(path, name, "none of those in the container has this name: "+strings.Join(names, ", "))
	}
}

// prefix checks the address of the entry at the given path, and returns its
// canonical form.
func prefix(address net.IPNet, path *field.Path) (netip.Prefix, error) {
	path = path.Child("address")
	addr, ok := netip.AddrFromSlice(address.IP)
	ones, bits := address.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, field.Required(path, "must be an address with the length of its prefix")
	}
	addr = addr.Unmap()
	if addr.Is4() && bits == 8*net.IPv6len {
		// An IPv4 address in the form of an IPv6 one.
		bits, ones = 8*net.IPv4len, ones-8*(net.IPv6len-net.IPv4len)
	}
	if bits != addr.BitLen() || ones < 0 {
		return netip.Prefix{}, field.Invalid(path, addr.String(), fmt.Sprintf("the mask %s does not fit this address", address.Mask))
	}
	return netip.PrefixFrom(addr, ones), nil
}

// NetworkData returns the form that the interface has in the status of a device.
func (i *Interface) NetworkData() *resourceapi.NetworkDeviceData {
	data := &resourceapi.NetworkDeviceData{InterfaceName: i.Name, HardwareAddress: i.HardwareAddress}
	for _, address := range i.Addresses {
		data.IPs = append(data.IPs, address.String())
	}
	return data
}

// withoutSandboxes returns a result that does not have what is only for the node: the paths of the sandboxes in
// which its interfaces are, those of sockets, and addresses of PCI devices.
func withoutSandboxes(result *cni.Result) *cni.Result {
	copied := *result
	copied.Interfaces = make([]*cni.Interface, 0, len(result.Interfaces))
	for _, iface := range result.Interfaces {
		iface = iface.Copy()
		iface.Sandbox, iface.SocketPath, iface.PciID = "", "", ""
		copied.Interfaces = append(copied.Interfaces, iface)
	}
	return &copied
}

// Write puts the result of CNI plugins into the status of a device: networkData
// and data. name is that of the interface which the plugins were asked for. If
// the result is about something else, or does not fit, then the status is left
// as it is, and the error has the path of each field that is wrong.
func Write(status *resourceapi.AllocatedDeviceStatus, result types.Result, name string) error {
	printed, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("cannot encode the CNI result: %w", err)
	}
	if _, err := check(printed); err != nil {
		return err
	}
	converted, err := convert(result)
	if err != nil {
		return err
	}
	iface, err := Select(converted, name)
	if err != nil {
		return err
	}
	data, err := json.Marshal(withoutSandboxes(converted))
	if err != nil {
		return fmt.Errorf("cannot encode the CNI result: %w", err)
	}
	written := status.DeepCopy()
	written.NetworkData = iface.NetworkData()
	written.Data = &runtime.RawExtension{Raw: data}
	if err := Validate(written, nil).ToAggregate(); err != nil {
		return err
	}
	status.NetworkData, status.Data = written.NetworkData, written.Data
	return nil
}

// ReadInterface returns the interface that the status of a device describes, nil
// if it has no networkData.
func ReadInterface(status *resourceapi.AllocatedDeviceStatus) (*Interface, error) {
	data := status.NetworkData
	if data == nil {
		return nil, nil
	}
	iface := &Interface{Name: data.InterfaceName, HardwareAddress: data.HardwareAddress}
	for i, ip := range data.IPs {
		address, err := netip.ParsePrefix(ip)
		if err != nil {
			return nil, field.Invalid(field.NewPath("networkData", "ips").Index(i), ip, err.Error())
		}
		iface.Addresses = append(iface.Addresses, address)
	}
	return iface, nil
}

// ReadResult returns the CNI result in the status of a device, nil if it has no
// data. It is an error if the data is something else. [Select] needs the sandboxes, which
// are not in there: [ReadInterface] returns the interface of the container.
func ReadResult(status *resourceapi.AllocatedDeviceStatus) (*cni.Result, error) {
	if status.Data == nil || len(status.Data.Raw) == 0 {
		return nil, nil
	}
	path := field.NewPath("data")
	// Without this, any object would pass as an empty result of the oldest
	// version.
	var version struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(status.Data.Raw, &version); err != nil {
		return nil, fmt.Errorf("%s: not a CNI result: %w", path, err)
	}
	if version.CNIVersion == "" {
		return nil, field.Required(path.Child("cniVersion"), "without it, this is not a CNI result")
	}
	result, err := ParseResult(status.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return result, nil
}
