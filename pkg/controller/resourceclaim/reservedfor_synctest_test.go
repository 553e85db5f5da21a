//go:build go1.25

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

package resourceclaim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
)

// The tests in this file have a fake clock and know when all goroutines have
// nothing left to do.

func syncTest(t *testing.T, name string, cb func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, cb) })
}

// startSyncTest creates a controller and starts its informers and, if not nil,
// whatever else shall run until the end of the test.
func startSyncTest(t *testing.T, features Features, client *fake.Clientset, run func(ctx context.Context, ec *Controller)) *Controller {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	// Without resync, old releases of client-go wait for a global channel, and then time
	// does not advance. This is longer than any test.
	factory := informers.NewSharedInformerFactory(client, 10000*time.Hour)
	ec, err := watchingController(logger, features, client, factory, nil, nil)
	require.NoError(t, err, "create controller")
	factory.Start(ctx.Done())
	var wg sync.WaitGroup
	if run != nil {
		wg.Go(func() { run(ctx, ec) })
	}
	t.Cleanup(func() {
		cancel()
		ec.queue.ShutDown()
		wg.Wait()
		factory.Shutdown()
		// Some goroutines of client-go only check once in a while whether they
		// have to stop.
		time.Sleep(time.Minute)
	})
	return ec
}

// TestWorkloadEvents checks which changes of a workload cause a claim to be
// checked.
func TestWorkloadEvents(t *testing.T) {
	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	update := func(job *batchv1.Job) func(tracker k8stesting.ObjectTracker) error {
		return func(tracker k8stesting.ObjectTracker) error {
			return tracker.Update(jobs, job, job.Namespace)
		}
	}
	remove := func(tracker k8stesting.ObjectTracker) error {
		return tracker.Delete(jobs, testNamespace, workloadName)
	}
	progress := job.DeepCopy()
	progress.Status.Active = 9000

	for name, test := range map[string]struct {
		features     Features
		claim        *resourceapi.ResourceClaim
		change       func(tracker k8stesting.ObjectTracker) error
		expectQueued bool
	}{
		"progress":         {features: workloadsEnabled, claim: workloadClaim(jobRef), change: update(progress)},
		"suspended":        {features: workloadsEnabled, claim: workloadClaim(jobRef), change: update(suspendedJob)},
		"complete":         {features: workloadsEnabled, claim: workloadClaim(jobRef), change: update(completeJob), expectQueued: true},
		"deletion-started": {features: workloadsEnabled, claim: workloadClaim(jobRef), change: update(deleted(job)), expectQueued: true},
		"replaced":         {features: workloadsEnabled, claim: workloadClaim(jobRef), change: update(otherJob), expectQueued: true},
		"removed":          {features: workloadsEnabled, claim: workloadClaim(jobRef), change: remove, expectQueued: true},
		"mixed":            {features: workloadsEnabled, claim: reservedBy(workloadClaim(customRef), jobRef), change: remove, expectQueued: true},
		"other-kind":       {features: workloadsEnabled, claim: workloadClaim(cronJobRef), change: remove},
		"not-reserved":     {features: workloadsEnabled, claim: anyPodClaim(jobRef), change: remove},
		"disabled":         {claim: workloadClaim(jobRef), change: remove},
	} {
		syncTest(t, name, func(t *testing.T) {
			client := createTestClient(job, test.claim)
			ec := startSyncTest(t, test.features, client, nil)
			drain := func() []string {
				synctest.Wait()
				var keys []string
				for ec.queue.Len() > 0 {
					key, _ := ec.queue.Get()
					keys = append(keys, key)
					ec.queue.Done(key)
				}
				return keys
			}
			drain()

			for _, action := range client.Actions() {
				if action.GetVerb() == "watch" && action.GetResource() == jobs && !test.features.ReservedForWorkloads {
					t.Error("workloads should not be watched when disabled")
				}
			}
			require.NoError(t, test.change(client.Tracker()), "change job")
			var expect []string
			if test.expectQueued {
				expect = []string{claimKey(test.claim)}
			}
			assert.Equal(t, expect, drain(), "queued")
			if ec.deletedObjects.Has(job.UID) {
				t.Error("deleted workload must not use space in the cache of deleted pods")
			}
		})
	}
}

// TestWorkloadLifeCycle runs the controller normally, with a job whose pods share
// a claim. The clock is fake.
func TestWorkloadLifeCycle(t *testing.T) {
	const numPods = 100

	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	pods := v1.SchemeGroupVersion.WithResource("pods")
	for name, finish := range map[string]func(tracker k8stesting.ObjectTracker) error{
		"complete": func(tracker k8stesting.ObjectTracker) error {
			return tracker.Update(jobs, completeJob, testNamespace)
		},
		"deleted": func(tracker k8stesting.ObjectTracker) error {
			return tracker.Delete(jobs, testNamespace, workloadName)
		},
	} {
		for _, jobFirst := range []bool{true, false} {
			syncTest(t, fmt.Sprintf("%s/job-first=%v", name, jobFirst), func(t *testing.T) {
				client := createTestClient(job, workloadClaim(jobRef))
				for i := range numPods {
					pod := controlledBy(userPod(fmt.Sprintf("pod-%d", i), nodeName, v1.PodRunning), "batch/v1", "Job", job)
					require.NoError(t, client.Tracker().Add(pod), "add pod")
				}
				startSyncTest(t, workloadsEnabled, client, func(ctx context.Context, ec *Controller) { ec.Run(ctx, 5) })
				getClaim := func() *resourceapi.ResourceClaim {
					synctest.Wait()
					claim, err := trackedClaim(client)
					require.NoError(t, err, "get claim")
					return claim
				}
				expectReserved := func(what string) {
					claim := getClaim()
					assert.Equal(t, workloadClaim(jobRef).Status, claim.Status, what)
				}
				time.Sleep(time.Hour)
				expectReserved("while job runs")

				if jobFirst {
					require.NoError(t, finish(client.Tracker()), "finish job")
				}
				for i := range numPods {
					time.Sleep(time.Minute)
					expectReserved(fmt.Sprintf("with %d pods", numPods-i))
					require.NoError(t, client.Tracker().Delete(pods, testNamespace, fmt.Sprintf("pod-%d", i)), "delete pod")
				}
				if !jobFirst {
					time.Sleep(time.Hour)
					expectReserved("while job is not finished")
					require.NoError(t, finish(client.Tracker()), "finish job")
				}

				time.Sleep(defaultEndPause / 2)
				claim := getClaim()
				assert.Empty(t, claim.Status.ReservedFor, "reserved for")
				assert.NotNil(t, claim.Status.Allocation, "allocation")
				time.Sleep(time.Second - defaultEndPause/2)
				assert.Nil(t, getClaim().Status.Allocation, "allocation a second after the job and its last pod are done")

				updates := 0
				for _, action := range client.Actions() {
					if action.GetVerb() == "update" {
						updates++
					}
				}
				assert.Equal(t, 3, updates, "writes to the claim (remove reservation, deallocate, remove finalizer)")
			})
		}
	}
}
