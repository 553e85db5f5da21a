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

package dynamicresources

import (
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
)

// poolID identifies a pool of devices.
type poolID struct {
	driver, pool string
}

func poolOf(slice *resourceapi.ResourceSlice) poolID {
	return poolID{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
}

// slicesByPool has the slices of each pool. A cluster has thousands of slices, and what one claim
// has been allocated is in very few of them. The zero value is ready for use.
//
// It gets updated by events and therefore may be a little behind the list of all slices.
type slicesByPool struct {
	mutex sync.RWMutex

	// pools has the slices of a pool by name. The slices must not be modified.
	pools map[poolID]map[string]*resourceapi.ResourceSlice
}

var _ cache.ResourceEventHandler = &slicesByPool{}

// get returns all slices of the pool, in no particular order.
func (s *slicesByPool) get(pool poolID) []*resourceapi.ResourceSlice {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	slices := make([]*resourceapi.ResourceSlice, 0, len(s.pools[pool]))
	for _, slice := range s.pools[pool] {
		slices = append(slices, slice)
	}
	return slices
}

// OnAdd implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnAdd(obj any, _ bool) {
	s.replace(nil, obj)
}

// OnUpdate implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnUpdate(oldObj, newObj any) {
	s.replace(oldObj, newObj)
}

// OnDelete implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	s.replace(obj, nil)
}

func (s *slicesByPool) replace(oldObj, newObj any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if slice, ok := oldObj.(*resourceapi.ResourceSlice); ok {
		pool := poolOf(slice)
		delete(s.pools[pool], slice.Name)
		if len(s.pools[pool]) == 0 {
			delete(s.pools, pool)
		}
	}
	if slice, ok := newObj.(*resourceapi.ResourceSlice); ok {
		pool := poolOf(slice)
		if s.pools == nil {
			s.pools = make(map[poolID]map[string]*resourceapi.ResourceSlice)
		}
		if s.pools[pool] == nil {
			s.pools[pool] = make(map[string]*resourceapi.ResourceSlice)
		}
		s.pools[pool][slice.Name] = slice
	}
}
