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

package checks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var restartChecks = []check.Check{
	{
		ID:    "restart",
		Asks:  "When the driver restarts, do pods keep running, do slices and status stay, and does the next pod start?",
		Do:    "Keep on disk what was prepared. Do not withdraw devices when the driver ends: the kubelet does that if it stays away.",
		Needs: []check.Need{needsDriverPods},
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			pod := c.Start("pod", check.Pod{}, claim)
			before, status, pools := c.Runs(pod), c.Status(claim).Devices, completePools(localSlices(c))
			driverReady(c, deleteDriver(c))
			published(c, pools, nil)
			runOnce(c, "next", check.Pod{})
			c.Must(unchanged(before, c.Runs(pod)))
			c.Must(kept(status, c.Status(claim).Devices))
			c.Stop(pod)
			c.Free(claim)
		},
	},
	{
		ID:    "restart-start",
		Asks:  "Do pods start that come while the driver restarts? The kubelet repeats a call that failed.",
		Do:    "Prepare a claim as if nothing had been done, whatever an aborted attempt has left.",
		Needs: []check.Need{needsDriverPods, needsDevices(1)},
		Run: func(c *check.Case) {
			old := deleteDriver(c)
			pods := startSeveral(c, check.Pod{Ends: true})
			driverReady(c, old)
			succeed(c, pods)
		},
	},
	{
		ID:    "restart-end",
		Asks:  "Do pods go that end while the driver restarts, some by force? It may be told twice to unprepare a claim.",
		Do:    "Let unprepare succeed for a claim that is not prepared.",
		Needs: []check.Need{needsDriverPods, needsDevices(1)},
		Run: func(c *check.Case) {
			pods := startSeveral(c, check.Pod{})
			for _, pod := range pods {
				c.Runs(pod)
			}
			old := deleteDriver(c)
			for i, pod := range pods {
				c.Delete(pod, i%2 == 1)
			}
			driverReady(c, old)
			for _, pod := range pods {
				c.Gone(pod)
				c.Free(pod)
			}
			runOnce(c, "after", check.Pod{})
		},
	},
	{
		ID:    "ready",
		Asks:  "Is the driver's pod not ready before its slices are published? A rolling update goes on when it is.",
		Do:    "Give the driver's pod a readiness probe that says no until the kubelet knows the driver and its slices are published.",
		Needs: []check.Need{needsDriverPods, needsPool},
		Run: func(c *check.Case) {
			pools := completePools(localSlices(c))
			for range readyAttempts {
				list := localSlices(c)
				// The old one would publish them again.
				old := endDriver(c)
				deleteSlices(c, list)
				late := slices.ContainsFunc(driverPods(c), started)
				driverReady(c, old)
				if !late {
					mustHavePools(c, pools)
					return
				}
				published(c, pools, nil)
			}
			c.Skipf("the new driver was faster than this program, %d times; try again with --only ready", readyAttempts)
		},
	},
}

// readyAttempts is how often the driver is restarted until its slices are deleted before the new one starts.
const readyAttempts = 5

// mustHavePools fails if the driver that is ready lacks some. What comes next needs them.
func mustHavePools(c *check.Case, pools sets.Set[string]) {
	missing := pools.Difference(completePools(localSlices(c)))
	published(c, pools, nil)
	if missing.Len() > 0 {
		c.Must(&check.Failure{What: "the driver's pod was ready before its slices were there", Seen: []string{fmt.Sprintf("pools %q were complete some time later", sets.List(missing))}})
	}
}

// needsDriverPods is for checks that restart the driver.
func needsDriverPods(c *check.Case) string {
	if c.DriverSelector == "" {
		return "without --driver-selector, nobody knows which pods are the driver's"
	}
	if len(driverPods(c)) == 0 {
		what := fmt.Sprintf("no pod on node %s in namespace %s has the labels %s", c.Node(), c.DriverNamespace, c.DriverSelector)
		c.Must(&check.Failure{What: what, Seen: []string{"no pods"}, Do: "Correct --driver-selector."})
	}
	return ""
}

// driverPods are those on the node.
func driverPods(c *check.Case) []corev1.Pod {
	list, err := c.Kube.CoreV1().Pods(c.DriverNamespace).List(c.Context(), driverPodsOptions(c))
	c.Must(err)
	return list.Items
}

func driverPodsOptions(c *check.Case) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: c.DriverSelector, FieldSelector: "spec.nodeName=" + c.Node()}
}

// deleteDriver deletes the driver's pods on the node, and returns which they were.
func deleteDriver(c *check.Case) sets.Set[types.UID] {
	old := sets.New[types.UID]()
	for _, pod := range driverPods(c) {
		old.Insert(pod.UID)
		if err := c.Kube.CoreV1().Pods(pod.Namespace).Delete(c.Context(), pod.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			c.Must(err)
		}
	}
	return old
}

// driverReady waits until others are there in place of the old ones, all of them ready.
func driverReady(c *check.Case, old sets.Set[types.UID]) {
	c.Until("the driver is ready again", func() error {
		pods := driverPods(c)
		if err := gone(pods, old); err != nil {
			return err
		}
		ready := slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
			return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
		})
		if len(ready) < len(old) {
			return fmt.Errorf("%d of %d pods are ready", len(ready), len(old))
		}
		return nil
	})
}

// endDriver deletes the driver's pods on the node, and returns which they were at once when they are gone. A list
// takes some tenths of a second, in which the next driver starts. So it counts only if nobody tells.
func endDriver(c *check.Case) sets.Set[types.UID] {
	ctx, cancel := context.WithTimeout(c.Context(), c.Patience)
	defer cancel()
	w, err := c.Kube.CoreV1().Pods(c.DriverNamespace).Watch(ctx, driverPodsOptions(c))
	old := deleteDriver(c)
	if err == nil {
		defer w.Stop()
		left := old.Clone()
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted {
				if left.Delete(pod.UID); left.Len() == 0 {
					return old
				}
			}
		}
	}
	c.Until("the old driver is gone", func() error { return gone(driverPods(c), old) })
	return old
}

func gone(pods []corev1.Pod, old sets.Set[types.UID]) error {
	for _, pod := range pods {
		if old.Has(pod.UID) {
			return fmt.Errorf("pod %s is still there", pod.Name)
		}
	}
	return nil
}

// started returns true if a container of a pod runs.
func started(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// kept checks that what a driver reported is still there. It may look at its devices again, and say so
// in a message, or in its data.
func kept(before, now []resourceapi.AllocatedDeviceStatus) error {
	bare := func(d resourceapi.AllocatedDeviceStatus) resourceapi.AllocatedDeviceStatus {
		conditions := d.Conditions
		d.Data, d.Conditions = nil, nil
		for _, c := range conditions {
			d.Conditions = append(d.Conditions, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
		return d
	}
	for _, old := range before {
		if !slices.ContainsFunc(now, func(d resourceapi.AllocatedDeviceStatus) bool { return equality.Semantic.DeepEqual(bare(d), bare(old)) }) {
			return check.Failf("the entry of device %s/%s in status.devices is gone, or another one", old.Pool, old.Device)
		}
	}
	return nil
}
