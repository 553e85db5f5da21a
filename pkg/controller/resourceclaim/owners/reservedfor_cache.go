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
	"container/list"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// EntryBytes is about what one entry in a map takes besides the strings in it.
	EntryBytes = 320

	// sweepInterval is how often what has expired is removed.
	sweepInterval = time.Minute
)

// Cache remembers something about objects in namespaces, for a limited time. The keys are
// chosen by those who may write in a namespace. Therefore each namespace only has a
// limited number of bytes. What was used least recently has to go first, and
// beyond the limit for all of them, that of the largest namespace.
type Cache[K comparable, V any] struct {
	clock    clock.PassiveClock
	perSpace int
	total    int
	size     func(K, V) int

	mutex      sync.Mutex
	namespaces map[string]*namespaceCache[K]
	bytes      int
	swept      time.Time
}

type namespaceCache[K comparable] struct {
	entries map[K]*list.Element
	// recent has the entries, that which was used last first.
	recent *list.List
	bytes  int
}

type cacheEntry[K comparable, V any] struct {
	key     K
	value   V
	expires time.Time
	bytes   int
}

// NewCache returns a cache with limits for each namespace and for all of them, in bytes. The
// function returns the number of bytes of the strings in an entry.
func NewCache[K comparable, V any](clock clock.PassiveClock, perNamespace, total int, size func(K, V) int) *Cache[K, V] {
	return &Cache[K, V]{clock: clock, perSpace: perNamespace, total: total, size: size, namespaces: make(map[string]*namespaceCache[K]), swept: clock.Now()}
}

// Get returns what is known.
func (c *Cache[K, V]) Get(namespace string, key K) (V, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var none V
	ns := c.namespaces[namespace]
	if ns == nil || ns.entries[key] == nil {
		return none, false
	}
	element := ns.entries[key]
	entry := element.Value.(*cacheEntry[K, V])
	if !c.clock.Now().Before(entry.expires) {
		c.remove(namespace, ns, element)
		return none, false
	}
	ns.recent.MoveToFront(element)
	return entry.value, true
}

// Add stores something for some time.
func (c *Cache[K, V]) Add(namespace string, key K, value V, ttl time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.clock.Now()
	c.sweep(now)
	ns := c.namespaces[namespace]
	if ns == nil {
		ns = &namespaceCache[K]{entries: make(map[K]*list.Element), recent: list.New()}
		c.namespaces[namespace] = ns
	} else if old := ns.entries[key]; old != nil {
		c.remove(namespace, ns, old)
		c.namespaces[namespace] = ns
	}
	entry := &cacheEntry[K, V]{key: key, value: value, expires: now.Add(ttl), bytes: EntryBytes + c.size(key, value)}
	ns.entries[key] = ns.recent.PushFront(entry)
	ns.bytes += entry.bytes
	c.bytes += entry.bytes
	for ns.bytes > c.perSpace {
		c.remove(namespace, ns, ns.recent.Back())
	}
	for c.bytes > c.total {
		name, largest := namespace, ns
		for n, other := range c.namespaces {
			if other.bytes > largest.bytes {
				name, largest = n, other
			}
		}
		c.remove(name, largest, largest.recent.Back())
	}
}

// Remove forgets something.
func (c *Cache[K, V]) Remove(namespace string, key K) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if ns := c.namespaces[namespace]; ns != nil && ns.entries[key] != nil {
		c.remove(namespace, ns, ns.entries[key])
	}
}

// Size returns the number of entries and how many bytes they are counted as.
func (c *Cache[K, V]) Size() (entries, bytes int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, ns := range c.namespaces {
		entries += len(ns.entries)
	}
	return entries, c.bytes
}

// sweep removes what has expired. Nobody may ask for it ever again.
func (c *Cache[K, V]) sweep(now time.Time) {
	if now.Sub(c.swept) < sweepInterval {
		return
	}
	c.swept = now
	for name, ns := range c.namespaces {
		for _, element := range ns.entries {
			if !now.Before(element.Value.(*cacheEntry[K, V]).expires) {
				c.remove(name, ns, element)
			}
		}
	}
}

func (c *Cache[K, V]) remove(name string, ns *namespaceCache[K], element *list.Element) {
	entry := ns.recent.Remove(element).(*cacheEntry[K, V])
	delete(ns.entries, entry.key)
	ns.bytes -= entry.bytes
	c.bytes -= entry.bytes
	if len(ns.entries) == 0 {
		delete(c.namespaces, name)
	}
}
