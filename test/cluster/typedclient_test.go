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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestTypedClient uses upstream's client-go, whose Go types lack our fields, for a claim that is
// reserved for a workload. A controller labels it, and a driver reports the status of its device,
// as their authors learned it: read, change, Update or UpdateStatus. That must work, and lose nothing.
func TestTypedClient(t *testing.T) {
	t.Parallel()
	const pods = 3
	e := newEnv(t)
	class := e.devices(1, "simulated")
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	job := e.job("job", pods, cluster.PodSpec("shared", ""), nil)
	e.running("job", pods)
	before := e.reservedFor("shared", job)

	driver := e.driver("system:serviceaccount:" + e.namespace + ":driver")
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Attached", LastTransitionTime: metav1.Now()}
	if e.Version == "v1beta1" {
		unknowing(e, e.ResourceV1beta1().ResourceClaims(e.namespace), driver.ResourceV1beta1().ResourceClaims(e.namespace),
			func(claim *resourcev1beta1.ResourceClaim) {
				device := claim.Status.Allocation.Devices.Results[0]
				claim.Status.Devices = []resourcev1beta1.AllocatedDeviceStatus{{
					Driver: device.Driver, Pool: device.Pool, Device: device.Device, Conditions: []metav1.Condition{condition},
				}}
			})
		unknowingLister(e, func(f informers.SharedInformerFactory) (*resourcev1beta1.ResourceClaim, error) {
			return f.Resource().V1beta1().ResourceClaims().Lister().ResourceClaims(e.namespace).Get("shared")
		}, e.ResourceV1beta1().ResourceClaims(e.namespace))
	} else {
		unknowing(e, e.ResourceV1().ResourceClaims(e.namespace), driver.ResourceV1().ResourceClaims(e.namespace),
			func(claim *resourcev1.ResourceClaim) {
				device := claim.Status.Allocation.Devices.Results[0]
				claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
					Driver: device.Driver, Pool: device.Pool, Device: device.Device, Conditions: []metav1.Condition{condition},
				}}
			})
		unknowingLister(e, func(f informers.SharedInformerFactory) (*resourcev1.ResourceClaim, error) {
			return f.Resource().V1().ResourceClaims().Lister().ResourceClaims(e.namespace).Get("shared")
		}, e.ResourceV1().ResourceClaims(e.namespace))
	}
	for _, args := range [][]string{
		{"label", "resourceclaim", "shared", "kubectl=yes"},
		{"annotate", "resourceclaim", "shared", "kubectl=yes"},
	} {
		kubectl(t, append([]string{"--namespace=" + e.namespace}, args...)...)
	}
	after := e.reservedFor("shared", job)
	if after.ResourceVersion == before.ResourceVersion {
		t.Error("nothing was written")
	}
	written := kubectl(t, "--namespace="+e.namespace, "get", "resourceclaim", "shared",
		"-o", `jsonpath={.metadata.labels},{.spec.reservedFor.name},{.status.devices[0].conditions[0].reason}`)
	if want := `{"kubectl":"yes","lister":"yes","updated":"yes"},job,Attached`; written != want {
		t.Errorf("the claim has %s, want %s", written, want)
	}
}

// typedClaims is what the clients for the versions of the API have in common.
type typedClaims[Claim any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*Claim, error)
	Update(ctx context.Context, claim *Claim, options metav1.UpdateOptions) (*Claim, error)
	UpdateStatus(ctx context.Context, claim *Claim, options metav1.UpdateOptions) (*Claim, error)
}

// label sets a label of a claim in whichever version.
func label[Claim any](claim *Claim, key string) {
	object := any(claim).(metav1.Object)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = "yes"
	object.SetLabels(labels)
}

// unknowing reads and writes the claim, as administrator and as driver.
func unknowing[Claim any, Claims typedClaims[Claim]](e *env, admin, driver Claims, report func(*Claim)) {
	e.Helper()
	for what, write := range map[string]func() error{
		"Update": func() error {
			claim, err := admin.Get(e.ctx, "shared", metav1.GetOptions{})
			if err != nil {
				return err
			}
			label(claim, "updated")
			_, err = admin.Update(e.ctx, claim, metav1.UpdateOptions{})
			return err
		},
		"UpdateStatus": func() error {
			claim, err := driver.Get(e.ctx, "shared", metav1.GetOptions{})
			if err != nil {
				return err
			}
			report(claim)
			_, err = driver.UpdateStatus(e.ctx, claim, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := retry.RetryOnConflict(retry.DefaultRetry, write); err != nil {
			e.Errorf("%s: %v", what, err)
		}
	}
}

// unknowingLister updates what an informer has.
func unknowingLister[Claim any, Claims typedClaims[Claim]](e *env, get func(informers.SharedInformerFactory) (*Claim, error), admin Claims) {
	e.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(e.Interface, time.Hour, informers.WithNamespace(e.namespace))
	_, _ = get(factory)
	factory.Start(e.ctx.Done())
	factory.WaitForCacheSync(e.ctx.Done())
	e.eventually("update from a cache", func() error {
		claim, err := get(factory)
		if err != nil {
			return err
		}
		copied := *claim
		object := any(&copied).(metav1.Object)
		labels := map[string]string{}
		for key, value := range object.GetLabels() {
			labels[key] = value
		}
		object.SetLabels(labels)
		label(&copied, "lister")
		_, err = admin.Update(e.ctx, &copied, metav1.UpdateOptions{})
		return err
	})
}

// driver is a client with the rights of a driver that reports the status of its devices, and no more.
func (e *env) driver(user string) kubernetes.Interface {
	e.Helper()
	rules := func(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-driver"},
		Rules: []rbacv1.PolicyRule{
			rules("resourceclaims", nil, "get"),
			rules("resourceclaims/status", nil, "update", "patch"),
			rules("resourceclaims/driver", []string{cluster.DriverName}, "arbitrary-node:update", "arbitrary-node:patch"),
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err := e.RbacV1().ClusterRoles().Create(e.ctx, role, metav1.CreateOptions{})
	if err == nil {
		_, err = e.RbacV1().ClusterRoleBindings().Create(e.ctx, binding, metav1.CreateOptions{})
	}
	if err != nil {
		e.Fatal(fmt.Errorf("create the role of a driver: %w", err))
	}
	e.Cleanup(func() {
		_ = e.RbacV1().ClusterRoleBindings().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
		_ = e.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
	config, err := shared.Config()
	if err != nil {
		e.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	e.waitForRight(user, &authorizationv1.ResourceAttributes{Verb: "get", Group: "resource.k8s.io", Resource: "resourceclaims", Namespace: e.namespace}, true)
	return client
}

// waitForRight waits until a user may do something, or may not any more: the API server has informers for
// roles and bindings.
func (e *env) waitForRight(user string, attributes *authorizationv1.ResourceAttributes, allowed bool) {
	e.Helper()
	e.eventually(fmt.Sprintf("%s may %s %s/%s: %t", user, attributes.Verb, attributes.Resource, attributes.Subresource, allowed), func() error {
		review, err := e.AuthorizationV1().SubjectAccessReviews().Create(e.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != allowed {
			err = errors.New("not yet")
		}
		return err
	})
}
