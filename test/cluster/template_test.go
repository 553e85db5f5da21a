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

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-dra/hack/pkg/cluster"
)

// whichDevice prints claim and device, which are the same for all pods of a claim, and ends when it is told to.
const whichDevice = `echo "$DRA_CLAIM $DRA_DEVICE_DEVICE"; until [ -e /tmp/end ]; do sleep 0.1; done`

// template creates a ResourceClaimTemplate from which one claim is generated for each Job.
func (e *env) template(name, class string) {
	e.Helper()
	e.templateFor(name, class, "batch", "jobs")
}

// templateFor creates one from which a claim is generated for each object of that kind.
func (e *env) templateFor(name, class, group, resource string) {
	e.Helper()
	claim := e.Claim(name, class, nil).Object["spec"].(map[string]any)
	claim["reservedFor"] = map[string]any{"apiGroup": group, "resource": resource}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/" + e.Version, "kind": "ResourceClaimTemplate",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"spec": claim},
	}}
	if _, err := e.Dynamic.Resource(e.Resource("resourceclaimtemplates")).Namespace(e.namespace).Create(e.ctx, object, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// templatePod is a pod whose claim comes from a template.
func templatePod(template string) corev1.PodSpec {
	spec := cluster.PodSpec("", whichDevice)
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "shared", ResourceClaimTemplateName: &template}}
	return spec
}

// device returns what all containers of a Job say about their device, and checks that they say the same.
func (e *env) device(job string) (claim, device string) {
	e.Helper()
	said := ""
	for name := range e.pods(job) {
		e.eventually("log of "+name, func() error {
			stream, err := e.CoreV1().Pods(e.namespace).GetLogs(name, &corev1.PodLogOptions{}).Stream(e.ctx)
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			log, err := io.ReadAll(stream)
			if err != nil {
				return err
			}
			line, _, complete := bytes.Cut(log, []byte("\n"))
			if !complete {
				return fmt.Errorf("it says %q", log)
			}
			if said == "" {
				said = string(line)
			}
			if said != string(line) {
				return fatal{fmt.Errorf("it says %q, another pod of the Job says %q", line, said)}
			}
			return nil
		})
	}
	claim, device, _ = strings.Cut(said, " ")
	_, claim, _ = strings.Cut(claim, "/")
	return claim, device
}

// TestTemplatesOnRealNode covers claims that are generated for several pods, in containers that a kubelet
// starts: the pods of a Job share a device, and each Job has its own. A pod that is gone comes
// back with the same one, also with a kubelet that was restarted.
func TestTemplatesOnRealNode(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	class := e.devices(2, "real")
	e.template("shared", class)
	job := cluster.Job("first", 3, templatePod("shared"))
	// For the pod that the test deletes.
	job.Spec.BackoffLimit = new(int32(1))
	job, err := e.BatchV1().Jobs(e.namespace).Create(e.ctx, job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: job.Name, UID: job.UID}
	second := e.job("second", 2, templatePod("shared"), nil)
	e.running("first", 3)
	e.running("second", 2)
	firstClaim, firstDevice := e.device("first")
	secondClaim, secondDevice := e.device("second")
	if firstClaim == "" || firstClaim == secondClaim || firstDevice == secondDevice {
		t.Errorf("Jobs have %s of %s, and %s of %s", firstDevice, firstClaim, secondDevice, secondClaim)
	}
	e.reservedFor(firstClaim, first)
	e.reservedFor(secondClaim, second)

	// There are no more devices: a third Job waits, and gets that of the second.
	third := e.job("third", 1, templatePod("shared"), nil)
	e.running("third", 0)

	if err := shared.Restart(e.ctx, cluster.Kubelet, nil); err != nil {
		t.Fatal(err)
	}
	gone := e.anyPod("first")
	zero := int64(0)
	if err := e.CoreV1().Pods(e.namespace).Delete(e.ctx, gone, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	e.eventually("another pod runs in place of the one that was deleted by force", func() error {
		pods := e.pods("first")
		for name, pod := range pods {
			if name == gone || pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
			}
		}
		if len(pods) != 3 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	if claim, device := e.device("first"); claim != firstClaim || device != firstDevice {
		t.Errorf("it has %s of %s now, and not %s of %s", device, claim, firstDevice, firstClaim)
	}

	e.deleteJob("second")
	e.claimGone(secondClaim)
	e.running("third", 1)
	thirdClaim, thirdDevice := e.device("third")
	if thirdDevice != secondDevice {
		t.Errorf("the third Job has %s", thirdDevice)
	}
	e.reservedFor(thirdClaim, third)
	e.prepared(firstClaim, thirdClaim)
	for _, job := range []string{"first", "third"} {
		e.deleteJob(job)
	}
	e.claimGone(firstClaim)
	e.claimGone(thirdClaim)
	e.prepared()
}

// onlyClaim is the name of the one claim of the namespace.
func (e *env) onlyClaim() string {
	e.Helper()
	list, err := e.Claims(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	if len(list.Items) != 1 {
		e.Fatalf("want one claim, got %d: %+v", len(list.Items), list.Items)
	}
	return list.Items[0].GetName()
}

// claimGone waits until a claim does not exist anymore.
func (e *env) claimGone(name string) {
	e.Helper()
	e.eventually("claim "+name+" is gone", func() error {
		_, err := e.Claims(e.namespace).Get(context.WithoutCancel(e.ctx), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it exists")
		}
		return err
	})
}
