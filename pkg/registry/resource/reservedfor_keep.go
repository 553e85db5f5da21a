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

package resource

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// KeepSpecFormat replaces the spec of an update by the stored one if they differ in nothing but the format of
// parameters. Those are compared byte by byte otherwise, and nobody could change the labels of an object whose
// parameters were stored with spaces, as clients in Python send them: a patch and most clients format JSON
// anew. The spec is immutable, so nobody meant to change it.
func KeepSpecFormat(spec, oldSpec *resource.ResourceClaimSpec) {
	if d, _ := compareFormat(spec, oldSpec); d.onlyFormat() {
		*spec = *oldSpec.DeepCopy()
	}
}

// KeepFieldManagers gives a field, and the fields in it, back to those who managed it
// in the old object. They lost it before the strategy got called.
func KeepFieldManagers(newMeta, oldMeta *metav1.ObjectMeta, path fieldpath.Path) {
	if len(newMeta.ManagedFields) == 0 {
		// Not tracked, or reset on purpose.
		return
	}
	for _, oldEntry := range oldMeta.ManagedFields {
		oldFields := fieldsOf(oldEntry)
		lost := fieldpath.NewSet()
		oldFields.Iterate(func(p fieldpath.Path) {
			if len(p) >= len(path) && p[:len(path)].Equals(path) {
				lost.Insert(p.Copy())
			}
		})
		if lost.Empty() {
			continue
		}
		index := slices.IndexFunc(newMeta.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Manager == oldEntry.Manager &&
				entry.Operation == oldEntry.Operation &&
				entry.APIVersion == oldEntry.APIVersion &&
				entry.Subresource == oldEntry.Subresource
		})
		entry := oldEntry
		fields := lost
		if index >= 0 {
			entry = newMeta.ManagedFields[index]
			fields = fieldsOf(entry).Union(lost)
		}
		if fields.Equals(oldFields) {
			// Nothing else changed, not even the time.
			entry = oldEntry
		} else {
			raw, err := fields.ToJSON()
			if err != nil {
				// Cannot happen, it was decoded from JSON.
				continue
			}
			entry.FieldsV1 = &metav1.FieldsV1{Raw: raw}
		}
		if index >= 0 {
			newMeta.ManagedFields[index] = entry
		} else {
			newMeta.ManagedFields = append(newMeta.ManagedFields, entry)
		}
	}
}

// fieldsOf returns the fields of one manager. What cannot be decoded was rejected before.
func fieldsOf(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 != nil {
		if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)); err != nil {
			return fieldpath.NewSet()
		}
	}
	return fields
}
