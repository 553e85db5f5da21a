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
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// This file is about claims which were generated from a ResourceClaimTemplate with
// spec.spec.reservedFor. Such a claim is for all pods which have the same consumer: their
// nearest controller of the kind in the template.
//
// Which pods those are is not decided by owner references of the claim: those may be
// changed, and the pods may be adopted by something else. What counts is the mark
// that the claim has and its name, and that the pod was told to use it.

// GeneratedForAnnotation is the key of the mark. Only the ResourceClaim controller may create a
// claim with it, and nobody may change it.
const GeneratedForAnnotation = "resource.kubernetes.io/generated-for"

// PodClaimNameAnnotation is the key of upstream's annotation of a generated claim. Its value is
// the name of the entry in spec.resourceClaims of the pods.
const PodClaimNameAnnotation = "resource.kubernetes.io/pod-claim-name"

// DefaultGeneratedReleaseWhenIdle is what [ReleaseWhenIdleAnnotation] is by default for
// a generated claim. Whoever creates pods decides for which consumer a claim gets
// generated, also for one that never has a pod that runs.
const DefaultGeneratedReleaseWhenIdle = 10 * time.Minute

// maxGeneratedPrefix is what fits into a name with 63 characters besides a hyphen and the hash.
const maxGeneratedPrefix = 46

// GeneratedFor says for which pods a claim was generated. It is what the mark contains.
type GeneratedFor struct {
	// GroupResource is that of the consumer, "pods" if that is a pod.
	schema.GroupResource
	// Name and UID are those of the consumer, in the namespace of the claim.
	Name string
	UID  types.UID
	// Template is the name of the ResourceClaimTemplate.
	Template string
}

// String returns the value of the mark.
func (g GeneratedFor) String() string {
	return strings.Join([]string{g.GroupResource.String(), g.Name, string(g.UID), g.Template}, "/")
}

// ParseGeneratedFor parses a value of the mark.
func ParseGeneratedFor(value string) (GeneratedFor, error) {
	parts := strings.Split(value, "/")
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] == "" || parts[3] == "" {
		return GeneratedFor{}, fmt.Errorf("must be resource, name and UID of an object, and the name of a ResourceClaimTemplate, separated by slashes")
	}
	return GeneratedFor{GroupResource: schema.ParseGroupResource(parts[0]), Name: parts[1], UID: types.UID(parts[2]), Template: parts[3]}, nil
}

// GeneratedForOf returns what the mark of a claim contains, nil if it has none. If it is not valid,
// then it has one for nothing.
func GeneratedForOf(claim metav1.Object) *GeneratedFor {
	value, marked := claim.GetAnnotations()[GeneratedForAnnotation]
	if !marked {
		return nil
	}
	generatedFor, err := ParseGeneratedFor(value)
	if err != nil {
		return &GeneratedFor{}
	}
	return &generatedFor
}

// ClaimName returns the name of the claim which is generated for the entry with the given
// name in spec.resourceClaims of the pods. It differs for each incarnation
// of the consumer, and is the same for all that try to create the claim.
func (g GeneratedFor) ClaimName(entry string) string {
	hash := sha256.New()
	for _, part := range []string{string(g.UID), entry, g.Template} {
		// With its length, such that no two lists are the same text.
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		hash.Write([]byte(part))
	}
	suffix := strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil)[:10]))
	prefix := g.Name + "-" + entry
	if len(prefix) > maxGeneratedPrefix {
		prefix = strings.TrimRight(prefix[:maxGeneratedPrefix], ".-")
	}
	if len(validation.IsDNS1123Subdomain(prefix)) > 0 {
		// Not all objects have a name that a claim may have.
		return suffix
	}
	return prefix + "-" + suffix
}

// isForConsumerOf returns an error unless the pod was told to use a claim that was
// generated for its consumer.
func isForConsumerOf(pod *v1.Pod, claim *resourceapi.ResourceClaim, generatedFor *GeneratedFor) error {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if claim.Namespace != pod.Namespace || ptr.Deref(entry.ResourceClaimTemplateName, "") != generatedFor.Template ||
			claim.Name != generatedFor.ClaimName(entry.Name) {
			continue
		}
		if name, _, err := Name(pod, entry); err == nil && ptr.Deref(name, "") == claim.Name {
			return nil
		}
	}
	return fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s, but for those Pods of %s %q which use ResourceClaimTemplate %q", claim.Namespace, claim.Name, pod.Namespace, pod.Name,
		generatedFor.GroupResource, generatedFor.Name, generatedFor.Template)
}
