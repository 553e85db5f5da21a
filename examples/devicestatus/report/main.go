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

// Command report writes the status of the devices that one driver has in a claim, as a DRA driver
// does after it has prepared them. It needs nothing but upstream's client library, and the rules
// of examples/devicestatus/driver.yaml.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; without it, the service account of this pod")
	namespace := flag.String("namespace", "default", "namespace of the claim")
	claim := flag.String("claim", "", "name of the claim")
	driver := flag.String("driver", "", "name of the driver, for example gpu.example.com")
	manager := flag.String("field-manager", "", "field manager; the default is the driver. One for each node if a claim has devices on several")
	flag.Parse()
	if *manager == "" {
		*manager = *driver
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, *namespace, *claim, *driver, *manager); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, claim, driver, manager string) error {
	if claim == "" || driver == "" {
		return errors.New("--claim and --driver are needed")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	n, err := report(ctx, client, namespace, claim, driver, manager)
	if err == nil {
		fmt.Printf("reported on devices of %s in claim %s/%s: %d\n", driver, namespace, claim, n)
	}
	return err
}

// report says of each device of the driver in the claim that it is ready. It returns how many
// there are.
//
// It applies: what other drivers report stays, and nobody has to read the claim again after a
// conflict. An apply replaces all that its manager has applied before, so all devices of the
// driver on this node are in it.
func report(ctx context.Context, client kubernetes.Interface, namespace, name, driver, manager string) (int, error) {
	claims := client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the claim: %w", err)
	}
	if claim.Status.Allocation == nil {
		return 0, fmt.Errorf("claim %s/%s is not allocated: report after NodePrepareResources", namespace, name)
	}
	status := resourceapply.ResourceClaimStatus()
	for i := range claim.Status.Allocation.Devices.Results {
		if result := &claim.Status.Allocation.Devices.Results[i]; result.Driver == driver {
			status.WithDevices(ready(claim, result))
		}
	}
	if len(status.Devices) == 0 {
		return 0, fmt.Errorf("claim %s/%s has no device of %s", namespace, name, driver)
	}
	// The UID keeps a claim that was created anew under this name from getting the report.
	apply := resourceapply.ResourceClaim(name, namespace).WithUID(claim.UID).WithStatus(status)
	stored, err := claims.ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return 0, fmt.Errorf("report on claim %s/%s: %w", namespace, name, err)
	}
	if len(stored.Status.Devices) == 0 {
		return 0, errors.New("kube-apiserver dropped the report: enable DRAResourceClaimDeviceStatus there")
	}
	return len(status.Devices), nil
}

// ready returns the report on one device. Its condition keeps the time at which it became what it is.
func ready(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) *resourceapply.AllocatedDeviceStatusApplyConfiguration {
	since := metav1.Now()
	for _, device := range claim.Status.Devices {
		if device.Driver != result.Driver || device.Pool != result.Pool || device.Device != result.Device ||
			ptr.Deref(device.ShareID, "") != string(ptr.Deref(result.ShareID, "")) {
			continue
		}
		for _, condition := range device.Conditions {
			if condition.Type == "Ready" && condition.Status == metav1.ConditionTrue {
				since = condition.LastTransitionTime
			}
		}
	}
	device := resourceapply.AllocatedDeviceStatus().
		WithDriver(result.Driver).
		WithPool(result.Pool).
		WithDevice(result.Device).
		WithConditions(metaapply.Condition().
			WithType("Ready").
			WithStatus(metav1.ConditionTrue).
			WithReason("Prepared").
			WithMessage("the device is prepared").
			WithObservedGeneration(claim.Generation).
			WithLastTransitionTime(since))
	if result.ShareID != nil {
		// Part of the key, for a device that several claims share.
		device.WithShareID(string(*result.ShareID))
	}
	return device
}
