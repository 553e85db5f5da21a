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
	"github.com/onsi/gomega"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// What differs between releases of ktesting is in this file.

func run(tCtx ktesting.TContext, name string, cb func(tCtx ktesting.TContext)) bool {
	tCtx.Helper()
	return tCtx.Run(name, cb)
}

func parallel(tCtx ktesting.TContext) { tCtx.Parallel() }

func eventually[T any](tCtx ktesting.TContext, cb func(tCtx ktesting.TContext) T) gomega.AsyncAssertion {
	tCtx.Helper()
	return tCtx.Eventually(cb)
}

func consistently[T any](tCtx ktesting.TContext, cb func(tCtx ktesting.TContext) T) gomega.AsyncAssertion {
	tCtx.Helper()
	return tCtx.Consistently(cb)
}

func withCancel(tCtx ktesting.TContext) ktesting.TContext { return tCtx.WithCancel() }

// withoutCancel is for what must outlive the test and ends through its own Cancel.
func withoutCancel(tCtx ktesting.TContext) ktesting.TContext { return tCtx.WithoutCancel() }

func withRESTConfig(tCtx ktesting.TContext, config *rest.Config) ktesting.TContext {
	return tCtx.WithRESTConfig(config)
}

// forComponent is a context for something that can be canceled separately.
func forComponent(tCtx ktesting.TContext, name string, config *rest.Config) ktesting.TContext {
	return tCtx.WithCancel().WithRESTConfig(config).WithLogger(klog.LoggerWithName(tCtx.Logger(), name))
}
