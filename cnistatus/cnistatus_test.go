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

package cnistatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// read returns what a plugin printed: of the plugins that hack/tools/cni has
// pinned, in network namespaces of a test machine.
func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestWrite takes results through the status of a device and back, as printed
// and in the form in which libcni has them.
func TestWrite(t *testing.T) {
	const twoInside = `"interfaces": [
		{"name": "veth0"},
		{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/a"},
		{"name": "net1.100", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"}]`
	for _, tc := range []struct {
		name     string
		file     string // in testdata, instead of result
		result   string
		ifName   string // net1 if empty
		expected resourceapi.NetworkDeviceData
		// expectedData is checked if not empty.
		expectedData string
	}{
		{
			name:         "bridge, CNI 0.1.0",
			file:         "bridge-0.1.0",
			expected:     resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.5/24"}},
			expectedData: `{"cniVersion":"1.1.0","ips":[{"address":"10.222.0.5/24","gateway":"10.222.0.1"}]}`,
		},
		{
			name:     "bridge, CNI 0.2.0",
			file:     "bridge-0.2.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.4/24"}},
		},
		{
			name:     "bridge, CNI 0.3.1",
			file:     "bridge-0.3.1",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.7/24"}, HardwareAddress: "f6:a2:ff:bd:b5:40"},
		},
		{
			name:     "bridge, CNI 0.4.0",
			file:     "bridge-0.4.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.6/24"}, HardwareAddress: "fe:13:87:c9:c3:86"},
			expectedData: `{"cniVersion":"1.1.0","interfaces":[{"mac":"76:60:24:e0:c8:6a","name":"hnetbr0"},{"mac":"76:60:24:e0:c8:6a","name":"veth26e9d78f"},` +
				`{"mac":"fe:13:87:c9:c3:86","name":"net1"}],"ips":[{"address":"10.222.0.6/24","gateway":"10.222.0.1","interface":2}]}`,
		},
		{
			name:     "bridge, CNI 1.0.0",
			file:     "bridge-1.0.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.2/24"}, HardwareAddress: "3e:86:81:0b:60:d7"},
		},
		{
			name:     "bridge, CNI 1.1.0, dual stack",
			file:     "bridge-dual-1.1.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.0.3/24", "fd00:222::2/64"}, HardwareAddress: "5a:a9:59:26:09:48"},
			expectedData: `{"cniVersion":"1.1.0","dns":{"nameservers":["10.222.0.53"]},"interfaces":[{"mac":"8a:a5:4e:77:f9:68","name":"hnetbr0"},{"mac":"8a:a5:4e:77:f9:68","name":"vethb08f77a4"},` +
				`{"mac":"5a:a9:59:26:09:48","name":"net1"}],"ips":[{"address":"10.222.0.3/24","gateway":"10.222.0.1","interface":2},` +
				`{"address":"fd00:222::2/64","gateway":"fd00:222::1","interface":2}],"routes":[{"dst":"192.0.2.0/24"}]}`,
		},
		{
			name:     "bridge without IPAM",
			file:     "bridge-l2-1.1.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "c2:69:29:ef:55:7c"},
		},
		{
			name:     "ptp, dual stack",
			file:     "ptp-dual-1.1.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.1.2/24", "fd00:223::2/64"}, HardwareAddress: "5e:6c:36:1f:0c:f6"},
		},
		{
			name:     "macvlan, CNI 0.4.0",
			file:     "macvlan-0.4.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.2.3/24"}, HardwareAddress: "d2:df:bd:63:5c:1b"},
		},
		{
			name:     "macvlan, CNI 1.1.0",
			file:     "macvlan-1.1.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.222.2.2/24"}, HardwareAddress: "56:1c:d7:91:9f:c7"},
		},
		{
			name:     "loopback has its own name",
			file:     "loopback-1.1.0",
			expected: resourceapi.NetworkDeviceData{InterfaceName: "lo", IPs: []string{"127.0.0.1/8", "::1/128"}, HardwareAddress: "00:00:00:00:00:00"},
		},
		{
			name:     "without a version",
			result:   `{"ip4": {"ip": "192.0.2.1/24"}, "ip6": {"ip": "2001:db8::1/64"}}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		},
		{
			name:     "CNI 0.3.0",
			result:   `{"cniVersion": "0.3.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/a"}], "ips": [{"version": "6", "address": "2001:db8::1/64", "interface": 0}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"2001:db8::1/64"}},
		},
		{
			name:     "addresses of other interfaces are theirs",
			result:   `{"cniVersion": "1.0.0", ` + twoInside + `, "ips": [{"address": "192.0.2.1/24", "interface": 1}, {"address": "192.0.2.2/24", "interface": 2}, {"address": "192.0.2.3/24", "interface": 0}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"192.0.2.1/24"}, HardwareAddress: "02:00:00:00:00:01"},
		},
		{
			name:     "the other interface",
			ifName:   "net1.100",
			result:   `{"cniVersion": "1.0.0", ` + twoInside + `, "ips": [{"address": "192.0.2.1/24", "interface": 1}, {"address": "192.0.2.2/24", "interface": 2}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1.100", IPs: []string{"192.0.2.2/24"}, HardwareAddress: "02:00:00:00:00:02"},
		},
		{
			name:     "the host has an interface of that name, too",
			result:   `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01"}, {"name": "net1", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02:00:00:00:00:02"},
		},
		{
			name:     "address without an interface",
			result:   `{"cniVersion": "1.0.0", ` + twoInside + `, "ips": [{"address": "192.0.2.1/24"}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"192.0.2.1/24"}, HardwareAddress: "02:00:00:00:00:01"},
		},
		{
			name:     "an address that is repeated",
			result:   `{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.1/24"}, {"address": "192.0.2.1/24"}, {"address": "192.0.2.1/25"}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"192.0.2.1/24", "192.0.2.1/25"}},
		},
		{
			name:     "addresses become canonical",
			result:   `{"cniVersion": "1.0.0", "ips": [{"address": "2001:0DB8:0::1/64"}, {"address": "::ffff:192.0.2.1/120"}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"2001:db8::1/64", "192.0.2.1/24"}},
		},
		{
			name:     "16 addresses",
			result:   `{"cniVersion": "1.0.0", "ips": [` + addresses(16) + `]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: expectedAddresses(16)},
		},
		{
			name:     "the longest names",
			ifName:   strings.Repeat("n", 256),
			result:   `{"cniVersion": "1.0.0", "interfaces": [{"name": "` + strings.Repeat("n", 256) + `", "mac": "` + strings.Repeat("a", 128) + `", "sandbox": "/a"}]}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: strings.Repeat("n", 256), HardwareAddress: strings.Repeat("a", 128)},
		},
		{
			name:     "the longest data",
			result:   `{"cniVersion":"1.1.0","dns":{"domain":"` + strings.Repeat("d", 10*1024-42) + `"}}`,
			expected: resourceapi.NetworkDeviceData{InterfaceName: "net1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			printed := []byte(tc.result)
			if tc.file != "" {
				printed = read(t, tc.file)
			}
			if tc.ifName == "" {
				tc.ifName = "net1"
			}
			result, err := create.CreateFromBytes(printed)
			if err != nil {
				t.Fatal(err)
			}
			status := &resourceapi.AllocatedDeviceStatus{Driver: "d", Pool: "p", Device: "x"}
			if err := Write(status, result, tc.ifName); err != nil {
				t.Fatal(err)
			}
			// The caller may have other uses for it.
			if before, err := create.CreateFromBytes(printed); err != nil || !reflect.DeepEqual(result, before) {
				t.Errorf("the result is now %+v, and was %+v, %v", result, before, err)
			}
			if !reflect.DeepEqual(*status.NetworkData, tc.expected) {
				t.Errorf("networkData:\n got %+v\nwant %+v", *status.NetworkData, tc.expected)
			}
			if tc.expectedData != "" && string(status.Data.Raw) != tc.expectedData {
				t.Errorf("data:\n got %s\nwant %s", status.Data.Raw, tc.expectedData)
			}
			checkReadable(t, status, printed)
		})
	}
}

// checkReadable checks that a status which was written can be read, that it is
// valid, and that another write changes nothing.
func checkReadable(t *testing.T, status *resourceapi.AllocatedDeviceStatus, printed []byte) {
	t.Helper()
	if errs := Validate(status, nil); len(errs) > 0 {
		t.Errorf("what was written is invalid: %v", errs)
	}
	iface, err := ReadInterface(status)
	if err != nil {
		t.Fatal(err)
	}
	if data := iface.NetworkData(); !reflect.DeepEqual(data, status.NetworkData) {
		t.Errorf("networkData after reading:\n got %+v\nwant %+v", data, status.NetworkData)
	}
	parsed, err := ParseResult(printed)
	if err != nil {
		t.Fatal(err)
	}
	result, err := ReadResult(status)
	if err != nil {
		t.Fatal(err)
	}
	again := &resourceapi.AllocatedDeviceStatus{Driver: status.Driver, Pool: status.Pool, Device: status.Device}
	if err := Write(again, parsed, iface.Name); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, status) {
		t.Errorf("written again:\n got %+v\nwant %+v", again, status)
	}
	// What is only for the node is nothing for the API.
	for _, i := range parsed.Interfaces {
		i.Sandbox, i.SocketPath, i.PciID = "", "", ""
	}
	if got, want := encode(t, result), encode(t, parsed); got != want {
		t.Errorf("result after reading:\n got %s\nwant %s", got, want)
	}
}

func encode(t *testing.T, result *cni.Result) string {
	t.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func addresses(n int) string {
	var all []string
	for _, address := range expectedAddresses(n) {
		all = append(all, fmt.Sprintf(`{"address": %q}`, address))
	}
	return strings.Join(all, ", ")
}

func expectedAddresses(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("192.0.2.%d/24", i+1))
	}
	return all
}

// TestWriteInvalid checks that the error has the path of what is wrong, and that
// the status stays as it was.
func TestWriteInvalid(t *testing.T) {
	for _, tc := range []struct {
		name     string
		result   *cni.Result
		json     string // instead of result
		ifName   string
		expected []string
	}{
		{
			name:     "17 addresses",
			json:     `{"cniVersion": "1.0.0", "ips": [` + addresses(17) + `]}`,
			expected: []string{"networkData.ips: Too many: 17: must have at most 16 items"},
		},
		{
			name:     "long name and hardware address",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "` + strings.Repeat("n", 257) + `", "mac": "` + strings.Repeat("a", 129) + `", "sandbox": "/a"}]}`,
			expected: []string{"networkData.interfaceName: Too long: may not be more than 256 bytes", "networkData.hardwareAddress: Too long: may not be more than 128 bytes"},
		},
		{
			name:     "long data",
			json:     `{"cniVersion":"1.1.0","dns":{"domain":"` + strings.Repeat("d", 10*1024-41) + `"}}`,
			expected: []string{"data: Too long: it has 10241 bytes, may not be more than 10240"},
		},
		{
			name:     "data that gets longer on its way",
			json:     `{"cniVersion":"1.1.0","dns":{"domain":"` + strings.Repeat("<", 2000) + `"}}`,
			expected: []string{"data: Too long: it has 12042 bytes, may not be more than 10240"},
		},
		{
			name:     "only interfaces of the host",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1"}, {"name": "br0"}]}`,
			expected: []string{`result.interfaces: Invalid value: 2: all of them are on the host, none has a sandbox`},
		},
		{
			name:     "several in the container, none of them asked for",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "a", "sandbox": "/x"}, {"name": "b", "sandbox": "/x"}]}`,
			expected: []string{`result.interfaces: Invalid value: "net1": none of those in the container has this name: a, b`},
		},
		{
			name:     "two of the same name",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}, {"name": "net1", "sandbox": "/y"}]}`,
			expected: []string{`result.interfaces: Duplicate value: "net1"`},
		},
		{
			name:     "no such interface",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}], "ips": [{"address": "192.0.2.1/24", "interface": 1}]}`,
			expected: []string{`result.ips[0].interface: Invalid value: 1: the result has 1 interfaces`},
		},
		{
			name:     "negative interface",
			json:     `{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}], "ips": [{"address": "192.0.2.1/24", "interface": -1}]}`,
			expected: []string{`result.ips[0].interface: Invalid value: -1`},
		},
		{
			name:     "no address",
			json:     `{"cniVersion": "1.0.0", "ips": [{"gateway": "192.0.2.1"}]}`,
			expected: []string{`result.ips[0].address: Required value: must be an address with the length of its prefix`},
		},
		{
			name:     "IPv4 in IPv6 with a short mask",
			json:     `{"cniVersion": "1.0.0", "ips": [{"address": "::ffff:192.0.2.1/64"}]}`,
			expected: []string{`result.ips[0].address: Invalid value: "192.0.2.1": the mask ffffffffffffffff0000000000000000 does not fit this address`},
		},
		{
			name:     "no name anywhere",
			json:     `{"cniVersion": "0.1.0", "ip4": {"ip": "192.0.2.1/24"}}`,
			ifName:   "-",
			expected: []string{`result.interfaces: Required value: neither the result nor the caller has the name of the interface`},
		},
		{
			name:     "null interface",
			result:   &cni.Result{CNIVersion: "1.1.0", Interfaces: []*cni.Interface{nil}},
			expected: []string{`result.interfaces[0]: Required value: must not be null`},
		},
		{
			name:     "unknown version",
			result:   &cni.Result{CNIVersion: "9.0.0"},
			expected: []string{`result.cniVersion: Unsupported value: "9.0.0": supported values: "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var result types.Result = tc.result
			if tc.result == nil {
				var err error
				if result, err = create.CreateFromBytes([]byte(tc.json)); err != nil {
					t.Fatal(err)
				}
			}
			switch tc.ifName {
			case "":
				tc.ifName = "net1"
			case "-":
				tc.ifName = ""
			}
			status := &resourceapi.AllocatedDeviceStatus{
				Data:        &runtime.RawExtension{Raw: []byte(`{"before":1}`)},
				NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "before"},
			}
			before := status.DeepCopy()
			err := Write(status, result, tc.ifName)
			if err == nil {
				t.Fatalf("no error, status %+v", status)
			}
			for _, expected := range tc.expected {
				if !strings.Contains(err.Error(), expected) {
					t.Errorf("error:\n got %v\nwant %s", err, expected)
				}
			}
			if !reflect.DeepEqual(status, before) {
				t.Errorf("status changed to %+v", status)
			}
		})
	}
}

func TestParseResultInvalid(t *testing.T) {
	for printed, expected := range map[string]string{
		``:                        "result: not a CNI result: unexpected end of JSON input",
		`null`:                    "result: not a CNI result: must be a JSON object",
		`[]`:                      "result: not a CNI result: json: cannot unmarshal array",
		`{"cniVersion": "2.0.0"}`: `result.cniVersion: Unsupported value: "2.0.0"`,
		`{"cniVersion": 1}`:       "result: not a CNI result",
		`{"cniVersion": "0.4.0", "interfaces": [{}, null]}`:  "result.interfaces[1]: Required value: must not be null",
		`{"cniVersion": "0.4.0", "ips": [null]}`:             "result.ips[0]: Required value",
		`{"cniVersion": "1.0.0", "routes": [null]}`:          "result.routes[0]: Required value",
		`{"cniVersion": "1.0.0", "ips": [{"address": "x"}]}`: "result: not a CNI result of version 1.0.0: invalid CIDR address: x",
		// What a plugin prints when it fails.
		`{"code": 999, "msg": 1, "cniVersion": "0.2.0", "ip4": {"ip": "x"}}`: "result: not a CNI result of version 0.2.0: invalid CIDR address: x",
	} {
		_, err := ParseResult([]byte(printed))
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s:\n got %v\nwant %s", printed, err, expected)
		}
	}
}

func TestValidate(t *testing.T) {
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Added", LastTransitionTime: metav1.Now()}
	var nine []metav1.Condition
	for i := range 9 {
		c := condition
		c.Type = fmt.Sprintf("Ready%d", i)
		nine = append(nine, c)
	}
	status := &resourceapi.AllocatedDeviceStatus{
		Conditions: nine,
		Data:       &runtime.RawExtension{Raw: []byte(`[1]`)},
		NetworkData: &resourceapi.NetworkDeviceData{
			InterfaceName: "net1",
			IPs:           []string{"192.0.2.1/24", "192.0.2.1", "2001:DB8::1/64", "192.0.2.1/24", "::ffff:192.0.2.1/120"},
		},
	}
	var got []string
	for _, err := range Validate(status, field.NewPath("status", "devices").Index(0)) {
		got = append(got, string(err.Type)+" "+err.Field)
	}
	want := []string{
		string(field.ErrorTypeTooMany) + " status.devices[0].conditions",
		string(field.ErrorTypeInvalid) + " status.devices[0].data",
		string(field.ErrorTypeInvalid) + " status.devices[0].networkData.ips[1]",
		string(field.ErrorTypeInvalid) + " status.devices[0].networkData.ips[2]",
		string(field.ErrorTypeDuplicate) + " status.devices[0].networkData.ips[3]",
		string(field.ErrorTypeInvalid) + " status.devices[0].networkData.ips[4]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("errors:\n got %q\nwant %q", got, want)
	}
	status = &resourceapi.AllocatedDeviceStatus{Conditions: []metav1.Condition{{Type: "Ready"}}}
	if errs := Validate(status, nil); len(errs) == 0 {
		t.Error("a condition without status, reason and time is valid")
	}
	for raw, want := range map[string]string{
		`{`: "must be JSON: ",
		// A client escapes it.
		`{"a":"` + strings.Repeat("<", 2000) + `"}`: "it has 12008 bytes, may not be more than 10240",
	} {
		status = &resourceapi.AllocatedDeviceStatus{Data: &runtime.RawExtension{Raw: []byte(raw)}}
		if errs := Validate(status, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%.20s: %v, want %s", raw, errs, want)
		}
	}
	status = &resourceapi.AllocatedDeviceStatus{Conditions: nine[:8], Data: &runtime.RawExtension{}}
	if errs := Validate(status, nil); len(errs) != 0 {
		t.Errorf("8 conditions: %v", errs)
	}
}

// TestSelectMask has a mask that no plugin can print, but one that is called as a
// library can return.
func TestSelectMask(t *testing.T) {
	result := &cni.Result{IPs: []*cni.IPConfig{{Address: net.IPNet{IP: net.ParseIP("2001:db8::1"), Mask: net.CIDRMask(24, 32)}}}}
	if iface, err := Select(result, "net1"); err == nil || !strings.Contains(err.Error(), "result.ips[0].address: Invalid value") {
		t.Errorf("%+v, %v", iface, err)
	}
}

func TestReadOther(t *testing.T) {
	status := &resourceapi.AllocatedDeviceStatus{}
	if iface, err := ReadInterface(status); iface != nil || err != nil {
		t.Errorf("interface of an empty status: %v, %v", iface, err)
	}
	if result, err := ReadResult(status); result != nil || err != nil {
		t.Errorf("result of an empty status: %v, %v", result, err)
	}
	status.Data = &runtime.RawExtension{}
	if result, err := ReadResult(status); result != nil || err != nil {
		t.Errorf("result of empty data: %v, %v", result, err)
	}
	status.NetworkData = &resourceapi.NetworkDeviceData{IPs: []string{"192.0.2.1/24", "192.0.2.2"}}
	if _, err := ReadInterface(status); err == nil || !strings.Contains(err.Error(), "networkData.ips[1]: Invalid value") {
		t.Errorf("address without prefix: %v", err)
	}
	for data, expected := range map[string]string{
		`{"results": []}`:         "data.cniVersion: Required value",
		`[]`:                      "data: not a CNI result",
		`{"cniVersion": "2.0.0"}`: "data: result.cniVersion: Unsupported value",
	} {
		status.Data = &runtime.RawExtension{Raw: []byte(data)}
		if _, err := ReadResult(status); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s:\n got %v\nwant %s", data, err, expected)
		}
	}
}

// FuzzWrite checks that whatever a plugin prints is either refused, or becomes a
// status that the API takes, and that can be read again.
func FuzzWrite(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, file := range files {
		f.Add(read(f, strings.TrimSuffix(filepath.Base(file), ".json")), "net1")
	}
	f.Add([]byte(`{"ip4": {"ip": "192.0.2.1/24"}, "ip6": {"ip": "2001:db8::1/64", "routes": [{"dst": "::/0"}]}}`), "eth0")
	f.Add([]byte(`{"cniVersion": "0.4.0", "interfaces": [null], "ips": [null], "routes": [null]}`), "net1")
	f.Add([]byte(`{"cniVersion": "1.1.0", "interfaces": [{"name": "<\xff", "sandbox": "/a"}], "ips": [{"address": "::ffff:1.2.3.4/97"}]}`), "")
	f.Fuzz(func(t *testing.T, printed []byte, name string) {
		result, err := ParseResult(printed)
		if err != nil {
			return
		}
		status := &resourceapi.AllocatedDeviceStatus{Driver: "d", Pool: "p", Device: "x"}
		if err := Write(status, result, name); err != nil {
			if status.NetworkData != nil || status.Data != nil {
				t.Errorf("refused, but written: %+v", status)
			}
			return
		}
		if bytes.Equal(status.Data.Raw, []byte("null")) {
			t.Error("data is null")
		}
		checkReadable(t, status, printed)
	})
}

// FuzzReadInterface checks that every valid status can be read, and says the
// same after that.
func FuzzReadInterface(f *testing.F) {
	f.Add("net1", "192.0.2.1/24", "2001:db8::1/64")
	f.Add("", "::ffff:192.0.2.1/120", "fe80::1%eth0/64")
	f.Add("net1", "192.0.2.01/24", "10.0.0.0/33")
	f.Fuzz(func(t *testing.T, name, ip1, ip2 string) {
		status := &resourceapi.AllocatedDeviceStatus{NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: name, IPs: []string{ip1, ip2}}}
		if len(Validate(status, nil)) > 0 {
			return
		}
		iface, err := ReadInterface(status)
		if err != nil {
			t.Fatalf("%+v is valid, but cannot be read: %v", status.NetworkData, err)
		}
		if data := iface.NetworkData(); !reflect.DeepEqual(data, status.NetworkData) {
			t.Errorf("after reading:\n got %+v\nwant %+v", data, status.NetworkData)
		}
		for _, address := range iface.Addresses {
			if address != netip.MustParsePrefix(address.String()) {
				t.Errorf("%s changes when it is written", address)
			}
		}
	})
}
