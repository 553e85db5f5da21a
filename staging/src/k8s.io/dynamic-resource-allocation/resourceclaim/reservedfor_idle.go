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
	"time"
)

// ReleaseWhenIdleAnnotation can be set on a ResourceClaim with spec.reservedFor
// to a duration like "10m". When no pod has used the claim for that long, then
// its devices become available to others although the workload still exists,
// for example because it is suspended. The next pod of the workload
// gets devices allocated again. Without the annotation, a workload which exists
// keeps its devices.
const ReleaseWhenIdleAnnotation = "resource.kubernetes.io/release-when-idle"

// MinReleaseWhenIdle is the shortest duration that can be set. Anything shorter
// than the time between two pods of the same workload would
// only cause the workload to lose devices that it needs again right away.
const MinReleaseWhenIdle = 10 * time.Second

// ParseReleaseWhenIdle parses a value of [ReleaseWhenIdleAnnotation].
func ParseReleaseWhenIdle(value string) (time.Duration, error) {
	duration, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("must be a duration like 30s, 10m, or 1h30m: %w", err)
	}
	if duration < MinReleaseWhenIdle {
		return 0, fmt.Errorf("must be at least %s", MinReleaseWhenIdle)
	}
	return duration, nil
}
