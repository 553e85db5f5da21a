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

package drivers

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func newPod(name string, claims ...v1.PodResourceClaim) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: "node", ResourceClaims: claims},
	}
}

func with(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(pod)
	return pod
}

// TestPodsOf goes through the ways in which a pod can refer to a claim. The claim is
// reserved for a Job in all of them: that does not say which pods use it.
func TestPodsOf(t *testing.T) {
	shared := v1.PodResourceClaim{Name: "device", ResourceClaimName: ptr.To("claim")}
	generated := v1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: ptr.To("template")}
	made := func(pod *v1.Pod) {
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "device", ResourceClaimName: ptr.To("claim")}}
	}
	unused := func(pod *v1.Pod) {
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "device"}}
	}
	extended := func(pod *v1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
	}
	grouped := func(pod *v1.Pod) {
		made(pod)
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("group")}
	}
	owner := func(apiVersion, kind, name string) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}
	}

	for name, tc := range map[string]struct {
		owner *metav1.OwnerReference
		pods  []*v1.Pod
		want  []string
	}{
		"shared by pods of a Job": {pods: []*v1.Pod{newPod("a", shared), newPod("b", shared), newPod("c")}, want: []string{"a", "b"}},
		"one pod refers to it twice": {
			pods: []*v1.Pod{newPod("a", shared, v1.PodResourceClaim{Name: "again", ResourceClaimName: ptr.To("claim")})},
			want: []string{"a"},
		},
		"another claim":                           {pods: []*v1.Pod{newPod("a", v1.PodResourceClaim{Name: "device", ResourceClaimName: ptr.To("other")})}},
		"another namespace":                       {pods: []*v1.Pod{with(newPod("a", shared), func(pod *v1.Pod) { pod.Namespace = "other" })}},
		"another node":                            {pods: []*v1.Pod{with(newPod("a", shared), func(pod *v1.Pod) { pod.Spec.NodeName = "other" })}},
		"succeeded":                               {pods: []*v1.Pod{with(newPod("a", shared), func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded })}},
		"failed":                                  {pods: []*v1.Pod{with(newPod("a", shared), func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed })}},
		"generated":                               {owner: owner("v1", "Pod", "a"), pods: []*v1.Pod{with(newPod("a", generated), made), newPod("b", generated)}, want: []string{"a"}},
		"generated for another pod of that name":  {owner: owner("v1", "Pod", "former"), pods: []*v1.Pod{with(newPod("a", generated), made)}},
		"generated for nobody":                    {pods: []*v1.Pod{with(newPod("a", generated), made)}},
		"no claim was needed":                     {pods: []*v1.Pod{with(newPod("a", generated), unused)}},
		"generated for the PodGroup":              {owner: owner("scheduling.k8s.io/v1alpha2", "PodGroup", "group"), pods: []*v1.Pod{with(newPod("a", generated), grouped)}, want: []string{"a"}},
		"of an extended resource":                 {owner: owner("v1", "Pod", "a"), pods: []*v1.Pod{with(newPod("a"), extended)}, want: []string{"a"}},
		"of an extended resource, of another pod": {owner: owner("v1", "Pod", "former"), pods: []*v1.Pod{with(newPod("a"), extended)}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim"}}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "batch", Resource: "jobs", Name: "job", UID: "job"}}
			if tc.owner != nil {
				claim.OwnerReferences = []metav1.OwnerReference{*tc.owner}
			}
			pods, err := PodsOf(claim, "node", tc.pods)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range pods {
				got = append(got, pod.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}

// TestPodsOfUnknown covers a reference of a kind that came later: it may be the claim, so
// the driver must not go on as if the pod did not use it.
func TestPodsOfUnknown(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
	if pods, err := PodsOf(claim, "node", []*v1.Pod{newPod("a", v1.PodResourceClaim{Name: "device"})}); err == nil {
		t.Errorf("want an error, got pods %v", pods)
	}
}
