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

// From 1.36 on the feature cannot be turned off.

package resourceclaim

import (
	"encoding/json"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestWarnAdminAccessDisabled covers for which claims there is an Event.
func TestWarnAdminAccessDisabled(t *testing.T) {
	// Each version of the API ignores what it does not know.
	const admin = `{"spec":{"devices":{"requests":[{"name":"a"},{"name":"b","adminAccess":true,"exactly":{"adminAccess":true}}]}}}`
	for name, tc := range map[string]struct {
		claim   string
		enabled bool
		expect  bool
	}{
		"admin access":             {claim: admin, expect: true},
		"admin access, feature on": {claim: admin, enabled: true},
		"no admin access":          {claim: `{"spec":{"devices":{"requests":[{"name":"a","adminAccess":false,"exactly":{"adminAccess":false}}]}}}`},
		"allocated":                {claim: strings.Replace(admin, "{", `{"status":{"allocation":{}},`, 1)},
		"being deleted":            {claim: strings.Replace(admin, "{", `{"metadata":{"deletionTimestamp":"2025-01-01T00:00:00Z"},`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{}
			if err := json.Unmarshal([]byte(tc.claim), claim); err != nil {
				t.Fatal(err)
			}
			recorder := record.NewFakeRecorder(10)
			(&Controller{recorder: recorder}).warnAdminAccessDisabled(claim, tc.enabled)
			close(recorder.Events)
			var events []string
			for event := range recorder.Events {
				events = append(events, event)
			}
			if tc.expect != (len(events) == 1) {
				t.Errorf("want an Event: %t, got %q", tc.expect, events)
			}
			for _, event := range events {
				if !strings.Contains(event, "admin access is requested, but the feature is disabled") {
					t.Errorf("unexpected Event: %s", event)
				}
			}
			// Before the controller runs there is nobody to tell.
			(&Controller{}).warnAdminAccessDisabled(claim, tc.enabled)
		})
	}
}

// TestSyncAdminAccessDisabled checks that the user is told when the controller looks at
// the claim.
func TestSyncAdminAccessDisabled(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		tCtx := ktesting.Init(t)
		claim := &resourceapi.ResourceClaim{}
		if err := json.Unmarshal([]byte(`{"metadata":{"namespace":"ns","name":"claim"},"spec":{"devices":{"requests":[{"name":"a","adminAccess":true,"exactly":{"adminAccess":true}}]}}}`), claim); err != nil {
			t.Fatal(err)
		}
		client := fake.NewSimpleClientset(claim)
		factory := informers.NewSharedInformerFactory(client, 0)
		ec, err := newAdminAccessController(tCtx.Logger(), client, factory, enabled)
		if err != nil {
			t.Fatal(err)
		}
		recorder := record.NewFakeRecorder(10)
		ec.recorder = recorder
		factory.Start(tCtx.Done())
		factory.WaitForCacheSync(tCtx.Done())
		if err := ec.syncHandler(tCtx, claimKeyPrefix+"ns/claim"); err != nil {
			t.Fatal(err)
		}
		if got := len(recorder.Events); (got == 1) == enabled {
			t.Errorf("feature enabled %t: got %d Events", enabled, got)
		}
	}
}
