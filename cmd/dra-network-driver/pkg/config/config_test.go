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

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	driverName = "network.dra.example.com"
	header     = `"apiVersion": "network.dra.example.com/v1alpha1", "kind": "NetworkConfig"`
	list       = `{"cniVersion": "1.0.0", "name": "inline", "plugins": [{"type": "bridge"}]}`
)

// parameters are those of one entry in the configuration of an allocation.
type parameters struct {
	source   resourceapi.AllocationConfigSource
	requests []string
	driver   string
	json     string
}

func TestForResult(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"10-storage.conflist": `{"cniVersion": "1.0.0", "name": "storage", "plugins": [{"type": "macvlan", "master": "eth1"}]}`,
		"20-broken.conflist":  `{`,
		"README.md":           `not a configuration`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	class, claim := resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim
	for _, tc := range []struct {
		name    string
		config  []parameters
		request string // "network" if empty
		allow   bool
		results int // of the request, 1 if 0

		interfaceName string
		network       string // part of the network
		err           string
	}{
		{
			name:    "network of the node",
			config:  []parameters{{source: claim, json: `{` + header + `, "network": "storage"}`}, {source: class, json: `{` + header + `, "allowNetworkInClaims": true}`}},
			network: `"master": "eth1"`,
		},
		{
			name:    "inline in the class",
			config:  []parameters{{source: class, json: `{` + header + `, "config": ` + list + `}`}},
			network: `"inline"`,
		},
		{
			name:   "inline in the claim",
			config: []parameters{{source: claim, json: `{` + header + `, "config": ` + list + `}`}},
			err:    "status.allocation.devices.config[1].opaque.parameters.config: Forbidden: only a DeviceClass may have it",
		},
		{
			name:    "inline in the claim, allowed",
			config:  []parameters{{source: claim, json: `{` + header + `, "config": ` + list + `}`}, {source: class, json: `{` + header + `, "allowNetworkInClaims": true}`}},
			allow:   true,
			network: `"inline"`,
		},
		{
			name: "the claim adds to the class",
			config: []parameters{
				{source: class, json: `{` + header + `, "config": ` + list + `}`},
				{source: claim, json: `{` + header + `, "interfaceName": "data"}`},
			},
			interfaceName: "data",
			network:       `"inline"`,
		},
		{
			name: "the claim wins, if it may",
			config: []parameters{
				{source: claim, json: `{` + header + `, "network": "storage", "interfaceName": "b"}`},
				{source: class, json: `{` + header + `, "config": ` + list + `, "interfaceName": "a", "allowNetworkInClaims": true}`},
			},
			interfaceName: "b",
			network:       `"storage"`,
		},
		{
			name: "the claim wins, with a configuration of its own",
			config: []parameters{
				{source: class, json: `{` + header + `, "network": "storage", "allowNetworkInClaims": true}`},
				{source: claim, json: `{` + header + `, "config": ` + list + `}`},
			},
			allow:   true,
			network: `"inline"`,
		},
		{
			name: "another network than that of the class",
			config: []parameters{
				{source: class, json: `{` + header + `, "network": "storage"}`},
				{source: claim, json: `{` + header + `, "network": "backup"}`},
			},
			err: "status.allocation.devices.config[2].opaque.parameters.network: Forbidden: the DeviceClass says which network",
		},
		{
			name: "another network, whatever the order",
			config: []parameters{
				{source: claim, json: `{` + header + `, "network": "backup"}`},
				{source: class, json: `{` + header + `, "config": ` + list + `}`},
			},
			err: "config[1].opaque.parameters.network: Forbidden: the DeviceClass says which network",
		},
		{
			name: "a configuration instead of the network of the class",
			config: []parameters{
				{source: class, json: `{` + header + `, "network": "storage"}`},
				{source: claim, json: `{` + header + `, "config": ` + list + `}`},
			},
			allow: true,
			err:   "config[2].opaque.parameters.config: Forbidden: the DeviceClass says which network",
		},
		{
			name: "the claim allows itself",
			config: []parameters{
				{source: class, json: `{` + header + `, "network": "storage"}`},
				{source: claim, json: `{` + header + `, "allowNetworkInClaims": true}`},
				{source: claim, json: `{` + header + `, "network": "backup"}`},
			},
			err: "config[2].opaque.parameters.allowNetworkInClaims: Forbidden: only a DeviceClass may have it",
		},
		{
			name: "the class leaves it open",
			config: []parameters{
				{source: class, json: `{` + header + `, "interfaceName": "a", "allowNetworkInClaims": true}`},
				{source: claim, json: `{` + header + `, "network": "storage"}`},
			},
			interfaceName: "a",
			network:       `"storage"`,
		},
		{
			name: "the class says nothing about networks",
			config: []parameters{
				{source: class, json: `{` + header + `, "interfaceName": "a"}`},
				{source: claim, json: `{` + header + `, "network": "storage"}`},
			},
			err: "config[2].opaque.parameters.network: Forbidden: the DeviceClass says which network its devices are for; a claim may only choose one if the class has allowNetworkInClaims",
		},
		{
			name:   "a class without parameters",
			config: []parameters{{source: claim, json: `{` + header + `, "network": "storage"}`}},
			err:    "config[1].opaque.parameters.network: Forbidden: the DeviceClass says which network",
		},
		{
			name: "other requests and drivers",
			config: []parameters{
				{source: claim, json: `{` + header + `, "network": "storage"}`},
				{source: claim, requests: []string{"other"}, json: `{` + header + `, "interfaceName": "other"}`},
				{source: claim, driver: "other.example.com", json: `{}`},
				{source: claim, requests: []string{"network"}, json: `{` + header + `, "interfaceName": "mine"}`},
				{source: class, json: `{` + header + `, "allowNetworkInClaims": true}`},
			},
			interfaceName: "mine",
			network:       `"storage"`,
		},
		{
			name:    "subrequest",
			request: "network/fast",
			config: []parameters{
				{source: claim, requests: []string{"network"}, json: `{` + header + `, "network": "storage"}`},
				{source: claim, requests: []string{"network/fast"}, json: `{` + header + `, "interfaceName": "fast"}`},
				{source: claim, requests: []string{"network/slow"}, json: `{` + header + `, "interfaceName": "slow"}`},
				{source: class, json: `{` + header + `, "allowNetworkInClaims": true}`},
			},
			interfaceName: "fast",
			network:       `"storage"`,
		},
		{
			name:   "nothing",
			config: nil,
			err:    `status.allocation.devices.config: Required value: neither the DeviceClass nor the claim says which network the device of request "network" is for`,
		},
		{
			name:   "unknown network",
			config: []parameters{{source: claim, json: `{` + header + `, "network": "backup"}`}, {source: class, json: `{` + header + `, "allowNetworkInClaims": true}`}},
			err:    `status.allocation.devices.config[1].opaque.parameters.network: Invalid value: "backup": this node has no such network in ` + dir + `; these files there cannot be read: 20-broken.conflist`,
		},
		{
			name:    "several devices, one name",
			config:  []parameters{{source: claim, json: `{` + header + `, "network": "storage", "interfaceName": "data"}`}, {source: class, json: `{` + header + `, "allowNetworkInClaims": true}`}},
			results: 2,
			err:     `parameters.interfaceName: Invalid value: "data": the request "network" has several devices`,
		},
		{
			name:   "broken inline configuration",
			config: []parameters{{source: class, json: `{` + header + `, "config": {"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "../../bin/sh"}]}}`}},
			err:    `parameters.config: Invalid value: "<value omitted>": plugins[0].type: Invalid value: "../../bin/sh": must be the name of a CNI plugin`,
		},
		{
			name: "second entry is wrong",
			config: []parameters{
				{source: class, json: `{` + header + `, "network": "storage"}`},
				{source: claim, json: `{` + header + `, "Network": "storage"}`},
			},
			err: `status.allocation.devices.config[2].opaque.parameters: not a NetworkConfig: unknown field "Network"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.request == "" {
				tc.request = "network"
			}
			result := resourceapi.DeviceRequestAllocationResult{Driver: driverName, Pool: "node", Device: "net-0", Request: tc.request}
			allocation := &resourceapi.AllocationResult{}
			for range max(1, tc.results) {
				allocation.Devices.Results = append(allocation.Devices.Results, result)
			}
			// Others have nothing to do with it.
			allocation.Devices.Results = append(allocation.Devices.Results,
				resourceapi.DeviceRequestAllocationResult{Driver: "other.example.com", Pool: "node", Device: "net-0", Request: tc.request},
				resourceapi.DeviceRequestAllocationResult{Driver: driverName, Pool: "node", Device: "net-9", Request: "another"},
			)
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{Source: class})
			for _, p := range tc.config {
				if p.driver == "" {
					p.driver = driverName
				}
				allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
					Source:   p.source,
					Requests: p.requests,
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: p.driver, Parameters: runtime.RawExtension{Raw: []byte(p.json)},
					}},
				})
			}
			source := Source{Driver: driverName, Dir: dir, AllowConfigInClaims: tc.allow}
			device, err := source.ForResult(allocation, result)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error:\n got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if device.InterfaceName != tc.interfaceName || !strings.Contains(string(device.Network), tc.network) {
				t.Errorf("interface %q, network %s", device.InterfaceName, device.Network)
			}
		})
	}
}

// TestNoNetworks checks what is said on a node where nobody configured anything.
func TestNoNetworks(t *testing.T) {
	source := Source{Driver: driverName, Dir: t.TempDir()}
	if _, err := source.load("storage"); err == nil || err.Error() != "this node has no such network in "+source.Dir {
		t.Errorf("error %v", err)
	}
}

func TestDecodeInvalid(t *testing.T) {
	for parameters, expected := range map[string]string{
		``:                          "parameters: not a NetworkConfig",
		`[]`:                        "parameters: not a NetworkConfig",
		`{"kind": "NetworkConfig"}`: `parameters.apiVersion: Unsupported value: "": supported values: "network.dra.example.com/v1alpha1"`,
		`{"apiVersion": "network.dra.example.com/v1alpha1"}`:        `parameters.kind: Unsupported value: "": supported values: "NetworkConfig"`,
		`{` + header + `, "interface": "a"}`:                        `unknown field "interface"`,
		`{` + header + `, "network": "a", "network": "b"}`:          `duplicate field "network"`,
		`{` + header + `, "interfaceName": "0123456789abcdef"}`:     `parameters.interfaceName: Invalid value: "0123456789abcdef"`,
		`{` + header + `, "interfaceName": "a/b"}`:                  `parameters.interfaceName: Invalid value: "a/b"`,
		`{` + header + `, "interfaceName": "eth0"}`:                 `parameters.interfaceName: Forbidden: each pod has an interface eth0 already`,
		`{` + header + `, "interfaceName": "lo"}`:                   `parameters.interfaceName: Forbidden`,
		`{` + header + `, "interfaceName": "net%d"}`:                `parameters.interfaceName: Invalid value: "net%d": must consist of printable characters of ASCII without %`,
		`{` + header + `, "interfaceName": "100%"}`:                 `parameters.interfaceName: Invalid value`,
		`{` + header + `, "interfaceName": "a:1"}`:                  `parameters.interfaceName: Invalid value: "a:1"`,
		`{` + header + `, "interfaceName": "a b"}`:                  `parameters.interfaceName: Invalid value: "a b"`,
		`{` + header + `, "interfaceName": "à"}`:                    `parameters.interfaceName: Invalid value: "à"`, // its second byte is a space of Latin-1
		`{` + header + `, "interfaceName": "a\u0001"}`:              `parameters.interfaceName: Invalid value`,
		`{` + header + `, "interfaceName": ".."}`:                   `parameters.interfaceName: Invalid value`,
		`{` + header + `, "interfaceName": "all"}`:                  `parameters.interfaceName: Forbidden: the kernel does not allow an interface all`,
		`{` + header + `, "interfaceName": "default"}`:              `parameters.interfaceName: Forbidden`,
		`{` + header + `, "network": "a", "config": {"name": "b"}}`: `parameters.config: Forbidden: cannot be set together with network`,
	} {
		_, err := Decode([]byte(parameters), field.NewPath("parameters"))
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s:\n got %v\nwant %s", parameters, err, expected)
		}
	}
}

func TestParseNetworkInvalid(t *testing.T) {
	for network, expected := range map[string]string{
		`[]`: "error parsing",
		`{"cniVersion": "1.0.0", "plugins": [{"type": "bridge"}]}`:           "no name",
		`{"cniVersion": "1.0.0", "name": "a/b", "plugins": [{"type": "x"}]}`: "name:",
		`{"cniVersion": "1.0.0", "name": "a"}`:                               "plugins: the list must contain at least one plugin",
		`{"cniVersion": "9.0.0", "name": "a", "plugins": [{"type": "x"}]}`:   `cniVersion: Unsupported value: "9.0.0"`,
		`{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "a/b"}]}`: `plugins[0].type: Invalid value: "a/b"`,
	} {
		if _, err := ParseNetwork([]byte(network)); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s:\n got %v\nwant %s", network, err, expected)
		}
	}
}

// FuzzDecode checks that no parameters get the driver to panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{` + header + `, "network": "a", "interfaceName": "b"}`))
	f.Add([]byte(`{` + header + `, "config": ` + list + `}`))
	f.Fuzz(func(t *testing.T, parameters []byte) {
		c, err := Decode(parameters, field.NewPath("parameters"))
		if err != nil {
			return
		}
		if len(c.Config) > 0 {
			_, _ = ParseNetwork(c.Config)
		}
	})
}
