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

package downgrade

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldManager is who this command is for the API server.
const fieldManager = "kubectl-dra-downgrade"

// carryManagers are the field managers that write for the carry: its scheduler, which allocates claims and
// lists workloads, its resourceclaim controller, which lists them again, and this command. The names
// are those of the binaries. Upstream's scheduler and controller have the same names, but list only
// pods and groups of pods.
var carryManagers = sets.New("kube-scheduler", "kube-controller-manager", fieldManager)

var allocationPath = fieldpath.MakePathOrDie("status", "allocation")

func entryPath(ref reference) fieldpath.Path {
	return fieldpath.MakePathOrDie("status", "reservedFor", fieldpath.KeyByFields("uid", string(ref.UID)))
}

// writers says which field managers have written what in a claim. Only the API server fills this in.
type writers map[string]*fieldpath.Set

// newWriters ignores what cannot be read: then nobody has written it.
func newWriters(entries []metav1.ManagedFieldsEntry) writers {
	w := writers{}
	for _, entry := range entries {
		if entry.FieldsV1 == nil {
			continue
		}
		fields := &fieldpath.Set{}
		if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			continue
		}
		if before := w[entry.Manager]; before != nil {
			fields = fields.Union(before)
		}
		w[entry.Manager] = fields
	}
	return w
}

// of returns who has written a field, sorted.
func (w writers) of(path fieldpath.Path) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if w[name].Has(path) {
			names = append(names, name)
		}
	}
	return names
}

// areAll returns true if somebody has written the field, and nobody else than the managers.
func (w writers) areAll(path fieldpath.Path, managers sets.Set[string]) bool {
	names := w.of(path)
	return len(names) > 0 && managers.HasAll(names...)
}

// who is for messages.
func (w writers) who(path fieldpath.Path) string {
	names := w.of(path)
	if len(names) == 0 {
		return "a writer of whom the claim does not tell"
	}
	return strings.Join(names, " and ")
}

// foreignNote says what stays in the list and who put it there.
func foreignNote(c *claim, refs []reference) string {
	notes := make([]string, 0, len(refs))
	for _, ref := range refs {
		notes = append(notes, fmt.Sprintf("%s was listed by %s", ref, c.writers.who(entryPath(ref))))
	}
	return strings.Join(notes, ", ") + ", not by the carry: it stays, and upstream never removes it"
}
