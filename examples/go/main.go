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

// Claim shares a ResourceClaim among the pods of a Job: it creates the claim, labels it with server-side apply,
// and watches until devices are allocated for it. KUBECONFIG names the cluster.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	claims := client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	request := resource.DeviceRequest{Name: "gpu", Exactly: &resource.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}
	claim := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: resource.ResourceClaimSpec{
		Devices:     resource.DeviceClaim{Requests: []resource.DeviceRequest{request}},
		ReservedFor: &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "train"},
	}}
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	owner := apply.ResourceClaimWorkloadReference().WithAPIGroup("batch").WithResource("jobs").WithName("train")
	labelled := apply.ResourceClaim("train", metav1.NamespaceDefault).WithLabels(map[string]string{"team": "vision"}).
		WithSpec(apply.ResourceClaimSpec().WithReservedFor(owner))
	if _, err := claims.Apply(ctx, labelled, metav1.ApplyOptions{FieldManager: "example"}); err != nil {
		return err
	}
	allocated := make(chan string)
	factory := informers.NewSharedInformerFactory(client, time.Minute)
	show := func(object any) {
		if c, ok := object.(*resource.ResourceClaim); ok && c.Name == "train" {
			fmt.Printf("claim %s of team %s is reserved for %s %s\n", c.Name, c.Labels["team"], c.Spec.ReservedFor.Resource, c.Spec.ReservedFor.Name)
			if a := c.Status.Allocation; a != nil && a.ReservedForAnyPod != nil && *a.ReservedForAnyPod {
				allocated <- a.Devices.Results[0].Device
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, object any) { show(object) }}
	if _, err := factory.Resource().V1().ResourceClaims().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	fmt.Printf("any pod of the Job may use device %s\n", <-allocated)
	return nil
}
