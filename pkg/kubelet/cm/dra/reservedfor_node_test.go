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

package dra

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const workerName = "worker"

// onWorker assigns a pod to the node.
func onWorker(pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName = workerName
	return pod
}

// forNodes changes the nodes for which a claim is allocated.
func forNodes(terms ...v1.NodeSelectorTerm) func(claim *resourceapi.ResourceClaim) {
	return func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: terms}
	}
}

func nameIs(name string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}
}

func zoneIs(zone string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}
}

// TestNodeOfAllocation covers that a pod gets no devices of other nodes.
func TestNodeOfAllocation(t *testing.T) {
	const elsewhere = "ResourceClaim " + claimName + " is allocated for other nodes than " + workerName
	worker := nodeGetter(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: workerName, Labels: map[string]string{"zone": "a"}}}, nil)
	unreadable := nodeGetter(nil, errors.New("node lister: not synced"))
	perPod := func(pod *v1.Pod, change func(claim *resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		claim := genTestClaim(claimName, driverName, deviceName, string(pod.UID))
		change(claim)
		return claim
	}
	pod := onWorker(genTestPodWithClaims(claimName))
	unknown := v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "spec.unknown", Operator: v1.NodeSelectorOpIn, Values: []string{"x"}}}}

	broken := zoneIs("a")
	broken.MatchExpressions[0].Operator = "Unknown"

	for name, tc := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		getNode GetNodeFunc
		// Empty means success.
		wantErr string
	}{
		"all nodes":                  {claim: genWorkloadClaim(), getNode: unreadable},
		"this node":                  {claim: genWorkloadClaim(forNodes(nameIs(workerName))), getNode: worker},
		"this node, unreadable":      {claim: genWorkloadClaim(forNodes(nameIs(workerName))), getNode: unreadable},
		"this node, not started":     {claim: genWorkloadClaim(forNodes(nameIs(workerName)))},
		"other node":                 {claim: genWorkloadClaim(forNodes(nameIs("other"))), getNode: worker, wantErr: elsewhere},
		"other node, unreadable":     {claim: genWorkloadClaim(forNodes(nameIs("other"))), getNode: unreadable, wantErr: elsewhere},
		"one of two nodes":           {claim: genWorkloadClaim(forNodes(nameIs("other"), nameIs(workerName))), getNode: unreadable},
		"labels of this node":        {claim: genWorkloadClaim(forNodes(zoneIs("a"))), getNode: worker},
		"labels of other nodes":      {claim: genWorkloadClaim(forNodes(zoneIs("b"))), getNode: worker, wantErr: elsewhere},
		"this node or others":        {claim: genWorkloadClaim(forNodes(zoneIs("b"), nameIs(workerName))), getNode: worker},
		"labels, unreadable":         {claim: genWorkloadClaim(forNodes(zoneIs("a"))), getNode: unreadable, wantErr: "get the node: node lister: not synced"},
		"labels, not started":        {claim: genWorkloadClaim(forNodes(zoneIs("a"))), wantErr: "does not know its node yet"},
		"field that nobody knows":    {claim: genWorkloadClaim(forNodes(unknown)), getNode: worker, wantErr: elsewhere},
		"operator that nobody knows": {claim: genWorkloadClaim(forNodes(broken)), getNode: worker, wantErr: "parse the node selector"},
		"no term matches nothing":    {claim: genWorkloadClaim(forNodes()), getNode: worker, wantErr: elsewhere},
		"claim of listed pods":       {claim: perPod(pod, forNodes(nameIs("other"))), getNode: worker},
		"claim of pods, unreadable":  {claim: perPod(pod, forNodes(zoneIs("b"))), getNode: unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			enableReservedForWorkloads(t, true)
			test := newManagerTest(t)
			test.setClaim(tc.claim)
			test.manager.getNode = tc.getNode
			err := test.manager.PrepareResources(test, pod)
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
			assert.Equal(t, uint32(0), test.driver.prepareResourceCalls.Load(), "prepare calls")
			assert.False(t, test.manager.PodMightNeedToUnprepareResources(pod.UID), "pod known")

			// The next attempt works if the reason is gone.
			test.setClaim(genWorkloadClaim(forNodes(nameIs(workerName))))
			require.NoError(t, test.manager.PrepareResources(test, pod))
		})
	}
}

// TestNodeOfAllocationRunning covers that pods which have their devices are not affected by
// changes of the node, nor by a restart of the kubelet.
func TestNodeOfAllocationRunning(t *testing.T) {
	enableReservedForWorkloads(t, true)
	test := newManagerTest(t)
	labelled := func(zone string) GetNodeFunc {
		return nodeGetter(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: workerName, Labels: map[string]string{"zone": zone}}}, nil)
	}
	test.setClaim(genWorkloadClaim(forNodes(zoneIs("a"))))
	test.manager.getNode = labelled("a")
	running := onWorker(genTestPodWithClaims(claimName))
	require.NoError(t, test.manager.PrepareResources(test, running))

	for _, restart := range []bool{false, true} {
		if restart {
			test.start()
		}
		test.manager.getNode = labelled("b")
		require.NoError(t, test.manager.PrepareResources(test, running), "restart: %v", restart)
		started := onWorker(genTestPodWithClaims(claimName))
		require.ErrorContains(t, test.manager.PrepareResources(test, started), "allocated for other nodes", "restart: %v", restart)
		assert.False(t, test.manager.PodMightNeedToUnprepareResources(started.UID), "new pod known")
	}

	// Its devices are no longer those that are allocated.
	test.setClaim(genWorkloadClaim(forNodes(nameIs("other")), setDevice("other-device")))
	require.ErrorContains(t, test.manager.PrepareResources(test, running), "was allocated again")
}

// TestNodeOfAllocationDisabled covers that the kubelet does what upstream's does without the feature.
func TestNodeOfAllocationDisabled(t *testing.T) {
	enableReservedForWorkloads(t, false)
	test := newManagerTest(t)
	test.manager.getNode = nil
	pod := onWorker(genTestPodWithClaims(claimName))
	test.setClaim(genWorkloadClaim(forNodes(nameIs("other")), func(claim *resourceapi.ResourceClaim) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}))
	require.NoError(t, test.manager.PrepareResources(test, pod))
}
