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

package driver

import (
	"context"
	"sync"
)

// locks are locks with a key each. Whoever waits for one can stop waiting.
// Holding one of them may take as long as a CNI plugin takes.
type locks[K comparable] struct {
	mutex sync.Mutex
	locks map[K]*keyLock
}

type keyLock struct {
	// token is in the channel while nobody holds the lock.
	token chan struct{}
	// users hold the lock or wait for it. Without any, it is forgotten.
	users int
}

// lock waits until it has the lock of the key, or the context is done. Then it
// returns why it is. If it has to wait, it first calls the function, if there is one.
func (l *locks[K]) lock(ctx context.Context, key K, waiting func()) (unlock func(), err error) {
	lock := l.use(key)
	select {
	case <-lock.token:
		return func() { l.unlock(key, lock) }, nil
	default:
	}
	if waiting != nil {
		waiting()
	}
	select {
	case <-lock.token:
		return func() { l.unlock(key, lock) }, nil
	case <-ctx.Done():
		l.leave(key, lock)
		return nil, context.Cause(ctx)
	}
}

// tryLock takes the lock if that is possible right now.
func (l *locks[K]) tryLock(key K) (unlock func(), ok bool) {
	lock := l.use(key)
	select {
	case <-lock.token:
		return func() { l.unlock(key, lock) }, true
	default:
		l.leave(key, lock)
		return nil, false
	}
}

// contended says whether somebody waits for a lock that the caller has.
func (l *locks[K]) contended(key K) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	lock := l.locks[key]
	return lock != nil && lock.users > 1
}

func (l *locks[K]) use(key K) *keyLock {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	lock := l.locks[key]
	if lock == nil {
		lock = &keyLock{token: make(chan struct{}, 1)}
		lock.token <- struct{}{}
		if l.locks == nil {
			l.locks = make(map[K]*keyLock)
		}
		l.locks[key] = lock
	}
	lock.users++
	return lock
}

func (l *locks[K]) unlock(key K, lock *keyLock) {
	lock.token <- struct{}{}
	l.leave(key, lock)
}

func (l *locks[K]) leave(key K, lock *keyLock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if lock.users--; lock.users == 0 {
		delete(l.locks, key)
	}
}
