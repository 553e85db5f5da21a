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

package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"kubernetes-dra/cmd/internal/access"
)

// Options are what the user says about the driver.
type Options struct {
	Driver, DeviceClass string
	// Template is what all pods are made of.
	Template corev1.PodTemplateSpec
	// Probe is a shell command that succeeds only where a container has its device.
	Probe string
	// Exclusive is true if only one pod at a time can use a device.
	Exclusive bool
	// Pods is how many share a claim.
	Pods int
	// OnlyNodes are those to look at, all with devices if it is empty.
	OnlyNodes []string
	// DriverNamespace and DriverSelector find the driver's pods, if they are not empty.
	DriverNamespace, DriverSelector string
	// AccountNamespace and AccountName are the driver's service account, if they are not empty.
	AccountNamespace, AccountName string
	// Patience is how long something may take that takes seconds.
	Patience time.Duration
}

// Env is the cluster, with a namespace for the checks.
type Env struct {
	Options
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Mapper  meta.RESTMapper
	// Namespace has what the checks make.
	Namespace string
	// ours is true if the namespace was made here.
	ours bool
	// run is in a label of all that is made: the namespace may have other things in it.
	run string
	// version is the best one of resource.k8s.io that is served.
	version string
	// nodes have devices of the driver.
	nodes []string
}

const (
	resourceGroup = "resource.k8s.io"
	// runLabel is on everything that a run makes.
	runLabel = "dra-driver-check/run"
	// pollInterval is short: some checks want to come in between.
	pollInterval = 100 * time.Millisecond
)

// Open finds the driver's devices, and makes a namespace unless there is the name of one.
func Open(ctx context.Context, e Env) (*Env, error) {
	mapping, err := e.Mapper.RESTMapping(schema.GroupKind{Group: resourceGroup, Kind: "ResourceClaim"})
	if err != nil {
		return nil, fmt.Errorf("find ResourceClaims in the API (dynamic resource allocation has to be enabled): %w", err)
	}
	e.version, e.run = mapping.Resource.Version, rand.String(5)
	if _, err := e.Resource("deviceclasses", "").Get(ctx, e.DeviceClass, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("read the DeviceClass of --device-class: %w", err)
	}
	if err := e.findNodes(ctx); err != nil {
		return nil, err
	}
	if e.Namespace != "" {
		if _, err := e.Kube.CoreV1().Namespaces().Get(ctx, e.Namespace, metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("read the namespace of --namespace: %w", err)
		}
		return &e, nil
	}
	e.ours, e.Namespace = true, "dra-driver-check-"+e.run
	labels := map[string]string{runLabel: e.run}
	for _, key := range access.AdminLabels {
		labels[key] = "true"
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace, Labels: labels}}
	_, err = e.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// A policy may guard the label, which only one check needs.
		namespace.Labels = map[string]string{runLabel: e.run}
		_, err = e.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("create a namespace for the checks (or name one with --namespace): %w", err)
	}
	err = within(ctx, e.Patience, "the namespace has a service account for pods", func(ctx context.Context) error {
		_, err := e.Kube.CoreV1().ServiceAccounts(e.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	return &e, nil
}

// Close removes the namespace, if it was made here.
func (e *Env) Close(ctx context.Context) error {
	if !e.ours {
		return nil
	}
	namespaces := e.Kube.CoreV1().Namespaces()
	err := within(ctx, e.Patience, "namespace is gone", func(ctx context.Context) error {
		if err := namespaces.Delete(ctx, e.Namespace, metav1.DeleteOptions{}); err == nil || apierrors.IsConflict(err) {
			return errors.New("it is still there")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the namespace %s is left: %w. See what holds it, and delete it: kubectl delete namespace %[1]s", e.Namespace, err)
	}
	return nil
}

// Resource is one of resource.k8s.io, in the version that the cluster has.
func (e *Env) Resource(name, namespace string) dynamic.ResourceInterface {
	all := e.Dynamic.Resource(schema.GroupVersionResource{Group: resourceGroup, Version: e.version, Resource: name})
	if namespace == "" {
		return all
	}
	return all.Namespace(namespace)
}

// findNodes looks for nodes that are ready and have devices of the driver.
func (e *Env) findNodes(ctx context.Context) error {
	list, err := e.slices(ctx)
	if err != nil {
		return err
	}
	local := map[string]bool{}
	for _, slice := range list {
		if name := slice.Spec.NodeName; name != nil && len(slice.Spec.Devices) > 0 {
			local[*name] = true
		}
	}
	wanted := e.OnlyNodes
	if len(wanted) == 0 {
		wanted = slices.Sorted(maps.Keys(local))
	}
	var notReady []string
	for _, name := range wanted {
		node, err := e.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && len(e.OnlyNodes) == 0 {
			// Its slices outlived it. A check says so.
			continue
		}
		if err != nil {
			return fmt.Errorf("read node: %w", err)
		}
		if node.Spec.Unschedulable || !nodeReady(node) {
			notReady = append(notReady, name)
			continue
		}
		e.nodes = append(e.nodes, name)
	}
	switch {
	case len(list) == 0:
		return fmt.Errorf("driver %s has no ResourceSlices: is it installed, and is --driver its name?", e.Driver)
	case len(e.nodes) > 0:
		return nil
	case len(wanted) == 0:
		return fmt.Errorf("no ResourceSlice of driver %s is for one node: say with --node where its devices can be reached", e.Driver)
	default:
		return fmt.Errorf("no node with devices of driver %s is ready and takes pods: %s", e.Driver, strings.Join(notReady, ", "))
	}
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Nodes are those where the driver has devices, or those that the user named.
func (e *Env) Nodes() []string { return e.nodes }

// Node is one of them.
func (e *Env) Node() string { return e.nodes[0] }

// slices are those of the driver.
func (e *Env) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := e.Resource("resourceslices", "").List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + e.Driver})
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	var found []resourceapi.ResourceSlice
	for _, item := range list.Items {
		var slice resourceapi.ResourceSlice
		if err := convert(item.Object, &slice); err != nil {
			return nil, fmt.Errorf("ResourceSlice %s: %w", item.GetName(), err)
		}
		found = append(found, slice)
	}
	return found, nil
}

// countdown waits until nothing is left. Where less is left than before, patience begins again: hundreds
// of pods take their time.
func (e *Env) countdown(ctx context.Context, what string, left func(ctx context.Context) (int, error)) error {
	for lowest := math.MaxInt; lowest > 0; {
		err := within(ctx, e.Patience, what, func(ctx context.Context) error {
			n, err := left(ctx)
			if err == nil && n > 0 && n >= lowest {
				err = fmt.Errorf("nothing moves, and %d steps are left", n)
			}
			if err == nil {
				lowest = n
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// within polls until there is no error, or one that does not go away.
func within(ctx context.Context, limit time.Duration, what string, condition func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for last := errors.New("the API server did not answer"); ; {
		err := condition(limited)
		var failure *Failure
		if err == nil || errors.As(err, &failure) || apierrors.IsForbidden(err) {
			return err
		}
		if limited.Err() == nil {
			last = err
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return Failf("waited %s for this: %s. But: %v", limit, what, last)
		case <-ticker.C:
		}
	}
}
