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

package kubelet

import (
	v1 "k8s.io/api/core/v1"
)

// reportUnprepareFailure explains to the user why a pod stays Terminating, most likely because the driver
// is gone. It returns the error.
func (kl *Kubelet) reportUnprepareFailure(pod *v1.Pod, err error) error {
	if err != nil {
		kl.recorder.Eventf(pod, v1.EventTypeWarning, "FailedUnprepareDynamicResources", "Failed to unprepare dynamic resources, the pod does not end before that succeeds: %v", err)
	}
	return err
}
