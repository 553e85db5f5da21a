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

package retention

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		facts  Facts
		expect Decision
	}{
		"nothing-known":         {expect: FindCachedUsers},
		"watched-active":        {facts: Facts{Cached: Active}, expect: KeepActive},
		"watched-done":          {facts: Facts{Cached: Done}, expect: FindCachedUsers},
		"watched-done-pods":     {facts: Facts{Cached: Done, CachedUsers: UsageFound}, expect: KeepForPods},
		"watched-done-no-pods":  {facts: Facts{Cached: Done, CachedUsers: UsageNone}, expect: GetStored},
		"pods":                  {facts: Facts{CachedUsers: UsageFound}, expect: KeepInUse},
		"no-pods":               {facts: Facts{CachedUsers: UsageNone}, expect: GetStored},
		"no-pods-being-listed":  {facts: Facts{CachedUsers: UsageNone, StoredUsers: UsagePending}, expect: KeepUntilListed},
		"stored-active":         {facts: Facts{Cached: Done, CachedUsers: UsageNone, Stored: Active}, expect: KeepActive},
		"stored-forbidden":      {facts: Facts{CachedUsers: UsageNone, Stored: Forbidden}, expect: KeepUnchecked},
		"stored-unknown":        {facts: Facts{CachedUsers: UsageNone, Stored: UnknownResource}, expect: KeepUnchecked},
		"stored-deferred":       {facts: Facts{CachedUsers: UsageNone, Stored: Deferred}, expect: KeepUntilChecked},
		"stored-failed":         {facts: Facts{CachedUsers: UsageNone, Stored: Failed}, expect: KeepAfterError},
		"stored-done":           {facts: Facts{CachedUsers: UsageNone, Stored: Done}, expect: FindStoredUsers},
		"stored-done-listed":    {facts: Facts{CachedUsers: UsageNone, Stored: Done, StoredUsers: UsageNone}, expect: Release},
		"stored-done-pod":       {facts: Facts{CachedUsers: UsageNone, Stored: Done, StoredUsers: UsageFound}, expect: KeepForNewPod},
		"stored-done-pending":   {facts: Facts{CachedUsers: UsageNone, Stored: Done, StoredUsers: UsagePending}, expect: KeepUntilListed},
		"stored-done-failed":    {facts: Facts{CachedUsers: UsageNone, Stored: Done, StoredUsers: UsageFailed}, expect: KeepAfterError},
		"several-pods":          {facts: Facts{Several: true, CachedUsers: UsageFound}, expect: GetStored},
		"several-pods-done":     {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: Done}, expect: KeepForPods},
		"several-pods-covered":  {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: Done, Covered: true}, expect: Release},
		"several-pods-last":     {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: Done, Superseded: true}, expect: Release},
		"several-active":        {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: Active, Covered: true}, expect: KeepActive},
		"several-unknown":       {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: UnknownResource, Covered: true}, expect: KeepUnchecked},
		"several-unknown-older": {facts: Facts{Several: true, CachedUsers: UsageFound, Stored: UnknownResource, Superseded: true}, expect: Release},
		"deleted-active":        {facts: Facts{ClaimDeleted: true, Cached: Active}, expect: FindCachedUsers},
		"deleted-pods":          {facts: Facts{ClaimDeleted: true, Cached: Active, CachedUsers: UsageFound}, expect: KeepForPods},
		"deleted-no-pods":       {facts: Facts{ClaimDeleted: true, Cached: Active, CachedUsers: UsageNone}, expect: FindStoredUsers},
		"deleted-listed":        {facts: Facts{ClaimDeleted: true, Cached: Active, CachedUsers: UsageNone, StoredUsers: UsageNone}, expect: Release},
		"deleted-pod":           {facts: Facts{ClaimDeleted: true, CachedUsers: UsageNone, StoredUsers: UsageFound}, expect: KeepForNewPod},
		"idle-wanted":           {facts: Facts{ReleaseWhenIdle: true, Cached: Active}, expect: FindCachedUsers},
		"idle-not-yet":          {facts: Facts{ReleaseWhenIdle: true, Cached: Active, CachedUsers: UsageNone}, expect: KeepActive},
		"idle-not-yet-custom":   {facts: Facts{ReleaseWhenIdle: true, CachedUsers: UsageNone}, expect: GetStored},
		"idle":                  {facts: Facts{ReleaseWhenIdle: true, Idle: true, Cached: Active, CachedUsers: UsageNone}, expect: FindStoredUsers},
		"idle-listed":           {facts: Facts{ReleaseWhenIdle: true, Idle: true, Cached: Active, CachedUsers: UsageNone, StoredUsers: UsageNone}, expect: Release},
		"idle-pod":              {facts: Facts{ReleaseWhenIdle: true, Idle: true, Cached: Active, CachedUsers: UsageNone, StoredUsers: UsageFound}, expect: KeepForNewPod},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.expect, Decide(test.facts))
		})
	}
}
