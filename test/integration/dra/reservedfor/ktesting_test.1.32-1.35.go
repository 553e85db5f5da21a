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

package reservedfor

import (
	"context"
	"testing"

	"github.com/onsi/gomega"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// In this release, ktesting has functions instead of methods, and not all of
// them.

func run(tCtx ktesting.TContext, name string, cb func(tCtx ktesting.TContext)) bool {
	tCtx.Helper()
	return tCtx.TB().(*testing.T).Run(name, func(t *testing.T) {
		t.Helper()
		tCtx := ktesting.WithTB(tCtx, t)
		// Like a context in the next releases, this one ends with the test.
		t.Cleanup(func() { tCtx.Cancel("test has ended") })
		cb(tCtx)
	})
}

func parallel(tCtx ktesting.TContext) { tCtx.TB().(*testing.T).Parallel() }

func eventually[T any](tCtx ktesting.TContext, cb func(tCtx ktesting.TContext) T) gomega.AsyncAssertion {
	tCtx.Helper()
	return ktesting.Eventually(tCtx, cb)
}

func consistently[T any](tCtx ktesting.TContext, cb func(tCtx ktesting.TContext) T) gomega.AsyncAssertion {
	tCtx.Helper()
	return ktesting.Consistently(tCtx, cb)
}

func withCancel(tCtx ktesting.TContext) ktesting.TContext { return ktesting.WithCancel(tCtx) }

func withoutCancel(tCtx ktesting.TContext) ktesting.TContext {
	return ktesting.WithCancel(ktesting.WithContext(tCtx, context.WithoutCancel(tCtx)))
}

func withRESTConfig(tCtx ktesting.TContext, config *rest.Config) ktesting.TContext {
	return ktesting.WithRESTConfig(tCtx, config)
}

func forComponent(tCtx ktesting.TContext, name string, config *rest.Config) ktesting.TContext {
	logger := klog.LoggerWithName(tCtx.Logger(), name)
	return ktesting.WithLogger(ktesting.WithRESTConfig(ktesting.WithCancel(tCtx), config), logger)
}
