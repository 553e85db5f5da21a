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

package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// Cluster is a real one, in which cases are seeded.
type Cluster struct {
	Dynamic dynamic.Interface
	Mapper  meta.RESTMapper
	// Version is that of resource.k8s.io.
	Version string
}

// Seed creates the objects of a case in a namespace of its own. Clean removes everything again, also after an error.
func (c *Case) Seed(ctx context.Context, cluster Cluster, namespace string) error {
	steps, err := c.Steps(namespace, cluster.Version, true)
	if err != nil {
		return err
	}
	if err := cluster.apply(ctx, NewNamespace(namespace)); err != nil {
		return err
	}
	// Without it, no pod can be created.
	account := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := cluster.Dynamic.Resource(account).Namespace(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("case %s: no service account: %w", c.ID, err)
	}
	for _, step := range steps {
		if err := cluster.apply(ctx, step); err != nil {
			return fmt.Errorf("case %s: %s %s: %w", c.ID, step.GetKind(), step.GetName(), err)
		}
	}
	return nil
}

// Clean removes what Seed has created.
func (c *Case) Clean(ctx context.Context, cluster Cluster, namespace string) error {
	steps, err := c.Steps(namespace, cluster.Version, true)
	if err != nil {
		return err
	}
	steps = append(steps, NewNamespace(namespace))
	var errs []error
	for _, step := range steps {
		client, _, err := cluster.Client(step.Unstructured)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if finalizers := step.GetFinalizers(); len(finalizers) > 0 && strings.HasPrefix(finalizers[0], "example.com/") {
			_, err := client.Patch(ctx, step.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			errs = append(errs, ignoreNotFound(err))
		}
		now := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
		if step.GetKind() == "Pod" {
			// A node without a kubelet never says that the pod has ended.
			now = *metav1.NewDeleteOptions(0)
		}
		errs = append(errs, ignoreNotFound(client.Delete(ctx, step.GetName(), now)))
	}
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// NewNamespace returns the first step of each case.
func NewNamespace(name string) Object {
	return Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}}
}

// Client returns one for the kind of an object, in its namespace if the kind has namespaces.
func (c Cluster) Client(o *unstructured.Unstructured) (client dynamic.ResourceInterface, namespaced bool, err error) {
	mapping, err := c.Mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, false, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.Dynamic.Resource(mapping.Resource), false, nil
	}
	return c.Dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), true, nil
}

// apply does one step: the object first, then its status.
func (c Cluster) apply(ctx context.Context, step Object) error {
	o := step.DeepCopy()
	client, namespaced, err := c.Client(o)
	if err != nil {
		return err
	}
	if step.Deleted {
		return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	err = ResolveUIDs(o, func(object string) (string, error) {
		kind, name, _ := strings.Cut(object, "/")
		resource, err := c.Mapper.ResourceFor(schema.GroupVersionResource{Resource: kind})
		if err != nil {
			return "", err
		}
		other, err := c.Dynamic.Resource(resource).Namespace(o.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(other.GetUID()), nil
	})
	if err != nil {
		return err
	}
	if !namespaced {
		// Steps does not know all kinds without namespaces.
		o.SetNamespace("")
	}
	status := o.Object["status"]
	delete(o.Object, "status")
	_, err = client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if err = c.patch(ctx, client, o.GetName(), o.Object); err != nil {
			return err
		}
	}
	if err != nil || status == nil {
		return err
	}
	return c.patch(ctx, client, o.GetName(), map[string]any{"status": status}, "status")
}

func (c Cluster) patch(ctx context.Context, client dynamic.ResourceInterface, name string, patch map[string]any, subresources ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	return err
}
