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

package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	draclient "k8s.io/dynamic-resource-allocation/client"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/internal/terminal"
)

const group = "resource.k8s.io"

// versions of the API, the best first. They are those that the client of upstream can convert.
var versions = []string{"v1", "v1beta2", "v1beta1"}

// Reader reads from a cluster.
type Reader struct {
	Config *rest.Config
	Kube   kubernetes.Interface
	// Version is that of resource.k8s.io which is used.
	Version string

	flags    *genericclioptions.ConfigFlags
	dra      *draclient.Client
	dynamic  dynamic.Interface
	metadata metadata.Interface
	mapper   meta.RESTMapper
	// progress is a terminal, or nil.
	progress io.Writer
	count    atomic.Int64
}

// NewReader finds out what API there is. Progress is written to a terminal only.
func NewReader(flags *genericclioptions.ConfigFlags, errOut io.Writer) (*Reader, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster: %w", err)
	}
	r := &Reader{Config: config, flags: flags}
	if printers.IsTerminal(errOut) {
		r.progress = errOut
	}
	// A dozen lists are read at the same time. The API server limits what it cannot bear.
	config.QPS, config.Burst = 50, 100
	if r.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	typed := rest.CopyConfig(config)
	// Thousands of objects are much cheaper like that.
	typed.ContentType, typed.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if r.Kube, err = kubernetes.NewForConfig(typed); err != nil {
		return nil, err
	}
	r.dra = draclient.New(r.Kube)
	if r.mapper, err = flags.ToRESTMapper(); err != nil {
		return nil, err
	}
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: "ResourceClaim"}, versions...)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%s has no API for Dynamic Resource Allocation: it serves no ResourceClaims of %s %s. "+
			"Kubernetes 1.34 and later does. 1.32 and 1.33 need the gate DynamicResourceAllocation, and --runtime-config=%s/v1beta1=true for kube-apiserver",
			config.Host, group, strings.Join(versions, ", "), group)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", config.Host, err)
	}
	r.Version = mapping.Resource.Version
	return r, nil
}

// Read reads some resources, of one or all namespaces. What may not be read becomes a gap. It is an error only
// if nothing at all could be read.
func (r *Reader) Read(ctx context.Context, namespace string, resources ...Resource) (*Snapshot, error) {
	s := &Snapshot{Now: time.Now(), Namespace: namespace, Gaps: map[Resource]string{}}
	var (
		mutex sync.Mutex
		wait  sync.WaitGroup
		errs  []error
	)
	stop := r.tell()
	defer stop()
	for _, resource := range resources {
		wait.Go(func() {
			// Each part of the snapshot has one writer.
			err := r.read(ctx, s, resource)
			if err == nil {
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			s.Gaps[resource] = Reason(err)
			errs = append(errs, fmt.Errorf("list %s: %w", resource, err))
		})
	}
	wait.Wait()
	if len(resources) > 0 && len(errs) == len(resources) {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// ReadScoped is for resources of all namespaces. If the user may see only one, or asks for one, it is that.
func (r *Reader) ReadScoped(ctx context.Context, namespace string, resources ...Resource) (*Snapshot, error) {
	s, err := r.Read(ctx, namespace, resources...)
	if namespace != "" || err == nil && s.Gaps[Claims] != Forbidden {
		return s, err
	}
	namespace, _, err = r.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("no namespace: %w", err)
	}
	return r.Read(ctx, namespace, resources...)
}

// Changes starts to look for changes of claims and ResourceSlices. What it returns waits for the first one, and a
// second for more of them. So what is read in between is not missed.
func (r *Reader) Changes(ctx context.Context, namespace string) (wait func() error, err error) {
	changed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	start := func(open func(context.Context, metav1.ListOptions) (watch.Interface, error), list func(context.Context, metav1.ListOptions) (metav1.ListInterface, error)) error {
		now, err := list(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		w, err := open(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
		if err != nil {
			return err
		}
		go func() {
			defer w.Stop()
			// Also if the API server ends the watch: something may have been missed.
			<-w.ResultChan()
			select {
			case changed <- struct{}{}:
			default:
			}
		}()
		return nil
	}
	watchClaims := func(namespace string) error {
		claims := r.dra.ResourceClaims(namespace)
		return start(claims.Watch, func(ctx context.Context, options metav1.ListOptions) (metav1.ListInterface, error) {
			return claims.List(ctx, options)
		})
	}
	if err = watchClaims(namespace); apierrors.IsForbidden(err) && namespace == "" {
		// As ReadScoped does.
		if namespace, _, err = r.flags.ToRawKubeConfigLoader().Namespace(); err == nil {
			err = watchClaims(namespace)
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch resourceclaims: %w", err)
	}
	slices := r.dra.ResourceSlices()
	err = start(slices.Watch, func(ctx context.Context, options metav1.ListOptions) (metav1.ListInterface, error) {
		return slices.List(ctx, options)
	})
	if err != nil && !apierrors.IsForbidden(err) {
		cancel()
		return nil, fmt.Errorf("watch resourceslices: %w", err)
	}
	return func() error {
		defer cancel()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			return nil
		}
	}, nil
}

// Forbidden is the reason of a gap where a permission is missing.
const Forbidden = "forbidden"

// Reason is a short form of an error: the rest is known from where it is shown.
func Reason(err error) string {
	if apierrors.IsForbidden(err) {
		return Forbidden
	}
	return terminal.Clean(err.Error())
}

func (r *Reader) read(ctx context.Context, s *Snapshot, resource Resource) error {
	core := r.Kube.CoreV1()
	var err error
	switch resource {
	case Pods:
		s.Pods, err = list[corev1.Pod](ctx, r, core.Pods(s.Namespace).List)
	case Nodes:
		s.Nodes, err = list[corev1.Node](ctx, r, core.Nodes().List)
	case Namespaces:
		s.Namespaces, err = r.listNamespaces(ctx, s.Namespace)
	case Quotas:
		s.Quotas, err = list[corev1.ResourceQuota](ctx, r, core.ResourceQuotas(s.Namespace).List)
	case Events:
		s.Events, err = list[corev1.Event](ctx, r, core.Events(s.Namespace).List)
	case Classes:
		s.Classes, err = list[resourcev1.DeviceClass](ctx, r, r.dra.DeviceClasses().List)
	case Slices:
		s.Slices, err = list[resourcev1.ResourceSlice](ctx, r, r.dra.ResourceSlices().List)
	case TaintRules:
		s.TaintRules, err = r.listTaintRules(ctx)
	case PodNames:
		s.PodUIDs = map[types.UID]bool{}
		err = r.eachName(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, s.Namespace, func(o *metav1.PartialObjectMetadata) { s.PodUIDs[o.UID] = true })
	case Policies:
		policies := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
		err = r.eachName(ctx, policies, "", func(o *metav1.PartialObjectMetadata) { s.PolicyNames = append(s.PolicyNames, o.Name) })
	case Roles:
		rbac := r.Kube.RbacV1()
		if s.Roles.ClusterRoles, err = list[rbacv1.ClusterRole](ctx, r, rbac.ClusterRoles().List); err == nil {
			s.Roles.ClusterRoleBindings, err = list[rbacv1.ClusterRoleBinding](ctx, r, rbac.ClusterRoleBindings().List)
		}
	case Claims:
		return r.readClaims(ctx, s)
	case Templates:
		return r.readTemplates(ctx, s)
	default:
		err = fmt.Errorf("%q cannot be listed", resource)
	}
	return err
}

// list reads all pages. The cache of the API server is good enough, and much cheaper than etcd.
func list[T any, L runtime.Object](ctx context.Context, r *Reader, page func(context.Context, metav1.ListOptions) (L, error)) ([]*T, error) {
	var items []*T
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return page(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(o runtime.Object) error {
		r.count.Add(1)
		item, ok := any(o).(*T)
		if !ok {
			return fmt.Errorf("the API server sent a %T in place of a %T", o, item)
		}
		items = append(items, item)
		return nil
	})
	return items, err
}

// eachName reads no more of objects than their metadata.
func (r *Reader) eachName(ctx context.Context, resource schema.GroupVersionResource, namespace string, do func(*metav1.PartialObjectMetadata)) error {
	_, err := list[metav1.PartialObjectMetadata](ctx, r, func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		page, err := r.metadata.Resource(resource).Namespace(namespace).List(ctx, options)
		if err == nil {
			for i := range page.Items {
				do(&page.Items[i])
			}
		}
		return page, err
	})
	return err
}

// listNamespaces gets only the one that matters: who may not list them all may often get that.
func (r *Reader) listNamespaces(ctx context.Context, name string) ([]*corev1.Namespace, error) {
	if name == "" {
		return list[corev1.Namespace](ctx, r, r.Kube.CoreV1().Namespaces().List)
	}
	namespace, err := r.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*corev1.Namespace{namespace}, err
}

// readClaims reads the claims of all namespaces, because the devices are those of the cluster. If only one
// namespace may be read, then it is that.
func (r *Reader) readClaims(ctx context.Context, s *Snapshot) error {
	claims, err := list[resourcev1.ResourceClaim](ctx, r, r.dra.ResourceClaims("").List)
	if apierrors.IsForbidden(err) && s.Namespace != "" {
		s.OneNamespace = true
		claims, err = list[resourcev1.ResourceClaim](ctx, r, r.dra.ResourceClaims(s.Namespace).List)
	}
	if err != nil {
		return err
	}
	for _, claim := range claims {
		s.Claims = append(s.Claims, &Claim{ResourceClaim: claim})
	}
	return r.ReadOwn(ctx, s, s.Namespace)
}

// ReadOwn reads the fields of the carry in the claims of a namespace.
func (r *Reader) ReadOwn(ctx context.Context, s *Snapshot, namespace string) error {
	byUID := map[types.UID]*Claim{}
	for _, c := range s.Claims {
		if c.Namespace == namespace {
			byUID[c.UID] = c
		}
	}
	return r.eachOf(ctx, "resourceclaims", namespace, func(o *unstructured.Unstructured) error {
		c := byUID[o.GetUID()]
		if c == nil {
			return nil
		}
		var own struct {
			Spec struct {
				ReservedFor *Workload `json:"reservedFor"`
			} `json:"spec"`
			Status struct {
				Allocation struct {
					ReservedForAnyPod *bool `json:"reservedForAnyPod"`
				} `json:"allocation"`
			} `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &own); err != nil {
			return fmt.Errorf("ResourceClaim %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
		c.ReservedFor, c.ForAnyPod = own.Spec.ReservedFor, ptr.Deref(own.Status.Allocation.ReservedForAnyPod, false)
		return nil
	})
}

func (r *Reader) readTemplates(ctx context.Context, s *Snapshot) error {
	templates, err := list[resourcev1.ResourceClaimTemplate](ctx, r, r.dra.ResourceClaimTemplates(s.Namespace).List)
	if err != nil {
		return err
	}
	byUID := make(map[types.UID]*Template, len(templates))
	for _, template := range templates {
		t := &Template{ResourceClaimTemplate: template}
		s.Templates = append(s.Templates, t)
		byUID[template.UID] = t
	}
	return r.eachOf(ctx, "resourceclaimtemplates", s.Namespace, func(o *unstructured.Unstructured) error {
		t := byUID[o.GetUID()]
		if t == nil {
			return nil
		}
		var own struct {
			Spec struct {
				Spec struct {
					ReservedFor *Workload `json:"reservedFor"`
				} `json:"spec"`
			} `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &own); err != nil {
			return fmt.Errorf("ResourceClaimTemplate %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
		t.ReservedFor = own.Spec.Spec.ReservedFor
		return nil
	})
}

// eachOf reads objects for the fields of the carry, which upstream's types lack. Nothing is kept of them: they
// take ten times as much memory as typed ones. That is why it reads one namespace, and not all of them.
func (r *Reader) eachOf(ctx context.Context, resource, namespace string, do func(*unstructured.Unstructured) error) error {
	if namespace == "" {
		return nil
	}
	client := r.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: r.Version, Resource: resource}).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(o runtime.Object) error {
		return do(o.(*unstructured.Unstructured))
	})
}

// listTaintRules returns those that mean the same in all versions of the API. Most clusters serve none.
func (r *Reader) listTaintRules(ctx context.Context) ([]*resourcev1.DeviceTaintRule, error) {
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: "DeviceTaintRule"})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rules, err := r.dynamic.Resource(mapping.Resource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	var result []*resourcev1.DeviceTaintRule
	for i := range rules.Items {
		o := rules.Items[i].Object
		for _, field := range []string{"deviceClassName", "selectors"} {
			// v1alpha3 of 1.33 had them. Without them, the rule would select everything.
			if _, found, _ := unstructured.NestedFieldNoCopy(o, "spec", "deviceSelector", field); found {
				return result, fmt.Errorf("DeviceTaintRule %s: spec.deviceSelector.%s is not supported", rules.Items[i].GetName(), field)
			}
		}
		rule := &resourcev1.DeviceTaintRule{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, rule); err != nil {
			return result, fmt.Errorf("DeviceTaintRule %s: %w", rules.Items[i].GetName(), err)
		}
		result = append(result, rule)
	}
	return result, nil
}

// ReadControllers adds the owners of pods, level by level, and the workloads of a claim. What is gone is left
// out, what may not be read is a gap.
func (r *Reader) ReadControllers(ctx context.Context, s *Snapshot, namespace string, owners []metav1.OwnerReference) {
	seen := map[types.UID]bool{}
	// The scheduler of the carry follows as many.
	for range 10 {
		var next []metav1.OwnerReference
		for _, owner := range owners {
			if seen[owner.UID] {
				continue
			}
			seen[owner.UID] = true
			o, err := r.getMetadata(ctx, schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), namespace, owner.Name)
			switch {
			case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			case err != nil:
				s.Gaps[Controllers] = Reason(err)
			case o.UID == owner.UID:
				s.Controllers = append(s.Controllers, o)
				if controller := metav1.GetControllerOf(o); controller != nil {
					next = append(next, *controller)
				}
			}
		}
		if owners = next; len(owners) == 0 {
			return
		}
	}
}

// ReadWorkload adds what a claim is reserved for. It returns false if that is certainly gone.
func (r *Reader) ReadWorkload(ctx context.Context, s *Snapshot, namespace string, w Workload) (exists bool) {
	kind, err := r.mapper.KindFor(schema.GroupVersionResource{Group: w.APIGroup, Resource: w.Resource})
	if err != nil {
		return true
	}
	o, err := r.getMetadata(ctx, kind, namespace, w.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false
	case err != nil:
		s.Gaps[Controllers] = Reason(err)
		return true
	}
	if !slices.ContainsFunc(s.Controllers, func(c *metav1.PartialObjectMetadata) bool { return c.UID == o.UID }) {
		s.Controllers = append(s.Controllers, o)
	}
	return w.UID == "" || w.UID == o.UID
}

func (r *Reader) getMetadata(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	var client metadata.ResourceInterface = r.metadata.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = r.metadata.Resource(mapping.Resource).Namespace(namespace)
	}
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	if o != nil {
		o.SetGroupVersionKind(kind)
	}
	return o, err
}

// tell says on a terminal how far it is once that takes longer than a second. A pipe gets nothing.
func (r *Reader) tell() (stop func()) {
	if r.progress == nil {
		return func() {}
	}
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		wait, told := time.Second, false
		for {
			select {
			case <-done:
				if told {
					fmt.Fprint(r.progress, "\r\033[K")
				}
				return
			case <-time.After(wait):
				wait, told = 200*time.Millisecond, true
				fmt.Fprintf(r.progress, "\rread %d objects", r.count.Load())
			}
		}
	}()
	return func() { close(done); <-finished }
}
