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
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

var testGeneratedFor = GeneratedFor{GroupResource: schema.GroupResource{Group: "batch", Resource: "jobs"}, Name: "train-0", UID: "1234", Template: "imex"}

func TestGeneratedForOf(t *testing.T) {
	claim := &resourceapi.ResourceClaim{}
	assert.Nil(t, GeneratedForOf(claim))
	for _, generatedFor := range []GeneratedFor{testGeneratedFor, {GroupResource: schema.GroupResource{Resource: "pods"}, Name: "leader", UID: "1", Template: "t"}} {
		claim.Annotations = map[string]string{GeneratedForAnnotation: generatedFor.String()}
		assert.Equal(t, &generatedFor, GeneratedForOf(claim))
	}
	for _, value := range []string{"", "jobs.batch", "jobs.batch/a/b", "jobs.batch/a/b/c/d", "/a/b/c", "jobs.batch//b/c"} {
		_, err := ParseGeneratedFor(value)
		assert.Error(t, err, value)
		claim.Annotations[GeneratedForAnnotation] = value
		assert.Equal(t, &GeneratedFor{}, GeneratedForOf(claim), "marked for nothing")
	}
}

func TestClaimName(t *testing.T) {
	name := testGeneratedFor.ClaimName("channel")
	assert.Regexp(t, "^train-0-channel-[a-z2-7]{16}$", name)
	assert.Equal(t, name, testGeneratedFor.ClaimName("channel"), "the same for all who create it")

	// What makes another claim.
	names := map[string]string{name: "same"}
	differs := func(what string, generatedFor GeneratedFor, entry string) {
		t.Helper()
		name := generatedFor.ClaimName(entry)
		assert.Empty(t, names[name], what)
		names[name] = what
	}
	other := testGeneratedFor
	other.UID = "1235"
	differs("incarnation", other, "channel")
	other = testGeneratedFor
	other.Template = "other"
	differs("template", other, "channel")
	differs("entry", testGeneratedFor, "other")
	// The same text if it was only concatenated.
	differs("boundary", GeneratedFor{Name: "train-0", UID: "1234c", Template: "imex"}, "hannel")
	differs("boundary", GeneratedFor{Name: "train-0", UID: "1234", Template: "limex"}, "channe")

	for consumer, prefix := range map[string]string{
		"a":                      "a-channel-",
		strings.Repeat("a", 37):  strings.Repeat("a", 37) + "-channel-",
		strings.Repeat("a", 253): strings.Repeat("a", 46) + "-",
		strings.Repeat("a", 45) + "." + strings.Repeat("b", 10): strings.Repeat("a", 45) + "-",
		strings.Repeat("a", 46) + "-b":                          strings.Repeat("a", 46) + "-",
		"a.b":                                                   "a.b-channel-",
		"System:Node":                                           "",
		"..":                                                    "",
		"_":                                                     "",
	} {
		generatedFor := GeneratedFor{Name: consumer, UID: "1234", Template: "imex"}
		name := generatedFor.ClaimName("channel")
		assert.Empty(t, validation.IsDNS1123Subdomain(name), name)
		assert.LessOrEqual(t, len(name), 63, name)
		assert.Equal(t, len(prefix)+16, len(name), name)
		assert.True(t, strings.HasPrefix(name, prefix), name)
	}
}

func TestIsForPodGenerated(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "ns",
		Name:        testGeneratedFor.ClaimName("channel"),
		Annotations: map[string]string{GeneratedForAnnotation: testGeneratedFor.String()},
		// Says nothing.
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: "owner-uid", Controller: ptr.To(true)}},
	}}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid"},
		Spec:       v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{Name: "other", ResourceClaimName: ptr.To("x")}, {Name: "channel", ResourceClaimTemplateName: ptr.To("imex")}}},
		Status:     v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "channel", ResourceClaimName: &claim.Name}}},
	}
	require.NoError(t, isForPod(pod, claim))

	for name, change := range map[string]func(pod *v1.Pod, claim *resourceapi.ResourceClaim){
		"namespace": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) { pod.Namespace = "other" },
		"template": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			pod.Spec.ResourceClaims[1].ResourceClaimTemplateName = ptr.To("other")
		},
		"named directly": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			pod.Spec.ResourceClaims[1] = v1.PodResourceClaim{Name: "channel", ResourceClaimName: &claim.Name}
		},
		"no status": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) { pod.Status.ResourceClaimStatuses = nil },
		"other status": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			pod.Status.ResourceClaimStatuses[0].ResourceClaimName = ptr.To("x")
		},
		"other entry": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			pod.Spec.ResourceClaims[1].Name, pod.Status.ResourceClaimStatuses[0].Name = "renamed", "renamed"
		},
		"other incarnation": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			other := testGeneratedFor
			other.UID = "other"
			claim.Annotations[GeneratedForAnnotation] = other.String()
		},
		"invalid mark": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) { claim.Annotations[GeneratedForAnnotation] = "x" },
		"owner of the claim": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) {
			pod.Name, pod.UID = "owner", "owner-uid"
			pod.Status.ResourceClaimStatuses = nil
		},
		"mark removed": func(pod *v1.Pod, claim *resourceapi.ResourceClaim) { claim.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			pod, claim := pod.DeepCopy(), claim.DeepCopy()
			change(pod, claim)
			err := isForPod(pod, claim)
			assert.ErrorContains(t, err, fmt.Sprintf("%s/%s", claim.Namespace, claim.Name))
		})
	}
}
