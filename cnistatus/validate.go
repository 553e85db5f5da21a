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
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks the status of a device against the limits of the API, before
// it is sent: conditions, data and networkData. The server has the same ones and
// more, but it refuses all devices of a claim when one of them is wrong. path
// is that of the status, nil for paths that begin below it.
func Validate(status *resourceapi.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	conditions := path.Child("conditions")
	if n := len(status.Conditions); n > resourceapi.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(conditions, n, resourceapi.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(status.Conditions, conditions)...)
	if status.Data != nil && len(status.Data.Raw) > 0 {
		errs = append(errs, validateData(status.Data.Raw, path.Child("data"))...)
	}
	if status.NetworkData != nil {
		errs = append(errs, validateNetworkData(status.NetworkData, path.Child("networkData"))...)
	}
	return errs
}

func validateData(data []byte, path *field.Path) field.ErrorList {
	// The length that counts is the one in which it arrives at the server: this
	// is how a client sends it.
	encoded, err := json.Marshal(json.RawMessage(data))
	if err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("must be JSON: %v", err))}
	}
	if n := len(encoded); n > resourceapi.AllocatedDeviceStatusDataMaxLength {
		return field.ErrorList{&field.Error{
			Type: field.ErrorTypeTooLong, Field: path.String(), BadValue: "<value omitted>",
			Detail: fmt.Sprintf("it has %d bytes, may not be more than %d", n, resourceapi.AllocatedDeviceStatusDataMaxLength),
		}}
	}
	if encoded[0] != '{' {
		return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a JSON object")}
	}
	return nil
}

func validateNetworkData(data *resourceapi.NetworkDeviceData, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, limit := range []struct {
		name, value string
		max         int
	}{
		{"interfaceName", data.InterfaceName, resourceapi.NetworkDeviceDataInterfaceNameMaxLength},
		{"hardwareAddress", data.HardwareAddress, resourceapi.NetworkDeviceDataHardwareAddressMaxLength},
	} {
		if len(limit.value) > limit.max {
			errs = append(errs, field.TooLong(path.Child(limit.name), "", limit.max))
		}
	}
	ips := path.Child("ips")
	if n := len(data.IPs); n > resourceapi.NetworkDeviceDataMaxIPs {
		errs = append(errs, field.TooMany(ips, n, resourceapi.NetworkDeviceDataMaxIPs))
	}
	seen := sets.New[string]()
	for i, ip := range data.IPs {
		errs = append(errs, validation.IsValidInterfaceAddress(ips.Index(i), ip)...)
		if seen.Has(ip) {
			errs = append(errs, field.Duplicate(ips.Index(i), ip))
		}
		seen.Insert(ip)
	}
	return errs
}
