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
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	draclient "k8s.io/dynamic-resource-allocation/client"
)

// Slices are the ResourceSlices of the driver on its node, as the API server has them. Somebody may
// delete them, and the helper library, which publishes them, does not tell whether it succeeded.
type Slices struct {
	informer cache.SharedInformer
	metrics  *Metrics
	devices  int
}

// NewSlices returns what has to run before it knows anything. devices is how many the slices should have
// together.
func NewSlices(client kubernetes.Interface, driver, nodeName string, devices int, metrics *Metrics) (*Slices, error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: driver, resourceapi.ResourceSliceSelectorNodeName: nodeName}.String()
	slices := draclient.New(client).ResourceSlices()
	s := &Slices{devices: devices, metrics: metrics, informer: cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return slices.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return slices.Watch(ctx, options)
		},
	}, client), &resourceapi.ResourceSlice{}, 0)}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.count() },
		UpdateFunc: func(any, any) { s.count() },
		DeleteFunc: func(any) { s.count() },
	})
	return s, err
}

// Run watches the slices until the context is done.
func (s *Slices) Run(ctx context.Context) { s.informer.RunWithContext(ctx) }

// count returns the number of devices in the slices of the newest generation.
func (s *Slices) count() int {
	devices, generation := 0, int64(0)
	for _, obj := range s.informer.GetStore().List() {
		slice, ok := obj.(*resourceapi.ResourceSlice)
		if !ok || slice.Spec.Pool.Generation < generation {
			continue
		}
		if slice.Spec.Pool.Generation > generation {
			devices, generation = 0, slice.Spec.Pool.Generation
		}
		devices += len(slice.Spec.Devices)
	}
	s.metrics.publishedDevices.Set(float64(devices))
	return devices
}

// Check returns an error unless the API server has all devices.
func (s *Slices) Check() error {
	if !s.informer.HasSynced() {
		return fmt.Errorf("the API server has not told about the driver's ResourceSlices yet")
	}
	if devices := s.count(); devices != s.devices {
		return fmt.Errorf("the API server has ResourceSlices with %d devices of this node, and not %d", devices, s.devices)
	}
	return nil
}
