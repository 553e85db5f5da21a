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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Name of an object of this check.
func (c *Case) Name(suffix string) string { return c.id + "-" + suffix }

// Labels are on everything that a check makes.
func (c *Case) Labels() map[string]string { return map[string]string{runLabel: c.run} }

// Mine are the objects with those labels.
func (c *Case) Mine() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: runLabel + "=" + c.run}
}

// convert reads an object of any version. The parts that are read are the same in all.
func convert(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Fields are some of an object.
type Fields = map[string]any

// Consumer is for what a claim is reserved. An empty UID is left out.
func Consumer(ref resourceapi.ResourceClaimConsumerReference) Fields {
	fields := Fields{"apiGroup": ref.APIGroup, "resource": ref.Resource, "name": ref.Name}
	if ref.UID != "" {
		fields["uid"] = string(ref.UID)
	}
	return fields
}

// Job is the consumer of that name of this check.
func (c *Case) Job(suffix string) Fields {
	return Consumer(resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: c.Name(suffix)})
}

// claim is one with a request for the class, and more fields of the request.
func (c *Case) claim(suffix string, request, reservedFor Fields) *unstructured.Unstructured {
	fields := Fields{"deviceClassName": c.DeviceClass}
	maps.Copy(fields, request)
	// The first version has no alternatives of a request.
	if c.version != "v1beta1" {
		fields = Fields{"exactly": fields}
	}
	fields["name"] = "device"
	spec := Fields{"devices": Fields{"requests": []any{fields}}}
	if reservedFor != nil {
		spec["reservedFor"] = reservedFor
	}
	return c.object("ResourceClaim", suffix, spec)
}

func (c *Case) object(kind, suffix string, spec any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: Fields{"apiVersion": resourceGroup + "/" + c.version, "kind": kind, "spec": spec}}
	object.SetName(c.Name(suffix))
	object.SetLabels(c.Labels())
	return object
}

// NewClaim creates a claim, and returns its name.
func (c *Case) NewClaim(suffix string) string { return c.NewClaimWith(suffix, nil, nil) }

// NewClaimWith creates a claim with more fields in its request, and a consumer unless it is nil.
func (c *Case) NewClaimWith(suffix string, request, reservedFor Fields) string {
	claim := c.claim(suffix, request, reservedFor)
	_, err := c.Resource("resourceclaims", c.Namespace).Create(c.ctx, claim, metav1.CreateOptions{})
	c.Must(err)
	return claim.GetName()
}

// Keeps returns true if the API server would store a field of such a claim's spec.
func (c *Case) Keeps(field string, request, reservedFor Fields) bool {
	claim := c.claim("question", request, reservedFor)
	stored, err := c.Resource("resourceclaims", c.Namespace).Create(c.ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	c.Must(err)
	spec, err := json.Marshal(stored.Object["spec"])
	c.Must(err)
	return strings.Contains(string(spec), `"`+field+`"`)
}

// NewTemplate creates a ResourceClaimTemplate, and returns its name.
func (c *Case) NewTemplate(suffix string) string {
	template := c.object("ResourceClaimTemplate", suffix, Fields{"spec": c.claim(suffix, nil, nil).Object["spec"]})
	_, err := c.Resource("resourceclaimtemplates", c.Namespace).Create(c.ctx, template, metav1.CreateOptions{})
	c.Must(err)
	return template.GetName()
}

// Claims are those of a namespace, or of all.
func (c *Case) Claims(namespace string) []resourceapi.ResourceClaim {
	list, err := c.Resource("resourceclaims", namespace).List(c.ctx, metav1.ListOptions{})
	c.Must(err)
	claims := make([]resourceapi.ResourceClaim, len(list.Items))
	for i, item := range list.Items {
		c.Must(convert(item.Object, &claims[i]))
	}
	return claims
}

func (c *Case) getClaim(name string) (*resourceapi.ResourceClaim, error) {
	object, err := c.Resource("resourceclaims", c.Namespace).Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	claim := &resourceapi.ResourceClaim{}
	return claim, convert(object.Object, claim)
}

// Status is that of a claim.
func (c *Case) Status(name string) *resourceapi.ResourceClaimStatus {
	claim, err := c.getClaim(name)
	c.Must(err)
	return &claim.Status
}

// Devices are those that a claim got, all of them of this driver.
func (c *Case) Devices(claim string) []resourceapi.DeviceRequestAllocationResult {
	status := c.Status(claim)
	if status.Allocation == nil || len(status.Allocation.Devices.Results) == 0 {
		c.Failf("claim %s has no devices", claim)
	}
	for _, r := range status.Allocation.Devices.Results {
		if r.Driver != c.Driver {
			c.Must(&Failure{
				What: fmt.Sprintf("DeviceClass %s gave a device of driver %s", c.DeviceClass, r.Driver),
				Do:   "Use a DeviceClass that selects devices of " + c.Driver + " only.",
			})
		}
	}
	return status.Allocation.Devices.Results
}

// Free waits until nobody has the devices of a claim, or it is gone.
func (c *Case) Free(claim string) {
	c.Until("claim "+claim+" is free", func() error {
		object, err := c.getClaim(claim)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && (object.Status.Allocation != nil || len(object.Status.ReservedFor) > 0) {
			err = errors.New("it is still allocated or reserved")
		}
		return err
	})
}

// Reserve adds a consumer in front of those that a claim is reserved for. It goes when release is
// called, or with the check.
func (c *Case) Reserve(claim string, consumer resourceapi.ResourceClaimConsumerReference) (release func()) {
	claims := c.Resource("resourceclaims", c.Namespace)
	set := func(ctx context.Context, there bool) error {
		return within(ctx, c.Patience, "the reservation of claim "+claim+" is changed", func(ctx context.Context) error {
			object, err := claims.Get(ctx, claim, metav1.GetOptions{})
			if apierrors.IsNotFound(err) && !there {
				return nil
			} else if err != nil {
				return err
			}
			old, _, err := unstructured.NestedSlice(object.Object, "status", "reservedFor")
			if err != nil {
				return err
			}
			list := []any{}
			if there {
				list = append(list, Consumer(consumer))
			}
			for _, entry := range old {
				if fields, ok := entry.(Fields); ok && fields["uid"] != string(consumer.UID) {
					list = append(list, entry)
				}
			}
			if len(list) == len(old) {
				return nil
			}
			if err := unstructured.SetNestedSlice(object.Object, list, "status", "reservedFor"); err != nil {
				return err
			}
			_, err = claims.UpdateStatus(ctx, object, metav1.UpdateOptions{})
			return err
		})
	}
	c.Cleanup(func(ctx context.Context) error { return set(ctx, false) })
	c.Must(set(c.ctx, true))
	return func() { c.Must(set(c.ctx, false)) }
}

// Slices are the driver's.
func (c *Case) Slices() []resourceapi.ResourceSlice {
	list, err := c.slices(c.ctx)
	c.Must(err)
	return list
}

// clean removes what the check made. Pods first: they hold everything else.
func (c *Case) clean(ctx context.Context) error {
	var errs []error
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		errs = append(errs, c.cleanups[i](ctx))
	}
	background, zero, pods := metav1.DeletePropagationBackground, int64(0), c.Kube.CoreV1().Pods(c.Namespace)
	errs = append(errs, c.Kube.BatchV1().Jobs(c.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, c.Mine()))
	gone := func(ctx context.Context, options metav1.DeleteOptions) error {
		return c.countdown(ctx, "all pods of the check are gone", func(ctx context.Context) (int, error) {
			// A Job that is being deleted may have started another one.
			if err := pods.DeleteCollection(ctx, options, c.Mine()); err != nil {
				return 0, err
			}
			list, err := pods.List(ctx, c.Mine())
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		})
	}
	if err := gone(ctx, metav1.DeleteOptions{}); err != nil {
		errs = append(errs, &Failure{
			What: err.Error(), Seen: c.explain(ctx),
			Do: "See why the driver does not unprepare the claims of these pods. They were deleted by force.",
		}, gone(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	}
	for _, resource := range []string{"resourceclaimtemplates", "resourceclaims"} {
		objects := c.Resource(resource, c.Namespace)
		errs = append(errs, objects.DeleteCollection(ctx, metav1.DeleteOptions{}, c.Mine()))
		errs = append(errs, c.countdown(ctx, "all "+resource+" of the check are gone", func(ctx context.Context) (int, error) {
			list, err := objects.List(ctx, c.Mine())
			if err != nil {
				return 0, err
			}
			return len(list.Items), nil
		}))
	}
	return errors.Join(errs...)
}
