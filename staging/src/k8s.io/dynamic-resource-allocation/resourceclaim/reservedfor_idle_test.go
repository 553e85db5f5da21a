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
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParseReleaseWhenIdle(t *testing.T) {
	for value, expect := range map[string]time.Duration{
		"10s":        10 * time.Second,
		"10m":        10 * time.Minute,
		"1h30m":      90 * time.Minute,
		"10000ms":    10 * time.Second,
		"9.999s":     0,
		"9s":         0,
		"0":          0,
		"-1h":        0,
		"":           0,
		"10":         0,
		"1d":         0,
		" 10m":       0,
		"10 minutes": 0,
		"9999999h":   0,
	} {
		t.Run(value, func(t *testing.T) {
			duration, err := ParseReleaseWhenIdle(value)
			assert.Equal(t, expect, duration)
			assert.Equal(t, expect == 0, err != nil, "error: %v", err)
		})
	}
}
