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

package install

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internal "k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/utils/ptr"
)

// reservedForField is the number of both new fields in protobuf, the one of
// the KEP. It must never change because it is in stored objects. Upstream
// hands out numbers in sequence and thus will not reach it.
const reservedForField = 5194

// TestReservedForEncoding checks in all versions with ResourceClaims that
// spec.reservedFor and status.allocation.reservedForAnyPod survive encoding
// and conversion, where they are in stored objects, and that objects
// without them have no trace of them.
func TestReservedForEncoding(t *testing.T) {
	reference := internal.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "training", UID: "1234"}
	for name, tc := range map[string]struct {
		reservedFor       *internal.ResourceClaimWorkloadReference
		reservedForAnyPod *bool
	}{
		"unset": {},
		"set": {
			reservedFor:       (*internal.ResourceClaimWorkloadReference)(&reference),
			reservedForAnyPod: ptr.To(true),
		},
		"without-uid": {
			reservedFor: &internal.ResourceClaimWorkloadReference{Resource: "things", Name: "x"},
		},
		// Not the same as unset.
		"false": {
			reservedForAnyPod: ptr.To(false),
		},
	} {
		claim := &internal.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"},
			Spec:       internal.ResourceClaimSpec{ReservedFor: tc.reservedFor},
			Status: internal.ResourceClaimStatus{
				Allocation:  &internal.AllocationResult{ReservedForAnyPod: tc.reservedForAnyPod},
				ReservedFor: []internal.ResourceClaimConsumerReference{reference},
			},
		}
		for _, version := range claimVersions(t) {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, version.Version, mediaType), func(t *testing.T) {
					info, ok := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), mediaType)
					if !ok {
						t.Fatalf("no serializer for %s", mediaType)
					}
					codec := legacyscheme.Codecs.CodecForVersions(info.Serializer, info.Serializer, version, runtime.InternalGroupVersioner)
					data, err := runtime.Encode(codec, claim)
					if err != nil {
						t.Fatalf("unexpected encoding error: %v", err)
					}
					got, err := runtime.Decode(codec, data)
					if err != nil {
						t.Fatalf("unexpected decoding error: %v", err)
					}
					if diff := cmp.Diff(claim, got); diff != "" {
						t.Errorf("claim changed (- before, + after):\n%s", diff)
					}

					if mediaType != runtime.ContentTypeProtobuf {
						return
					}
					// A magic number of four bytes, then runtime.Unknown.
					raw, ok := protoField(t, data[4:], 2)
					if !ok {
						t.Fatal("no object in encoded data")
					}
					spec, _ := protoField(t, raw, 2)
					if _, ok := protoField(t, spec, reservedForField); ok != (tc.reservedFor != nil) {
						t.Errorf("field %d in spec: expected %v, got %v", reservedForField, tc.reservedFor != nil, ok)
					}
					status, _ := protoField(t, raw, 3)
					allocation, _ := protoField(t, status, 1)
					if _, ok := protoField(t, allocation, reservedForField); ok != (tc.reservedForAnyPod != nil) {
						t.Errorf("field %d in status.allocation: expected %v, got %v", reservedForField, tc.reservedForAnyPod != nil, ok)
					}
				})
			}
		}
	}
}

// claimVersions returns the external versions of the group which have
// ResourceClaims.
func claimVersions(t *testing.T) []schema.GroupVersion {
	t.Helper()
	var versions []schema.GroupVersion
	for _, version := range legacyscheme.Scheme.PrioritizedVersionsForGroup(internal.GroupName) {
		if legacyscheme.Scheme.Recognizes(version.WithKind("ResourceClaim")) {
			versions = append(versions, version)
		}
	}
	if len(versions) == 0 {
		t.Fatal("no version with ResourceClaims")
	}
	return versions
}

// protoField returns the content of the first field with a number.
func protoField(t *testing.T, message []byte, number protowire.Number) ([]byte, bool) {
	t.Helper()
	for len(message) > 0 {
		num, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatalf("malformed message: %v", protowire.ParseError(n))
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(num, wireType, message)
		if n < 0 {
			t.Fatalf("malformed field %d: %v", num, protowire.ParseError(n))
		}
		if num == number {
			value := message[:n]
			if wireType == protowire.BytesType {
				value, _ = protowire.ConsumeBytes(value)
			}
			return value, true
		}
		message = message[n:]
	}
	return nil, false
}
