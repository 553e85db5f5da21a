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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTemplateForPodGroup covers templates with the field which a PodGroup uses.
func TestTemplateForPodGroup(t *testing.T) {
	template := groupTemplate("batch", "jobs")
	_, err := templateForPodGroup(template)
	require.ErrorContains(t, err, `ResourceClaimTemplate "imex" is for jobs.batch because of spec.spec.reservedFor, but a PodGroup uses it`)

	template = groupTemplate("scheduling.k8s.io", "podgroups")
	before := template.DeepCopy()
	result, err := templateForPodGroup(template)
	require.NoError(t, err)
	assert.Nil(t, result.Spec.Spec.ReservedFor)
	assert.Equal(t, before, template, "it is in a cache")

	template.Spec.Spec.ReservedFor = nil
	result, err = templateForPodGroup(template)
	require.NoError(t, err)
	assert.Same(t, template, result)
}
