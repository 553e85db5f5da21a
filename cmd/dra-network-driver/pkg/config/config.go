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

// Package config is what a claim or a DeviceClass tells the driver about a
// network device: opaque parameters in the configuration of a request.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	strictjson "sigs.k8s.io/json"

	"kubernetes-dra/cnistatus"
)

const (
	// APIVersion and Kind identify the parameters.
	APIVersion = "network.dra.example.com/v1alpha1"
	Kind       = "NetworkConfig"
)

// NetworkConfig are the parameters of a network device. Those of the claim
// add to those of its DeviceClass, which decides for which network the device is.
type NetworkConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// InterfaceName is that of the interface in the pod: at most 15 printable
	// characters of ASCII without /, : and %, and none of the names that are taken:
	// lo and eth0 by each pod, all and default by the kernel. By default, it is the
	// first one of net1, net2, ... that the pod does not have. That of the claim wins.
	InterfaceName string `json:"interfaceName,omitempty"`

	// Network is the name of a CNI network which the node has in the driver's
	// configuration directory. Exactly one of Network and Config must be set
	// in the DeviceClass or, if the class allows that, in the claim.
	Network string `json:"network,omitempty"`

	// Config is a CNI network configuration, with a list of plugins. It
	// decides what runs as root on the node, so it is only for a DeviceClass,
	// unless the driver's administrator allows it for claims.
	Config json.RawMessage `json:"config,omitempty"`

	// AllowNetworkInClaims lets a claim name a network of the node, also another one than the
	// DeviceClass sets. It is only for a DeviceClass.
	AllowNetworkInClaims bool `json:"allowNetworkInClaims,omitempty"`
}

// Source finds out what a device shall be connected to.
type Source struct {
	// Driver is the name of the driver.
	Driver string
	// Dir is where the node has configurations of CNI networks.
	Dir string
	// AllowConfigInClaims lets everybody who may create a claim decide what
	// runs as root on the node.
	AllowConfigInClaims bool
}

// Device is the configuration of a device.
type Device struct {
	// InterfaceName is empty if the driver may choose.
	InterfaceName string
	// Network is a CNI network configuration list.
	Network []byte
}

// Decode reads parameters, strictly: unknown and duplicate fields are errors.
func Decode(raw []byte, path *field.Path) (*NetworkConfig, error) {
	var c NetworkConfig
	strict, err := strictjson.UnmarshalStrict(raw, &c)
	if err != nil {
		return nil, fmt.Errorf("%s: not a %s: %w", path, Kind, err)
	}
	if err := errors.Join(strict...); err != nil {
		return nil, fmt.Errorf("%s: not a %s: %w", path, Kind, err)
	}
	if c.APIVersion != APIVersion {
		return nil, field.NotSupported(path.Child("apiVersion"), c.APIVersion, []string{APIVersion})
	}
	if c.Kind != Kind {
		return nil, field.NotSupported(path.Child("kind"), c.Kind, []string{Kind})
	}
	if c.InterfaceName != "" {
		name := path.Child("interfaceName")
		if err := validateInterfaceName(c.InterfaceName, name); err != nil {
			return nil, err
		}
	}
	if c.Network != "" && len(c.Config) > 0 {
		return nil, field.Forbidden(path.Child("config"), "cannot be set together with network")
	}
	return &c, nil
}

// validateInterfaceName accepts names that the kernel takes as they are. It takes any
// byte but the space of each of its character sets, / and :, and replaces %d by a number:
// the interface would have another name than the one that is reported, checked and deleted.
func validateInterfaceName(name string, path *field.Path) error {
	if err := utils.ValidateInterfaceName(name); err != nil {
		return field.Invalid(path, name, err.Error())
	}
	for _, b := range []byte(name) {
		if b <= ' ' || b > '~' || b == '%' {
			return field.Invalid(path, name, "must consist of printable characters of ASCII without %")
		}
	}
	switch name {
	case "lo", "eth0":
		return field.Forbidden(path, fmt.Sprintf("each pod has an interface %s already", name))
	case "all", "default":
		// It has files with these names where each interface has a folder.
		return field.Forbidden(path, fmt.Sprintf("the kernel does not allow an interface %s", name))
	}
	return nil
}

// ForResult returns the configuration of an allocated device.
func (s *Source) ForResult(allocation *resourceapi.AllocationResult, result resourceapi.DeviceRequestAllocationResult) (*Device, error) {
	root := field.NewPath("status", "allocation", "devices", "config")
	var network, config, iface *field.Path
	var merged NetworkConfig
	// Those of the class come first, whatever their order is.
	for _, ofClass := range []bool{true, false} {
		for i, c := range allocation.Devices.Config {
			if c.Opaque == nil || c.Opaque.Driver != s.Driver || ofClass != (c.Source == resourceapi.AllocationConfigSourceClass) {
				continue
			}
			if len(resourceclaim.ConfigForResult([]resourceapi.DeviceAllocationConfiguration{c}, result)) == 0 {
				continue
			}
			path := root.Index(i).Child("opaque", "parameters")
			decoded, err := Decode(c.Opaque.Parameters.Raw, path)
			if err != nil {
				return nil, err
			}
			if !ofClass {
				if err := s.checkClaim(decoded, path, merged.AllowNetworkInClaims); err != nil {
					return nil, err
				}
			}
			if decoded.InterfaceName != "" {
				merged.InterfaceName, iface = decoded.InterfaceName, path.Child("interfaceName")
			}
			merged.AllowNetworkInClaims = merged.AllowNetworkInClaims || decoded.AllowNetworkInClaims
			switch {
			case decoded.Network != "":
				merged.Network, network = decoded.Network, path.Child("network")
				merged.Config, config = nil, nil
			case len(decoded.Config) > 0:
				merged.Config, config = decoded.Config, path.Child("config")
				merged.Network, network = "", nil
			}
		}
	}
	if iface != nil && result.Request != "" && allocatedTo(allocation, s.Driver, result.Request) > 1 {
		return nil, field.Invalid(iface, merged.InterfaceName, fmt.Sprintf("the request %q has several devices, and they cannot have the same name", result.Request))
	}
	device := &Device{InterfaceName: merged.InterfaceName}
	switch {
	case network != nil:
		data, err := s.load(merged.Network)
		if err != nil {
			return nil, field.Invalid(network, merged.Network, err.Error())
		}
		device.Network = data
	case config != nil:
		if _, err := ParseNetwork(merged.Config); err != nil {
			return nil, field.Invalid(config, "<value omitted>", err.Error())
		}
		device.Network = merged.Config
	default:
		return nil, field.Required(root, fmt.Sprintf("neither the DeviceClass nor the claim says which network the device of request %q is for: opaque parameters for driver %s with network or config", result.Request, s.Driver))
	}
	return device, nil
}

// checkClaim checks what a claim must not decide. allowed says that its class lets claims choose
// the network.
func (s *Source) checkClaim(c *NetworkConfig, path *field.Path, allowed bool) error {
	if c.AllowNetworkInClaims {
		return field.Forbidden(path.Child("allowNetworkInClaims"), "only a DeviceClass may have it")
	}
	if len(c.Config) > 0 && !s.AllowConfigInClaims {
		return field.Forbidden(path.Child("config"), "only a DeviceClass may have it, because it decides what runs as root on the node; name a network of the node instead")
	}
	if allowed {
		return nil
	}
	const detail = "the DeviceClass says which network its devices are for; a claim may only choose one if the class has allowNetworkInClaims"
	if c.Network != "" {
		return field.Forbidden(path.Child("network"), detail)
	}
	if len(c.Config) > 0 {
		return field.Forbidden(path.Child("config"), detail)
	}
	return nil
}

func allocatedTo(allocation *resourceapi.AllocationResult, driver, request string) int {
	n := 0
	for _, result := range allocation.Devices.Results {
		if result.Driver == driver && result.Request == request {
			n++
		}
	}
	return n
}

var pluginType = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// ParseNetwork checks a CNI network configuration list.
func ParseNetwork(data []byte) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("plugins: the list must contain at least one plugin")
	}
	if list.CNIVersion != "" && !slices.Contains(cnistatus.Versions, list.CNIVersion) {
		return nil, field.NotSupported(field.NewPath("cniVersion"), list.CNIVersion, cnistatus.Versions)
	}
	for i, plugin := range list.Plugins {
		// The type is a file name in the directories of plugins.
		if !pluginType.MatchString(plugin.Network.Type) {
			return nil, field.Invalid(field.NewPath("plugins").Index(i).Child("type"), plugin.Network.Type, "must be the name of a CNI plugin")
		}
	}
	return list, nil
}

// load finds the network of the given name in the configuration directory.
func (s *Source) load(name string) ([]byte, error) {
	files, err := libcni.ConfFiles(s.Dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s on this node: %w", s.Dir, err)
	}
	var broken []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("on this node: %w", err)
		}
		list, err := ParseNetwork(data)
		if err != nil {
			// Another network may be broken without harm to this one.
			broken = append(broken, filepath.Base(file))
			continue
		}
		if list.Name == name {
			return data, nil
		}
	}
	// Which other networks there are is not for everybody who may create a claim.
	if len(broken) > 0 {
		return nil, fmt.Errorf("this node has no such network in %s; these files there cannot be read: %s", s.Dir, strings.Join(broken, ", "))
	}
	return nil, fmt.Errorf("this node has no such network in %s", s.Dir)
}
