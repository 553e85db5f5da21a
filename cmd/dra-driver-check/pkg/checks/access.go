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
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var accessChecks = []check.Check{{
	ID:    "access",
	Asks:  "Has the driver's service account the rights for claims and slices, and for the status as 1.36 wants them?",
	Do:    "Add them to the driver's ClusterRole. kubectl dra doctor access prints the rules for the status.",
	Needs: []check.Need{needsAccount},
	Run: func(c *check.Case) {
		if lacks := lacking(c.Driver, func(r authorizationv1.ResourceAttributes) bool { return allowed(c, r) }); len(lacks) > 0 {
			c.Must(&check.Failure{What: fmt.Sprintf("%s/%s lacks %d rights", c.AccountNamespace, c.AccountName, len(lacks)), Seen: lacks})
		}
	},
}}

func needsAccount(c *check.Case) string {
	if c.AccountName == "" {
		return "without --service-account, nobody knows whose rights to look at"
	}
	// The authorizer does not know which service accounts exist.
	_, err := c.Kube.CoreV1().ServiceAccounts(c.AccountNamespace).Get(c.Context(), c.AccountName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.Must(&check.Failure{What: err.Error(), Seen: []string{"no such service account"}, Do: "Correct --service-account."})
	}
	c.Must(err)
	return ""
}

// lacking are the rights that a driver needs and does not have.
func lacking(driver string, allowed func(authorizationv1.ResourceAttributes) bool) (lacks []string) {
	const group = "resource.k8s.io"
	has := func(verb, group, resource, subresource, name string) bool {
		return allowed(authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name})
	}
	if !has("get", group, "resourceclaims", "", "") {
		lacks = append(lacks, "get resourceclaims")
	}
	// Slices of a node belong to it, and go with it.
	if !has("get", "", "nodes", "", "") {
		lacks = append(lacks, "get nodes")
	}
	for _, verb := range []string{"list", "watch", "create", "update", "delete"} {
		if !has(verb, group, "resourceslices", "", "") {
			lacks = append(lacks, verb+" resourceslices")
		}
	}
	// A driver that may not write the status does not report. One that may needs the right to do so
	// for its own devices, too, where the API server asks for that.
	for _, verb := range []string{"update", "patch"} {
		if !has(verb, group, "resourceclaims", "status", "") {
			continue
		}
		if !has("associated-node:"+verb, group, "resourceclaims", "driver", driver) && !has("arbitrary-node:"+verb, group, "resourceclaims", "driver", driver) {
			lacks = append(lacks, fmt.Sprintf("associated-node:%s, or arbitrary-node:%[1]s, resourceclaims/driver %s", verb, driver))
		}
	}
	return lacks
}

func allowed(c *check.Case, attributes authorizationv1.ResourceAttributes) bool {
	review, err := c.Kube.AuthorizationV1().SubjectAccessReviews().Create(c.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + c.AccountNamespace + ":" + c.AccountName,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + c.AccountNamespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	c.Must(err)
	return review.Status.Allowed
}
