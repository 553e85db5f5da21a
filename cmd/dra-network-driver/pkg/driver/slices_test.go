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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
)

// TestSlices covers slices that are missing, incomplete or deleted.
func TestSlices(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := fake.NewClientset()
	registry := prometheus.NewRegistry()
	slices, err := NewSlices(client, driverName, nodeName, 3, NewMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			got = "ready"
			if err := slices.Check(); err != nil {
				got = err.Error()
			}
			if got == want {
				return
			}
		}
		t.Errorf("%q, want %q", got, want)
	}
	missing := func(n int) string {
		return fmt.Sprintf("the API server has ResourceSlices with %d devices of this node, and not 3", n)
	}
	newSlice := func(name string, generation int64, devices ...string) *resourceapi.ResourceSlice {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{Driver: driverName, Pool: resourceapi.ResourcePool{Name: nodeName, Generation: generation}}}
		for _, device := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: device})
		}
		return slice
	}
	api := client.ResourceV1().ResourceSlices()
	create := func(slice *resourceapi.ResourceSlice) {
		t.Helper()
		if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect("the API server has not told about the driver's ResourceSlices yet")
	go slices.Run(ctx)
	expect(missing(0))
	create(newSlice("first", 1, "a", "b"))
	expect(missing(2))
	create(newSlice("second", 1, "c"))
	expect("ready")
	// A newer generation makes the others void.
	create(newSlice("third", 2, "d"))
	expect(missing(1))
	if err := api.Delete(ctx, "third", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("ready")
	if err := api.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(missing(1))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "dra_network_published_devices" && family.GetMetric()[0].GetGauge().GetValue() != 1 {
			t.Errorf("metric %v", family)
		}
	}
}
