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

// The tests of these releases have a driver with the beta API.

package dra

import (
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

const draPluginService = drapb.DRAPluginService

func unprepareResponse(err string, claimNames ...string) *drapb.NodeUnprepareResourcesResponse {
	response := &drapb.NodeUnprepareResourcesResponse{Claims: make(map[string]*drapb.NodeUnprepareResourceResponse)}
	for _, name := range claimNames {
		response.Claims[name+"-uid"] = &drapb.NodeUnprepareResourceResponse{Error: err}
	}
	return response
}

// prepareResponse has a device for one claim and none for the others.
func prepareResponse(claimUID types.UID, otherUIDs ...types.UID) *drapb.NodePrepareResourcesResponse {
	device := &drapb.Device{PoolName: poolName, DeviceName: deviceName, RequestNames: []string{requestName}, CDIDeviceIDs: []string{cdiID}}
	response := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{
		string(claimUID): {Devices: []*drapb.Device{device}},
	}}
	for _, uid := range otherUIDs {
		response.Claims[string(uid)] = &drapb.NodePrepareResourceResponse{}
	}
	return response
}
