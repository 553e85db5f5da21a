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

// Package access knows what a driver has to be allowed, and asks the API server whether it is.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AdminLabels are the keys that a namespace for admin access may have. Upstream's releases know one each, the
// carry knows all of them.
var AdminLabels = []string{"resource.kubernetes.io/admin-access", "resource.k8s.io/admin-access", "kubernetes.io/dra-admin-access"}

// HasAdminLabel returns true for the labels of a namespace for admin access.
func HasAdminLabel(labels map[string]string) bool {
	return slices.ContainsFunc(AdminLabels, func(key string) bool { return labels[key] == "true" })
}

const (
	// Group is that of ResourceClaims.
	Group = "resource.k8s.io"
	// associatedNode is in front of verbs for claims of the node of a token.
	associatedNode = "associated-node:"
)

// Permission is what somebody needs.
type Permission struct {
	// Verbs are alternatives. The first one is enough.
	Verbs                                         []string
	Group, Resource, Subresource, Namespace, Name string
}

// Resources are as they stand in a role.
func (p Permission) Resources() string {
	if p.Subresource == "" {
		return p.Resource
	}
	return p.Resource + "/" + p.Subresource
}

func (p Permission) String() string {
	return strings.TrimSpace(strings.Join(p.Verbs, ", or ") + " " + p.Resources() + " " + p.Name)
}

// ForClaims is a permission for ResourceClaims, or for a subresource of theirs.
func ForClaims(verb, subresource, namespace string) Permission {
	return Permission{Verbs: []string{verb}, Group: Group, Resource: "resourceclaims", Subresource: subresource, Namespace: namespace}
}

// ForDriver is what the API server asks for since 1.36 of who writes about the devices of a driver.
func ForDriver(verb, driver, namespace string, anyNode bool) Permission {
	p := ForClaims("arbitrary-node:"+verb, "driver", namespace)
	if p.Name = driver; !anyNode {
		// Whoever may write for any node may do so for its own, too.
		p.Verbs = slices.Insert(p.Verbs, 0, associatedNode+verb)
	}
	return p
}

// Account is a service account.
type Account struct{ Namespace, Name string }

// Username is the name of the account for the API server.
func (a Account) Username() string {
	return "system:serviceaccount:" + a.Namespace + ":" + a.Name
}

// Exists returns an error if there is no such account: the authorizer does not know. Who may not read accounts may
// still ask.
func (a Account) Exists(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no ServiceAccount %s in the namespace %s: %w", a.Name, a.Namespace, err)
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("reading the ServiceAccount: %w", err)
	}
	return nil
}

// Answer is what the API server says.
type Answer struct {
	Permission
	// Verb is the one which is allowed, empty if none is.
	Verb string
	// Reason comes from the authorizer.
	Reason string
}

// IsAssociated says that an answer is about the node of the token, and not about any node.
func (a Answer) IsAssociated() bool {
	verb := a.Verb
	if verb == "" {
		verb = a.Verbs[0]
	}
	return strings.HasPrefix(verb, associatedNode)
}

// Ask asks the API server whether an account has a permission.
func (a Account) Ask(ctx context.Context, client kubernetes.Interface, p Permission) (Answer, error) {
	answer := Answer{Permission: p}
	for _, verb := range p.Verbs {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: a.Username(),
				// The API server gives these to each service account.
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Verb: verb, Namespace: p.Namespace, Name: p.Name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return answer, fmt.Errorf("asking the API server about %s %s (this takes create for subjectaccessreviews.authorization.k8s.io): %w", verb, p.Resources(), err)
		}
		answer.Reason = review.Status.Reason
		if review.Status.EvaluationError != "" {
			answer.Reason = strings.TrimSpace(answer.Reason + " " + review.Status.EvaluationError)
		}
		if review.Status.Allowed {
			answer.Verb = verb
			break
		}
	}
	return answer, nil
}
