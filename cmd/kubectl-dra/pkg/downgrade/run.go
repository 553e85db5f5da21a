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

package downgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"
)

// run goes through the claims of one or all namespaces.
type run struct {
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	// resource is the version of ResourceClaims that the API server prefers.
	resource schema.GroupVersionResource
	// managers are the field managers that write for the carry.
	managers sets.Set[string]
	// namespace is empty for all namespaces.
	namespace string
	// apply is false if nothing may be changed, dryRun is true if the API server must not store the changes.
	apply, dryRun bool
	// back undoes an earlier run.
	back bool
	// progress gets called while claims get changed.
	progress func(done, all int)
}

const (
	// maxParallel is how many claims get changed at the same time.
	maxParallel = 8

	// maxChanges is how often the same claim is decided about again because somebody else changed it.
	maxChanges = 5
)

// task is what is done about one claim.
type task struct {
	claim *claim
	step  step
	err   error
}

// do returns what was done, or what would be done, about each claim that has something to
// do with the carry. After an error with one claim it goes on with the others.
func (r *run) do(ctx context.Context) ([]step, error) {
	tasks, err := r.plan(ctx)
	if err != nil || !r.apply {
		return results(tasks, err)
	}
	r.forEach(ctx, tasks, r.change)
	if r.dryRun {
		return results(tasks, nil)
	}

	// Where no pod used a claim, its workload is not listed anymore. A pod cannot start to use the claim
	// since then without changing it, and the pods that got it before are among those that there are now.
	var free []*task
	for _, t := range tasks {
		if t.err == nil && t.step.action == actionRelease {
			free = append(free, t)
		}
	}
	pods, err := r.listPodsOf(ctx, free)
	if err != nil {
		return results(tasks, err)
	}
	r.forEach(ctx, free, func(ctx context.Context, t *task) error {
		before := t.step
		t.step = r.decide(t.claim, pods[t.claim.Namespace])
		if err := r.change(ctx, t); err != nil {
			return err
		}
		if t.step.action == actionRelease || t.claim.Status.Allocation == nil {
			t.step = before
		}
		return nil
	})
	return results(tasks, r.check(ctx, tasks))
}

// plan decides about all claims.
func (r *run) plan(ctx context.Context) ([]*task, error) {
	tasks, err := r.listClaims(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := r.listPodsOf(ctx, tasks)
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		t.step = r.decide(t.claim, pods[t.claim.Namespace])
	}
	return tasks, nil
}

// check looks at the end whether somebody has undone what was done.
func (r *run) check(ctx context.Context, tasks []*task) error {
	latest, err := r.plan(ctx)
	if err != nil {
		return err
	}
	changed := map[types.UID]*task{}
	for _, t := range tasks {
		if t.err == nil && t.step.isChange() {
			changed[t.claim.UID] = t
		}
	}
	for _, t := range latest {
		if before := changed[t.claim.UID]; before != nil && t.step.isChange() {
			before.err = fmt.Errorf("ResourceClaim %s/%s: somebody changed it again, there is still something to do (%s: %s): if DRAReservedForWorkloads is on in kube-scheduler, turn it off; then run this again", t.claim.Namespace, t.claim.Name, t.step.action, t.step.why)
		}
	}
	return nil
}

func results(tasks []*task, err error) ([]step, error) {
	errs := []error{err}
	var steps []step
	for _, t := range tasks {
		if t.err != nil {
			errs = append(errs, t.err)
			continue
		}
		steps = append(steps, t.step)
	}
	return steps, errors.Join(errs...)
}

// forEach does something about several claims at the same time.
func (r *run) forEach(ctx context.Context, tasks []*task, do func(ctx context.Context, t *task) error) {
	var mutex sync.Mutex
	done, finished := 0, make([]bool, len(tasks))
	workqueue.ParallelizeUntil(ctx, maxParallel, len(tasks), func(i int) {
		t := tasks[i]
		err := do(ctx, t)
		mutex.Lock()
		defer mutex.Unlock()
		finished[i] = true
		if done++; r.progress != nil {
			r.progress(done, len(tasks))
		}
		if err != nil {
			t.err = fmt.Errorf("ResourceClaim %s/%s: %w", t.claim.Namespace, t.claim.Name, err)
		}
	})
	for i, t := range tasks {
		if !finished[i] {
			t.err = fmt.Errorf("ResourceClaim %s/%s: %w", t.claim.Namespace, t.claim.Name, ctx.Err())
		}
	}
}

func (r *run) decide(c *claim, pods []corev1.Pod) step {
	if r.back {
		return decideBack(c, pods)
	}
	return decide(c, pods)
}

// listClaims returns the claims which the run is about, sorted by namespace and name.
func (r *run) listClaims(ctx context.Context) ([]*task, error) {
	var tasks []*task
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.dynamic.Resource(r.resource).Namespace(r.namespace).List(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		c, err := r.parse(obj)
		if err != nil {
			return err
		}
		if r.back && c.isRecorded() || !r.back && (c.holds() != nil || c.isLeft()) {
			tasks = append(tasks, &task{claim: c})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	slices.SortFunc(tasks, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.claim.Namespace, b.claim.Namespace), cmp.Compare(a.claim.Name, b.claim.Name))
	})
	return tasks, nil
}

func (r *run) parse(obj runtime.Object) (*claim, error) {
	return parseClaim(obj.(*unstructured.Unstructured), r.managers)
}

// template is a ResourceClaimTemplate of which upstream makes something else.
type template struct {
	namespace, name string
	// consumers are the objects that share a claim.
	consumers string
}

// listTemplates returns the templates from which one claim is generated for several pods.
func (r *run) listTemplates(ctx context.Context) ([]template, error) {
	resource := r.resource
	resource.Resource = "resourceclaimtemplates"
	var templates []template
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.dynamic.Resource(resource).Namespace(r.namespace).List(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		t := obj.(*unstructured.Unstructured)
		ref, found, err := unstructured.NestedStringMap(t.Object, "spec", "spec", "reservedFor")
		if err != nil {
			return fmt.Errorf("ResourceClaimTemplate %s/%s: %w", t.GetNamespace(), t.GetName(), err)
		}
		if found {
			templates = append(templates, template{t.GetNamespace(), t.GetName(), schema.GroupResource{Group: ref["apiGroup"], Resource: ref["resource"]}.String()})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaimTemplates: %w", err)
	}
	slices.SortFunc(templates, func(a, b template) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return templates, nil
}

// listPodsOf returns, by namespace, the pods on nodes which have claims.
func (r *run) listPodsOf(ctx context.Context, tasks []*task) (map[string][]corev1.Pod, error) {
	pods := map[string][]corev1.Pod{}
	for _, t := range tasks {
		if _, found := pods[t.claim.Namespace]; found {
			continue
		}
		var err error
		if pods[t.claim.Namespace], err = r.listPods(ctx, t.claim.Namespace); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// listPods returns the pods on nodes which have claims.
func (r *run) listPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.kube.CoreV1().Pods(namespace).List(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName != "" && len(pod.Spec.ResourceClaims) > 0 {
			pods = append(pods, *pod)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods in namespace %s: %w", namespace, err)
	}
	return pods, nil
}

// change makes the changes of a step, and then has the step that was made. If the claim is
// another by now, then it decides again.
func (r *run) change(ctx context.Context, t *task) error {
	uid := t.claim.UID
	for range maxChanges {
		err := r.write(ctx, t)
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
		again, err := r.isSame(ctx, t)
		if err != nil || !again {
			return err
		}
		pods, err := r.listPods(ctx, t.claim.Namespace)
		if err != nil {
			return err
		}
		t.step = r.decide(t.claim, pods)
	}
	return fmt.Errorf("UID %s: it changes all the time: run this again", uid)
}

// isSame gets the latest revision of the claim. It returns false if the claim was deleted, and
// perhaps created anew.
func (r *run) isSame(ctx context.Context, t *task) (bool, error) {
	obj, err := r.dynamic.Resource(r.resource).Namespace(t.claim.Namespace).Get(ctx, t.claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != t.claim.UID {
		t.step.action, t.step.why = actionNone, "it was deleted in the meantime"
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.claim, err = r.parse(obj)
	return err == nil, err
}

// write makes the changes of a step in an order in which it can be interrupted: what
// gets removed from the list is recorded first, and the record goes last.
//
// A claim with a workload in its list is not released in one go: new pods use it without changing it.
func (r *run) write(ctx context.Context, t *task) error {
	s, err := &t.step, error(nil)
	switch s.action {
	case actionList, actionRelease:
		record := t.claim.record()
		for _, ref := range s.remove {
			if !slices.Contains(record, ref) {
				record = append(record, ref)
			}
		}
		if record == nil {
			record = []reference{}
		}
		text, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		if err := r.annotate(ctx, t, string(text)); err != nil {
			return err
		}
		return r.patchStatus(ctx, t, s.action == actionRelease && (len(s.remove) == 0 || r.dryRun))
	case actionRestore:
		if err = r.patchStatus(ctx, t, false); err != nil {
			return err
		}
		return r.annotate(ctx, t, nil)
	case actionForget:
		return r.annotate(ctx, t, nil)
	}
	return nil
}

// annotate sets the record, or removes it if the value is nil.
func (r *run) annotate(ctx context.Context, t *task, value any) error {
	if value == any(t.claim.Annotations[recordAnnotation]) {
		return nil
	}
	return r.patch(ctx, t, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": t.claim.UID, "resourceVersion": t.claim.ResourceVersion, "annotations": map[string]any{recordAnnotation: value}},
	})
}

// patchStatus adds and removes entries in one write, and may free the devices. The API server
// merges the entries by UID.
func (r *run) patchStatus(ctx context.Context, t *task, deallocate bool) error {
	entries := []any{}
	for _, ref := range t.step.remove {
		entries = append(entries, map[string]any{"$patch": "delete", "uid": ref.UID})
	}
	for _, ref := range t.step.add {
		entries = append(entries, ref)
	}
	status := map[string]any{}
	if len(entries) > 0 {
		status["reservedFor"] = entries
	}
	if deallocate {
		status["allocation"] = nil
	}
	if len(status) == 0 {
		return nil
	}
	return r.patch(ctx, t, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": t.claim.UID, "resourceVersion": t.claim.ResourceVersion},
		"status":   status,
	}, "status")
}

// patch stores a change of exactly the revision of the claim that was looked at.
func (r *run) patch(ctx context.Context, t *task, kind types.PatchType, patch map[string]any, subresources ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if r.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	obj, err := r.dynamic.Resource(r.resource).Namespace(t.claim.Namespace).Patch(ctx, t.claim.Name, kind, data, options, subresources...)
	if err != nil || r.dryRun {
		return err
	}
	t.claim, err = r.parse(obj)
	return err
}
