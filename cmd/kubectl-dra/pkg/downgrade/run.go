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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

// run goes through the claims of one or all namespaces.
type run struct {
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	// resource is the version of ResourceClaims that the API server prefers.
	resource schema.GroupVersionResource
	// namespace is empty for all namespaces.
	namespace string
	// apply is false if nothing may be changed.
	apply bool
	// back undoes an earlier run.
	back bool
	// patience is how long the devices of one claim may take to become free.
	patience time.Duration
}

// do returns what was done, or what would be done, about each claim that has something to
// do with the carry. After an error with one claim it goes on with the others.
func (r *run) do(ctx context.Context) ([]step, error) {
	claims, err := r.listClaims(ctx)
	if err != nil {
		return nil, err
	}
	pods := map[string][]corev1.Pod{}
	var steps []step
	var errs []error
	for _, c := range claims {
		if _, ok := pods[c.Namespace]; !ok {
			if pods[c.Namespace], err = r.listPods(ctx, c.Namespace); err != nil {
				return steps, err
			}
		}
		s, err := r.decide(c, pods[c.Namespace])
		if err == nil && r.apply {
			s, err = r.change(ctx, c, s)
		}
		if err == nil && r.apply && s.wait {
			err = r.waitUntilFree(ctx, c)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, s)
	}
	return steps, errors.Join(errs...)
}

func (r *run) decide(c *claim, pods []corev1.Pod) (step, error) {
	if r.back {
		return decideBack(c, pods)
	}
	return decide(c, pods), nil
}

// listClaims returns the claims which the run is about, sorted by namespace and name.
func (r *run) listClaims(ctx context.Context) ([]*claim, error) {
	var claims []*claim
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.dynamic.Resource(r.resource).Namespace(r.namespace).List(ctx, options)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		c, err := parseClaim(obj.(*unstructured.Unstructured))
		if err != nil {
			return err
		}
		_, changed := c.Annotations[recordAnnotation]
		if r.back && changed || !r.back && (c.holds() != nil || c.isLeft()) {
			claims = append(claims, c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return claims, nil
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

// change makes the changes of a step. If the claim is another by now, then it decides
// again. It returns the step that was made.
func (r *run) change(ctx context.Context, c *claim, s step) (step, error) {
	again := false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if again {
			var err error
			if c, s, err = r.look(ctx, c); err != nil {
				return err
			}
		}
		again = true
		return r.write(ctx, c, s)
	})
	if apierrors.IsNotFound(err) {
		s.action, s.why = actionNone, "it was deleted in the meantime"
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("ResourceClaim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return s, nil
}

// look decides about the latest revision of a claim.
func (r *run) look(ctx context.Context, c *claim) (*claim, step, error) {
	obj, err := r.dynamic.Resource(r.resource).Namespace(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return c, step{}, err
	}
	if c, err = parseClaim(obj); err != nil {
		return c, step{}, err
	}
	pods, err := r.listPods(ctx, c.Namespace)
	if err != nil {
		return c, step{}, err
	}
	s, err := r.decide(c, pods)
	return c, s, err
}

// write makes the changes of a step in an order in which it can be interrupted: what
// gets removed from the list is recorded first, and the record goes last.
func (r *run) write(ctx context.Context, c *claim, s step) error {
	version := c.ResourceVersion
	if s.action == actionList || s.action == actionRelease {
		record, err := c.record()
		if err != nil {
			return err
		}
		for _, ref := range s.remove {
			if !slices.Contains(record, ref) {
				record = append(record, ref)
			}
		}
		if record != nil {
			text, err := json.Marshal(record)
			if err != nil {
				return err
			}
			if version, err = r.annotate(ctx, c, version, string(text)); err != nil {
				return err
			}
		}
	}
	if len(s.add)+len(s.remove) > 0 || s.deallocate {
		var err error
		if version, err = r.patchStatus(ctx, c, version, s); err != nil {
			return err
		}
	}
	if s.action == actionRestore || s.action == actionForget {
		_, err := r.annotate(ctx, c, version, nil)
		return err
	}
	return nil
}

// annotate sets the record, or removes it if the value is nil. It returns the new ResourceVersion.
func (r *run) annotate(ctx context.Context, c *claim, version string, value any) (string, error) {
	if value == any(c.Annotations[recordAnnotation]) {
		return version, nil
	}
	return r.patch(ctx, c, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": version, "annotations": map[string]any{recordAnnotation: value}},
	})
}

// patchStatus adds and removes entries in one write, and frees the devices if nobody else does.
// The API server merges the entries by UID.
func (r *run) patchStatus(ctx context.Context, c *claim, version string, s step) (string, error) {
	entries := []any{}
	for _, ref := range s.remove {
		entries = append(entries, map[string]any{"$patch": "delete", "uid": ref.UID})
	}
	for _, ref := range s.add {
		entries = append(entries, ref)
	}
	status := map[string]any{"reservedFor": entries}
	if s.deallocate {
		status["allocation"] = nil
	}
	return r.patch(ctx, c, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": version},
		"status":   status,
	}, "status")
}

// waitUntilFree waits for the controller of the carry. If it gets replaced before it has freed
// the devices, then nobody does.
func (r *run) waitUntilFree(ctx context.Context, c *claim) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second, r.patience, true, func(ctx context.Context) (bool, error) {
		obj, err := r.dynamic.Resource(r.resource).Namespace(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		latest, err := parseClaim(obj)
		// Somebody may use it again.
		return err == nil && (latest.UID != c.UID || latest.Status.Allocation == nil || len(latest.Status.ReservedFor) > 0), err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("ResourceClaim %s/%s: kube-controller-manager has not freed its devices within %s: look whether it runs, and run this again", c.Namespace, c.Name, r.patience)
	}
	return err
}

func (r *run) patch(ctx context.Context, c *claim, kind types.PatchType, patch map[string]any, subresources ...string) (string, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return "", fmt.Errorf("encode patch: %w", err)
	}
	obj, err := r.dynamic.Resource(r.resource).Namespace(c.Namespace).Patch(ctx, c.Name, kind, data, metav1.PatchOptions{FieldManager: "kubectl-dra-downgrade"}, subresources...)
	if err != nil {
		return "", err
	}
	return obj.GetResourceVersion(), nil
}
