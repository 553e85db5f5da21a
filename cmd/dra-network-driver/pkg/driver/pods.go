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
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// podWait is how long a sandbox may wait for its pod. The runtime starts no other pod meanwhile.
const podWait = 100 * time.Millisecond

// errUnknownPod says that the API server has not told about the pod yet.
var errUnknownPod = errors.New("the API server has not told the driver about the pod; it will be tried again")

// Pods are the pods of the node.
type Pods interface {
	// Get returns the pod with this UID. It does not ask the API server, but waits for it to
	// tell about the pod until the context is done. Then the error is errUnknownPod.
	Get(ctx context.Context, namespace, name string, uid types.UID) (*v1.Pod, error)
	// List returns all pods.
	List() []*v1.Pod
	// WaitForSync returns false if the context is done before the API server has told about all pods.
	WaitForSync(ctx context.Context) bool
}

// PodCache gets the pods of a node from the API server.
type PodCache struct {
	informer cache.SharedIndexInformer

	mutex sync.Mutex
	// added gets closed when there is another pod.
	added chan struct{}
}

var _ Pods = &PodCache{}

// NewPodCache returns a cache that is empty until it runs.
func NewPodCache(client kubernetes.Interface, nodeName string) (*PodCache, error) {
	selector := fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	c := &PodCache{
		informer: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = selector
		})).Core().V1().Pods().Informer(),
		added: make(chan struct{}),
	}
	if err := c.informer.SetTransform(onlyClaims); err != nil {
		return nil, err
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { c.wake() }})
	return c, err
}

// onlyClaims removes what the driver does not need.
func onlyClaims(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	claimsOf := func(containers []v1.Container) (only []v1.Container) {
		for _, container := range containers {
			only = append(only, v1.Container{Resources: v1.ResourceRequirements{Claims: container.Resources.Claims}})
		}
		return only
	}
	return &v1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec: v1.PodSpec{
			NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims,
			InitContainers: claimsOf(pod.Spec.InitContainers), Containers: claimsOf(pod.Spec.Containers),
		},
		Status: v1.PodStatus{ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus},
	}, nil
}

// Run fills the cache until the context is done. It calls the function for each pod that has claims,
// and again when that failed.
func (c *PodCache) Run(ctx context.Context, seen func(ctx context.Context, pod *v1.Pod) error) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "pods"},
	)
	defer queue.ShutDown()
	enqueue := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok && (len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil) {
			queue.Add(pod.Namespace + "/" + pod.Name)
		}
	}
	if _, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}); err != nil {
		return err
	}
	context.AfterFunc(ctx, queue.ShutDown)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}
			obj, exists, err := c.informer.GetStore().GetByKey(key)
			if pod, ok := obj.(*v1.Pod); err == nil && exists && ok {
				err = seen(ctx, pod)
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "Looking at the claims of a pod, will try again", "pod", key)
				queue.AddRateLimited(key)
			} else {
				queue.Forget(key)
			}
			queue.Done(key)
		}
	})
	c.informer.RunWithContext(ctx)
	return nil
}

func (c *PodCache) wake() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	close(c.added)
	c.added = make(chan struct{})
}

// Get implements [Pods.Get].
func (c *PodCache) Get(ctx context.Context, namespace, name string, uid types.UID) (*v1.Pod, error) {
	for {
		c.mutex.Lock()
		added := c.added
		c.mutex.Unlock()
		obj, exists, err := c.informer.GetStore().GetByKey(namespace + "/" + name)
		if err != nil {
			return nil, err
		}
		if pod, ok := obj.(*v1.Pod); ok && exists && pod.UID == uid {
			return pod, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return nil, errUnknownPod
		}
	}
}

// List implements [Pods.List].
func (c *PodCache) List() []*v1.Pod {
	var pods []*v1.Pod
	for _, obj := range c.informer.GetStore().List() {
		if pod, ok := obj.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// WaitForSync implements [Pods.WaitForSync].
func (c *PodCache) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced)
}

// PodSeen looks for claims of a pod which have devices of this driver, but of which there is no record. Usually
// the kubelet has them prepared a moment later. If it has done that before, and the record was
// lost, then it does not, and the pod would start without its interfaces.
func (d *Driver) PodSeen(ctx context.Context, pod *v1.Pod) error {
	names, err := claimNames(pod)
	if err != nil {
		return nil // The pod is refused when it starts.
	}
	for _, name := range names {
		if len(d.claimsByName(pod.Namespace, []string{name})) > 0 {
			continue
		}
		claim, err := d.getClaim(ctx, pod.Namespace, name)
		if err != nil && !isGone(err, "resourceclaims", name) {
			return fmt.Errorf("claim %s/%s: %w", pod.Namespace, name, err)
		}
		d.mutex.Lock()
		if err == nil && d.hasInterfaces(claim) {
			d.ours.Insert(pod.Namespace + "/" + name)
		} else {
			d.ours.Delete(pod.Namespace + "/" + name)
		}
		d.mutex.Unlock()
	}
	return nil
}

func (d *Driver) getClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return d.Claims(ctx, namespace, name)
}

// hasInterfaces returns true if the claim has devices of this node that have to be connected.
func (d *Driver) hasInterfaces(claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == d.Name && result.Pool == d.NodeName && !ptr.Deref(result.AdminAccess, false) {
			return true
		}
	}
	return false
}

// checkRecords returns an error if the record of a claim was lost.
func (d *Driver) checkRecords(namespace string, names []string) error {
	for _, name := range names {
		d.mutex.Lock()
		ours := d.ours.Has(namespace + "/" + name)
		d.mutex.Unlock()
		if ours && len(d.claimsByName(namespace, []string{name})) == 0 {
			return fmt.Errorf("claim %s/%s has network devices of this node, but the driver has no record of it: its folder of data was removed or damaged since the kubelet prepared the claim. Delete all pods on this node that use the claim, then the kubelet has it prepared again", namespace, name)
		}
	}
	return nil
}

// forgetUnused drops what is known about claims that no pod uses anymore.
func (d *Driver) forgetUnused() {
	used := map[string]bool{}
	for _, pod := range d.Pods.List() {
		names, err := claimNames(pod)
		if err != nil {
			continue
		}
		for _, name := range names {
			used[pod.Namespace+"/"+name] = true
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for key := range d.ours {
		if !used[key] {
			d.ours.Delete(key)
		}
	}
}
