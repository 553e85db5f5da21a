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

package resourceclaim

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIsForPodWithoutGroup covers the claim of an earlier pod with the same name: the pod is
// in no group, but claims of groups are accepted.
func TestIsForPodWithoutGroup(t *testing.T) {
	controller := true
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "earlier", Controller: &controller},
	}}}
	for name, group := range map[string]*v1.PodSchedulingGroup{"no group": nil, "no name": {}} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "later"}, Spec: v1.PodSpec{SchedulingGroup: group}}
			err := IsForPod(pod, claim, true)
			if want := "ResourceClaim ns/claim was not created for Pod ns/pod (Pod is not owner)"; err == nil || err.Error() != want {
				t.Errorf("want %q, got %v", want, err)
			}
		})
	}
}
