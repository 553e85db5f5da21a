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
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
)

// TestPodCache covers what the driver knows of the pods of its node.
func TestPodCache(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	newPod := func(name string, uid types.UID) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Labels: map[string]string{"a": "b"}},
			Spec:       v1.PodSpec{NodeName: nodeName, ResourceClaims: []v1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("claim")}}},
		}
	}
	client := fake.NewClientset(newPod("first", "first"))
	selectors := make(chan string, 10)
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selectors <- action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
		return false, nil, nil
	})
	pods, err := NewPodCache(client, nodeName)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 10)
	fail := true
	done := make(chan error)
	go func() {
		done <- pods.Run(ctx, func(_ context.Context, pod *v1.Pod) error {
			if fail {
				fail = false
				return errors.New("try again")
			}
			seen <- pod.Name
			return nil
		})
	}()
	if !pods.WaitForSync(ctx) {
		t.Fatal("not synchronized")
	}
	if selector := <-selectors; selector != "spec.nodeName="+nodeName {
		t.Errorf("it lists pods with %q", selector)
	}
	if name := <-seen; name != "first" {
		t.Errorf("seen %s", name)
	}
	pod, err := pods.Get(ctx, namespace, "first", "first")
	if err != nil || len(pod.Spec.ResourceClaims) != 1 || pod.Labels != nil {
		t.Errorf("%+v, %v", pod, err)
	}

	short, cancelShort := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancelShort()
	for name, uid := range map[string]types.UID{"second": "second", "first": "its predecessor"} {
		if _, err := pods.Get(short, namespace, name, uid); !errors.Is(err, errUnknownPod) {
			t.Errorf("%s with UID %s: %v", name, uid, err)
		}
	}
	// It comes while somebody waits.
	time.AfterFunc(50*time.Millisecond, func() {
		if _, err := client.CoreV1().Pods(namespace).Create(ctx, newPod("second", "second"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	if pod, err := pods.Get(ctx, namespace, "second", "second"); err != nil || pod.Name != "second" {
		t.Errorf("%+v, %v", pod, err)
	}
	if list := pods.List(); len(list) != 2 {
		t.Errorf("%d pods", len(list))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLostRecord covers a claim that the kubelet had prepared before the driver lost its record: the kubelet
// does not do that again, and the pod must not start without its interface.
func TestLostRecord(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.allocated[namespace+"/claim"] = claim
	other := n.newClaim("other", "net-1")
	other.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	n.allocated[namespace+"/other"] = other
	admin := n.newClaim("admin", "net-1")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	n.allocated[namespace+"/admin"] = admin
	pod := n.newPod("pod", "claim")
	bystander := n.newPod("bystander", "other", "admin", "gone")
	see := func(pod *v1.Pod) {
		t.Helper()
		if err := n.PodSeen(n.ctx, pod); err != nil {
			t.Fatal(err)
		}
	}

	// Before the kubelet has it prepared, and after that.
	see(pod)
	see(bystander)
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.mustAttach(n.newSandbox("bystander", "bystander"))

	if err := n.Store.Delete(claim.UID); err != nil {
		t.Fatal(err)
	}
	n.start()
	see(pod)
	see(bystander)
	const lost = "claim default/claim has network devices of this node, but the driver has no record of it"
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "next")), lost, "Delete all pods on this node that use the claim")
	if event := n.event(); !strings.Contains(event, lost) {
		t.Errorf("event %q", event)
	}
	n.mustAttach(n.newSandbox("bystander", "next-bystander"))

	// Prepared again, it works.
	n.mustPrepare(claim)
	delete(n.cni.interfaces, "sandbox/net1")
	n.mustAttach(n.newSandbox("pod", "next"))

	// Somebody who does not answer is no reason to believe anything.
	n.claimsErr = errors.New("connection refused")
	if err := n.PodSeen(n.ctx, n.newPod("unlucky", "unknown")); err == nil || !strings.Contains(err.Error(), "claim default/unknown: connection refused") {
		t.Errorf("error %v", err)
	}
	n.claimsErr = noVersion
	n.forgetUnused()
	if !n.ours.Equal(sets.New(namespace + "/claim")) {
		t.Errorf("ours are %v", n.ours)
	}
	delete(n.pods, namespace+"/pod")
	n.forgetUnused()
	if len(n.ours) > 0 {
		t.Errorf("ours are %v", n.ours)
	}
}

// TestForeignInterface covers a pod which has an interface that somebody else made. DEL would remove it.
func TestForeignInterface(t *testing.T) {
	n := newNode(t)
	n.links = sets.New("lo", "eth0", "net1", "storage")
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.expectInterfaces("sandbox/net2")

	named := n.newClaim("named", "net-1")
	named.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(strings.Replace(inline, `"config"`, `"interfaceName": "storage", "config"`, 1))
	n.newPod("second", "named")
	n.mustPrepare(named)
	expectError(t, n.Attach(n.ctx, n.newSandbox("second", "second")), "the pod has an interface storage already, which is not one of this driver")
	for _, call := range n.cni.calls {
		if strings.Contains(call, "second/") {
			t.Errorf("it ran %s", call)
		}
	}
	n.linksErr = errors.New("no such namespace")
	expectError(t, n.Attach(n.ctx, n.newSandbox("second", "third")), "cannot look at the interfaces that the pod has already: no such namespace")

	twice := n.newClaim("twice", "net-2", "net-3")
	for i := range twice.Status.Allocation.Devices.Config {
		twice.Status.Allocation.Devices.Config[i].Opaque.Parameters.Raw = named.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	}
	for i := range twice.Status.Allocation.Devices.Results {
		twice.Status.Allocation.Devices.Results[i].Request += string(rune('a' + i))
	}
	expectError(t, n.tryPrepare(twice), "devices net-2 and net-3 have the same interfaceName storage")
}
