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

package owners

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

const testLimit = 256 * 1024

func newTestCache(clock *testingclock.FakeClock) *Cache[string, string] {
	return NewCache(clock, testLimit, 4*testLimit, func(key, value string) int { return len(key) + len(value) })
}

// TestCacheLimits ensures that no tenant decides how large the cache gets, that it takes nothing from others, and
// that what is counted is about what is taken.
func TestCacheLimits(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	cache := newTestCache(clock)
	cache.Add("victim", "owner", "controller", time.Hour)

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 10000 {
		// Not a constant: each entry has a copy.
		cache.Add("tenant", fmt.Sprintf("%s-%d", strings.Repeat("x", MaxNameLength), i), fmt.Sprintf("controller-%d", i), time.Hour)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	entries, bytes := cache.Size()
	t.Logf("10000 owners: %d entries, counted as %d bytes, heap grew by %d bytes", entries, bytes, int64(after.HeapAlloc)-int64(before.HeapAlloc))
	assert.Less(t, bytes, testLimit+1024)
	assert.Less(t, entries, 1000)
	value, found := cache.Get("victim", "owner")
	assert.True(t, found)
	assert.Equal(t, "controller", value)

	// Many tenants.
	for i := range 10000 {
		cache.Add(fmt.Sprintf("tenant-%d", i%100), fmt.Sprintf("%s-%d", strings.Repeat("x", MaxNameLength), i), "", time.Hour)
	}
	_, bytes = cache.Size()
	assert.LessOrEqual(t, bytes, 4*testLimit)
	_, found = cache.Get("victim", "owner")
	assert.True(t, found, "largest namespaces go first")
}

// TestCacheExpires ensures that what is not asked for again does not stay.
func TestCacheExpires(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	cache := newTestCache(clock)
	cache.Add("a", "short", "1", time.Second)
	cache.Add("b", "long", "2", time.Hour)
	cache.Add("b", "long", "3", time.Hour)
	entries, _ := cache.Size()
	require.Equal(t, 2, entries)
	clock.Step(time.Second)
	_, found := cache.Get("a", "short")
	require.False(t, found)

	cache.Add("a", "short", "1", time.Second)
	clock.Step(sweepInterval)
	cache.Add("c", "other", "4", time.Hour)
	entries, bytes := cache.Size()
	assert.Equal(t, 2, entries, "swept")
	assert.Len(t, cache.namespaces, 2)
	value, _ := cache.Get("b", "long")
	assert.Equal(t, "3", value)
	cache.Remove("b", "long")
	cache.Remove("c", "other")
	cache.Remove("c", "other")
	entries, bytes = cache.Size()
	assert.Zero(t, entries)
	assert.Zero(t, bytes)
	assert.Empty(t, cache.namespaces)
}

func ownerRef(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
}

// TestFindWorkloadUID covers owner references that no object has.
func TestFindWorkloadUID(t *testing.T) {
	ref := resourceapi.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "job"}
	find := func(owner metav1.OwnerReference, controller *metav1.OwnerReference) (types.UID, error) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", OwnerReferences: []metav1.OwnerReference{owner}}}
		return FindWorkloadUID(pod, ref, func(metav1.OwnerReference) (*metav1.OwnerReference, error) { return controller, nil })
	}
	uid, err := find(ownerRef("job"), nil)
	require.NoError(t, err)
	require.Equal(t, types.UID("job-uid"), uid)
	uid, err = find(ownerRef("other"), ptr.To(ownerRef("job")))
	require.NoError(t, err)
	require.Equal(t, types.UID("job-uid"), uid)

	long := strings.Repeat("x", 1000)
	for name, change := range map[string]func(*metav1.OwnerReference){
		"name":       func(owner *metav1.OwnerReference) { owner.Name = long },
		"kind":       func(owner *metav1.OwnerReference) { owner.Kind = long },
		"uid":        func(owner *metav1.OwnerReference) { owner.UID = types.UID(long) },
		"apiVersion": func(owner *metav1.OwnerReference) { owner.APIVersion = long },
	} {
		t.Run(name, func(t *testing.T) {
			owner := ownerRef("job")
			change(&owner)
			_, err := find(owner, nil)
			assert.Equal(t, TooLong, ReasonFor(err))
			assert.Less(t, len(err.Error()), 100)
			uid, err := find(ownerRef("other"), &owner)
			assert.Equal(t, TooLong, ReasonFor(err))
			assert.Empty(t, uid)
		})
	}
}

// TestReasons ensures that it is said what is wrong about an owner.
func TestReasons(t *testing.T) {
	owner := ownerRef("job")
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	forbidden := apierrors.NewForbidden(jobs, "job", errors.New("no such rule"))
	assert.Equal(t, Forbidden, ReasonForGet(forbidden))
	assert.Equal(t, NotFound, ReasonForGet(apierrors.NewNotFound(jobs, "job")))
	assert.Empty(t, ReasonForGet(errors.New("timeout")))
	assert.Empty(t, ReasonFor(errors.New("timeout")))
	assert.True(t, apierrors.IsForbidden(Unresolved(Forbidden, owner, forbidden)))
	for reason, expect := range map[Reason]string{
		NotFound:    `owner Job "job" does not exist`,
		Replaced:    `owner Job "job" exists with another UID`,
		UnknownKind: `owner Job "job" is of a kind that is not served for namespaces`,
		Forbidden:   `owner Job "job" may not be looked at: jobs.batch "job" is forbidden: no such rule`,
	} {
		err := fmt.Errorf("wrapped: %w", Unresolved(reason, owner, forbidden))
		assert.Equal(t, reason, ReasonFor(err))
		assert.EqualError(t, err, "wrapped: "+expect)
	}

	set := ownerRef("set")
	controller, err := Controller(owner.UID, &set, owner)
	require.NoError(t, err)
	assert.Equal(t, &set, controller)
	_, err = Controller("other", &set, owner)
	assert.Equal(t, Replaced, ReasonFor(err))
	set.Name = strings.Repeat("x", 1000)
	controller, err = Controller(owner.UID, &set, owner)
	assert.Equal(t, TooLong, ReasonFor(err))
	assert.Nil(t, controller)
}
