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

package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2/ktesting"

	"kubernetes-dra/cmd/dra-network-driver/pkg/driver"
)

// TestSlicesAreRight changes the number of devices, and has the slices deleted at any moment after that, as
// the kubelet does when it is restarted. A minute later they are right, and the driver is ready only when they
// are. The helper library had a cache that broke that (kubernetes/kubernetes 140011).
func TestSlicesAreRight(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second, 29 * time.Second, 30 * time.Second, 31 * time.Second, 45 * time.Second, 59 * time.Second, time.Minute, 61 * time.Second, 75 * time.Second, 90 * time.Second} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid"}})
				created := 0
				client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
					created++
					slice := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
					slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, created)
					return false, nil, nil
				})
				for _, devices := range []int{16, 17} {
					func() {
						ctx, cancel := context.WithCancel(ctx)
						defer cancel()
						check := publish(ctx, t, client, devices)
						time.Sleep(after)
						if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
						list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
						if err != nil {
							t.Fatal(err)
						}
						if ready := check() == nil; ready != (len(list.Items) > 0) {
							t.Errorf("with %d slices, it is ready: %t", len(list.Items), ready)
						}
						time.Sleep(time.Minute)
						if err := check(); err != nil {
							t.Errorf("a minute after the slices were deleted: %v", err)
						}
					}()
				}
			})
		})
	}
}

// publish publishes devices as the driver does, until the context is done. The result is what it says about
// that.
func publish(ctx context.Context, t *testing.T, client *fake.Clientset, devices int) func() error {
	t.Helper()
	slices, err := driver.NewSlices(client, "network.example.com", "node-1", devices, driver.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	go slices.Run(ctx)
	resources := resources("node-1", devices)
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: "network.example.com",
		KubeClient: client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "uid"},
		Resources:  &resources,
		Queue: laterQueue{workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute))},
	})
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, controller.Stop)
	return slices.Check
}

// laterQueue adds items a little later. The library looks again when something expires, which at that very
// moment it has not: where time stands still, it would look for ever.
type laterQueue struct {
	workqueue.TypedRateLimitingInterface[string]
}

// AddAfter implements [workqueue.TypedDelayingInterface].
func (q laterQueue) AddAfter(item string, delay time.Duration) {
	q.TypedRateLimitingInterface.AddAfter(item, delay+time.Microsecond)
}
