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
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/test/utils/ktesting"
)

const otherDriverName = "other-driver"

// managerTest is a kubelet with DRA drivers.
type managerTest struct {
	ktesting.TContext
	client   *fake.Clientset
	stateDir string
	manager  testManager
	driver   *fakeDRADriverGRPCServer
}

func newManagerTest(t *testing.T) *managerTest {
	// t.TempDir cannot be used. The goroutines which watch the health of devices write
	// to the directory when they stop and nothing waits for them, so removing
	// the directory may have to be tried more than once.
	stateDir, err := os.MkdirTemp("", "dra-manager")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.RemoveAll(stateDir) == nil }, 30*time.Second, time.Millisecond, "remove state directory")
	})
	test := &managerTest{
		TContext: ktesting.Init(t),
		client:   fake.NewClientset(),
		stateDir: stateDir,
	}
	test.start()
	return test
}

// newSharedClaimsTest is for pods which all share the same claims.
func newSharedClaimsTest(t *testing.T, claimNames []string, pods ...*v1.Pod) *managerTest {
	test := newManagerTest(t)
	for _, name := range claimNames {
		claim := genTestClaim(name, driverName, deviceName, "")
		claim.Status.ReservedFor = nil
		for _, pod := range pods {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
		test.setClaim(claim)
	}
	return test
}

// setClaim creates the claim or updates it.
func (test *managerTest) setClaim(claim *resourceapi.ResourceClaim) {
	gvr := resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	_ = test.client.Tracker().Delete(gvr, claim.Namespace, claim.Name)
	test.ExpectNoError(test.client.Tracker().Add(claim.DeepCopy()))
}

func (test *managerTest) cdiDevices(pod *v1.Pod) []string {
	info, err := test.manager.GetResources(pod, &pod.Spec.Containers[0])
	test.ExpectNoError(err, "get resources")
	devices := []string{}
	for _, device := range info.CDIDevices {
		devices = append(devices, device.Name)
	}
	return devices
}

// TestRestartKeepsDevices checks that devices are not listed once more each time
// the kubelet is restarted and has to prepare a claim again.
func TestRestartKeepsDevices(t *testing.T) {
	first, second, third := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	test := newSharedClaimsTest(t, []string{claimName}, first, second, third)
	want := []string{fmt.Sprintf("%s/%s=claim-%s", driverName, driverClassName, claimUID)}
	require.NoError(t, test.manager.PrepareResources(test, first))
	require.Equal(t, want, test.cdiDevices(first))

	for _, pod := range []*v1.Pod{second, third} {
		test.start()
		require.NoError(t, test.manager.PrepareResources(test, pod))
		assert.Equal(t, uint32(1), test.driver.prepareResourceCalls.Load(), "prepare calls after restart")
		assert.Equal(t, want, test.cdiDevices(pod), "devices of new pod")
		assert.Equal(t, want, test.cdiDevices(first), "devices of running pod")
	}

	// The response is authoritative.
	test.start()
	test.driver.prepareResourcesResponse = prepareResponse(claimUID)
	require.NoError(t, test.manager.PrepareResources(test, first))
	assert.Equal(t, []string{cdiID}, test.cdiDevices(first))
}

// TestClaimNamedTwice covers a pod with two entries for the same claim. The driver gives one answer.
func TestClaimNamedTwice(t *testing.T) {
	first, second := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	first.Spec.ResourceClaims = append(first.Spec.ResourceClaims, v1.PodResourceClaim{Name: "again", ResourceClaimName: first.Spec.ResourceClaims[0].ResourceClaimName})
	test := newSharedClaimsTest(t, []string{claimName}, first, second)
	require.NoError(t, test.manager.PrepareResources(test, first))
	assert.Len(t, test.cdiDevices(first), 1)
	require.NoError(t, test.manager.UnprepareResources(test, first))
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(first.UID), "stopped pod known")
	require.NoError(t, test.manager.PrepareResources(test, second))
	assert.Equal(t, uint32(2), test.driver.prepareResourceCalls.Load(), "prepare calls")
}

// TestAllocatedAgainByOtherDrivers covers a claim which was allocated again while a pod still uses what it had
// before, and a restart of the kubelet, which has to prepare it again then.
func TestAllocatedAgainByOtherDrivers(t *testing.T) {
	first, second := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	claim := genTestClaim(claimName, driverName, deviceName, "")
	claim.Status.ReservedFor = nil
	for _, pod := range []*v1.Pod{first, second} {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	test := newManagerTest(t)
	one := claim.Status.Allocation.Devices.Results[0]
	other := one
	other.Driver = otherDriverName
	claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{one, other}
	test.setClaim(claim)
	require.NoError(t, test.manager.PrepareResources(test, first))

	test.start()
	claim.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{one}
	test.setClaim(claim)
	require.ErrorContains(t, test.manager.PrepareResources(test, second), "was allocated again while its previous devices are still in use on the node")
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(second.UID), "new pod known")

	require.NoError(t, test.manager.UnprepareResources(test, first))
	require.NoError(t, test.manager.PrepareResources(test, second))
}

// TestPrepareWhileUnpreparing checks that a pod cannot use a claim which the driver
// has been asked to unprepare.
func TestPrepareWhileUnpreparing(t *testing.T) {
	first, second := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	test := newSharedClaimsTest(t, []string{claimName}, first, second)
	require.NoError(t, test.manager.PrepareResources(test, first))

	// The error keeps the kubelet in the same state as while waiting for a response.
	test.driver.unprepareResourcesResponse = unprepareResponse("fake error", claimName)
	require.ErrorContains(t, test.manager.UnprepareResources(test, first), "fake error")
	assert.Regexp(t, "ResourceClaim "+claimName+" is (still being unprepared for a previous pod|being unprepared)$", test.manager.PrepareResources(test, second))
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(second.UID), "new pod known")
	assert.Equal(t, uint32(1), test.driver.prepareResourceCalls.Load(), "prepare calls")

	// Trying again succeeds for both.
	test.driver.unprepareResourcesResponse = nil
	require.NoError(t, test.manager.UnprepareResources(test, first))
	require.NoError(t, test.manager.PrepareResources(test, second))
	assert.Equal(t, uint32(2), test.driver.prepareResourceCalls.Load(), "prepare calls")
	assert.Len(t, test.cdiDevices(second), 1)
}

// TestUnprepareAgain checks that repeating the call for a pod which has
// stopped doesn't affect a claim which is still in use by some other pod.
func TestUnprepareAgain(t *testing.T) {
	otherClaimName := "other-claim"
	first, second := genTestPodWithClaims(claimName, otherClaimName), genTestPodWithClaims(claimName)
	test := newSharedClaimsTest(t, []string{claimName, otherClaimName}, first, second)
	test.driver.prepareResourcesResponse = prepareResponse(claimUID, types.UID(otherClaimName+"-uid"))
	require.NoError(t, test.manager.PrepareResources(test, first))
	test.driver.prepareResourcesResponse = nil
	require.NoError(t, test.manager.PrepareResources(test, second))

	// Must be repeated because of the claim which is not shared.
	test.driver.unprepareResourcesResponse = unprepareResponse("fake error", otherClaimName)
	require.ErrorContains(t, test.manager.UnprepareResources(test, first), "fake error")
	test.driver.unprepareResourcesResponse = unprepareResponse("", otherClaimName)
	require.NoError(t, test.manager.UnprepareResources(test, first))
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(first.UID), "stopped pod known")
	assert.True(t, test.manager.PodMightNeedToUnprepareResources(second.UID), "running pod known")
	assert.Len(t, test.cdiDevices(second), 1, "devices of running pod")

	test.driver.unprepareResourcesResponse = unprepareResponse("", claimName)
	require.NoError(t, test.manager.UnprepareResources(test, second))
	assert.False(t, test.manager.cache.contains(claimName, namespace), "claim still known")
}

// TestReplacedClaim checks that a pod cannot use what was prepared for a deleted claim with
// the same name.
func TestReplacedClaim(t *testing.T) {
	first, second := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	test := newSharedClaimsTest(t, []string{claimName}, first, second)
	require.NoError(t, test.manager.PrepareResources(test, first))

	replaced := genTestClaim(claimName, driverName, deviceName, string(second.UID))
	replaced.UID = "other-uid"
	test.setClaim(replaced)
	require.ErrorContains(t, test.manager.PrepareResources(test, second), "different UID")
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(second.UID), "new pod known")
	assert.Len(t, test.cdiDevices(first), 1, "devices of running pod")

	// It still is the reason while the driver unprepares the deleted claim.
	test.driver.unprepareResourcesResponse = unprepareResponse("fake error", claimName)
	require.ErrorContains(t, test.manager.UnprepareResources(test, first), "fake error")
	require.ErrorContains(t, test.manager.PrepareResources(test, second), "different UID")
	test.driver.unprepareResourcesResponse = nil

	require.NoError(t, test.manager.UnprepareResources(test, first))
	require.NoError(t, test.manager.PrepareResources(test, second))
	assert.Equal(t, uint32(2), test.driver.prepareResourceCalls.Load(), "prepare calls")
}

// TestUnprepareWithoutStatus checks that a pod can be stopped after the names of its generated
// claims were removed from its status, whether they were prepared or not.
func TestUnprepareWithoutStatus(t *testing.T) {
	const generatedName = "generated-claim"
	templateName := "template"
	pod := genTestPodWithClaims(claimName)
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "generated", ResourceClaimTemplateName: &templateName})
	stored := generatedName
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "generated", ResourceClaimName: &stored}}
	test := newSharedClaimsTest(t, []string{claimName, generatedName}, pod)
	generated := genTestClaim(generatedName, driverName, deviceName, string(pod.UID))
	isController := true
	generated.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &isController}}
	generated.Status.ReservedFor[0].Name = pod.Name
	test.setClaim(generated)
	test.driver.prepareResourcesResponse = prepareResponse(claimUID, generated.UID)
	require.NoError(t, test.manager.PrepareResources(test, pod))
	pod.Status.ResourceClaimStatuses = nil

	// It is tried again after an error, with the claims that are left.
	test.driver.unprepareResourcesResponse = unprepareResponse("fake error", generatedName)
	require.ErrorContains(t, test.manager.UnprepareResources(test, pod), "fake error")
	assert.True(t, test.manager.PodMightNeedToUnprepareResources(pod.UID), "pod known")
	test.driver.unprepareResourcesResponse = unprepareResponse("", claimName, generatedName)
	require.NoError(t, test.manager.UnprepareResources(test, pod))
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(pod.UID), "pod known")
	assert.False(t, test.manager.cache.contains(generatedName, namespace), "claim known")
}
