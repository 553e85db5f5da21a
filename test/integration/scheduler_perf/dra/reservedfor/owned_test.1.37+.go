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

package reservedfor

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// Claims that are generated for the owner of a pod need pods with owner references. A template
// of scheduler_perf cannot have the UID of an object, so these pods are created here.

func init() {
	createOwnedPods = func(tCtx ktesting.TContext) error {
		if !isCase(tCtx, "NamedClaims", "GeneratedClaims", "ClaimPerPod", "PodGroupTemplate") {
			return nil
		}
		return createPodsOfJobs(tCtx)
	}
}

// creators is how many pods get created at the same time, as scheduler_perf does it.
const creators = 30

// createPodsOfJobs creates the pods of all Jobs, and waits until they are scheduled.
func createPodsOfJobs(tCtx ktesting.TContext) error {
	var groups, pods int
	if _, err := fmt.Sscanf(path.Base(tCtx.Name()), "%dgroups_%dpods_", &groups, &pods); err != nil {
		return fmt.Errorf("read sizes from %s: %w", tCtx.Name(), err)
	}
	uids := make([]types.UID, groups)
	for i := range uids {
		job, err := tCtx.Client().BatchV1().Jobs(namespace).Get(tCtx, jobOf(i), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Job: %w", err)
		}
		uids[i] = job.UID
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, creators)
	for range creators {
		inBackground(&wg, func() {
			for i := int(next.Add(1)) - 1; i < pods; i = int(next.Add(1)) - 1 {
				pod := podOfJob(tCtx, i, i%groups, uids[i%groups])
				if _, err := tCtx.Client().CoreV1().Pods(namespace).Create(tCtx, pod, metav1.CreateOptions{}); err != nil {
					failed <- fmt.Errorf("create pod: %w", err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	unscheduled := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String(), Limit: 1, ResourceVersion: "0"}
	for {
		list, err := tCtx.Client().CoreV1().Pods(namespace).List(tCtx, unscheduled)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		if len(list.Items) == 0 {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-tCtx.Done():
			return errors.New("not all pods were scheduled in time")
		}
	}
}

func jobOf(group int) string { return fmt.Sprintf("%s-%d", jobName, group) }

func podOfJob(tCtx ktesting.TContext, index, group int, job types.UID) *v1.Pod {
	claim := v1.PodResourceClaim{Name: claimName}
	if isCase(tCtx, "NamedClaims") {
		claim.ResourceClaimName = ptr.To(fmt.Sprintf("%s-%d", claimName, group))
	} else {
		claim.ResourceClaimTemplateName = ptr.To(claimName)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("pod-%d", index),
			Labels: map[string]string{"workload": jobOf(group)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: jobOf(group), UID: job, Controller: ptr.To(true),
			}},
		},
		Spec: v1.PodSpec{
			// There is no kubelet which could confirm the termination.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			ResourceClaims:                []v1.PodResourceClaim{claim},
			Containers: []v1.Container{{
				Name:      "pause",
				Image:     "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: claimName}}},
			}},
		},
	}
	if isCase(tCtx, "PodGroupTemplate") {
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(jobOf(group))}
	}
	return pod
}
