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

package devicetainteviction

import (
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// newTestController starts the informers of a controller, and returns when they watch: the
// fake client forgets what happens between list and watch. In 1.34, upstream has such a helper.
func newTestController(tCtx ktesting.TContext, client *fake.Clientset) *Controller {
	tCtx.Helper()
	var watches atomic.Int32
	client.PrependWatchReactor("*", func(action core.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		watches.Add(1)
		return true, w, err
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := startTestController(tCtx, factory)
	tCtx.Cleanup(factory.Shutdown)
	const resources = 5 // pods, claims, slices, classes, rules
	require.Eventually(tCtx, func() bool { return watches.Load() == resources }, 30*time.Second, 10*time.Millisecond, "all informers watch")
	return controller
}
