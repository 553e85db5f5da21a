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
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// nodeAgent stands in for the kubelets of all nodes: it lets pods run if their
// claims permit it, ends them when it is told to, and finishes their deletion.
type nodeAgent struct {
	client    clientset.Interface
	podLister corelisters.PodLister
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mutex sync.Mutex
	// outcome says for pods that shall end how they do.
	outcome map[types.UID]v1.PodPhase
	// held are pods which refuse to terminate.
	held map[types.UID]bool
	// grace is how long a pod continues to run after it was deleted.
	// Nil means that all of them stop immediately.
	grace func(pod *v1.Pod) time.Duration
	// deleted says since when that is so.
	deleted map[types.UID]time.Time
}

// startNodeAgent runs the agent until the end of the test.
func startNodeAgent(tCtx ktesting.TContext) *nodeAgent {
	tCtx.Helper()
	config := rest.CopyConfig(tCtx.RESTConfig())
	config.QPS = 1000
	config.Burst = 1000
	tCtx = withRESTConfig(withCancel(tCtx), config)
	informerFactory := informers.NewSharedInformerFactory(tCtx.Client(), 0)
	pods := informerFactory.Core().V1().Pods()
	a := &nodeAgent{
		client:    tCtx.Client(),
		podLister: pods.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			// Frequent retries replace waiting for changes of claims.
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](20*time.Millisecond, 500*time.Millisecond)),
		outcome: map[types.UID]v1.PodPhase{},
		held:    map[types.UID]bool{},
		deleted: map[types.UID]time.Time{},
	}
	enqueue := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			a.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	tCtx.ExpectNoError(err, "add pod event handler")
	informerFactory.Start(tCtx.Done())
	informerFactory.WaitForCacheSync(tCtx.Done())

	var wg sync.WaitGroup
	for range 4 {
		inBackground(&wg, func() {
			for a.next(tCtx) {
			}
		})
	}
	tCtx.Cleanup(func() {
		tCtx.Cancel("stopping the node agent")
		a.queue.ShutDown()
		wg.Wait()
		informerFactory.Shutdown()
	})
	return a
}

// finish ends a pod with the given phase.
func (a *nodeAgent) finish(pod *v1.Pod, phase v1.PodPhase) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.outcome[pod.UID] = phase
	a.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// hold keeps a pod from terminating until it is released.
func (a *nodeAgent) hold(pod *v1.Pod) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.held[pod.UID] = true
}

func (a *nodeAgent) release(pod *v1.Pod) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.held, pod.UID)
	a.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// setGrace changes how long deleted pods continue to run.
func (a *nodeAgent) setGrace(grace func(pod *v1.Pod) time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.grace = grace
}

// remainingGrace returns for how much longer a deleted pod continues to run.
func (a *nodeAgent) remainingGrace(pod *v1.Pod) time.Duration {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.grace == nil {
		return 0
	}
	since, ok := a.deleted[pod.UID]
	if !ok {
		since = time.Now()
		a.deleted[pod.UID] = since
	}
	return a.grace(pod) - time.Since(since)
}

func (a *nodeAgent) next(ctx context.Context) bool {
	key, quit := a.queue.Get()
	if quit {
		return false
	}
	defer a.queue.Done(key)
	if err := a.sync(ctx, key); err != nil {
		a.queue.AddRateLimited(key)
		return true
	}
	a.queue.Forget(key)
	return true
}

func (a *nodeAgent) sync(ctx context.Context, key types.NamespacedName) error {
	pod, err := a.podLister.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return nil
	}
	a.mutex.Lock()
	outcome, held := a.outcome[pod.UID], a.held[pod.UID]
	a.mutex.Unlock()
	terminal := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed

	switch {
	case pod.Spec.NodeName == "":
		// It may have been told how to end already, but no kubelet knows it yet.
		return nil
	case pod.DeletionTimestamp != nil && held:
		return nil
	case pod.DeletionTimestamp != nil && pod.Status.Phase == v1.PodRunning && a.remainingGrace(pod) > 0:
		a.queue.AddAfter(key, a.remainingGrace(pod))
		return nil
	case pod.DeletionTimestamp != nil && !terminal:
		// What gets deleted while it runs has failed.
		return a.setPhase(ctx, pod, v1.PodFailed)
	case pod.DeletionTimestamp != nil:
		err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To(int64(0)),
			Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	case terminal:
		return nil
	case pod.Status.Phase == v1.PodRunning:
		if outcome == "" {
			return nil
		}
		return a.setPhase(ctx, pod, outcome)
	default:
		if err := a.mayRun(ctx, pod); err != nil {
			return err
		}
		return a.setPhase(ctx, pod, v1.PodRunning)
	}
}

// mayRun checks the claims of a pod as a kubelet does before it prepares them:
// with the current claim from the API server. Intentionally it does not share code with
// the kubelet.
func (a *nodeAgent) mayRun(ctx context.Context, pod *v1.Pod) error {
	for _, podClaim := range pod.Spec.ResourceClaims {
		name := claimName(pod, podClaim)
		if name == "" {
			continue
		}
		claim, err := resourceClient(a.client).ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := mayUse(claim, pod); err != nil {
			return err
		}
	}
	return nil
}

// mayUse says why a pod may not use a claim.
func mayUse(claim *resourceapi.ResourceClaim, pod *v1.Pod) error {
	if claim.Status.Allocation == nil {
		return fmt.Errorf("claim %s is not allocated", klog.KObj(claim))
	}
	anyPod := ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false)
	for _, ref := range claim.Status.ReservedFor {
		isPod := ref.APIGroup == "" && ref.Resource == "pods"
		if ref.UID == pod.UID || anyPod && !isPod {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not allowed to use claim %s", klog.KObj(pod), klog.KObj(claim))
}

func (a *nodeAgent) setPhase(ctx context.Context, pod *v1.Pod, phase v1.PodPhase) error {
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	ready := v1.ConditionFalse
	if phase == v1.PodRunning {
		ready = v1.ConditionTrue
	}
	now := metav1.Now()
	found := false
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == v1.PodReady {
			found = true
			condition.Status = ready
			condition.LastTransitionTime = now
		}
	}
	if !found {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: ready, LastTransitionTime: now})
	}
	if phase != v1.PodRunning {
		// The job controller wants to know.
		exitCode := int32(0)
		if phase == v1.PodFailed {
			exitCode = 1
		}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{
			Name:  "main",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: exitCode, FinishedAt: now}},
		}}
	}
	_, err := a.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
