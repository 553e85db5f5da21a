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

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// serviceAccount identifies one.
type serviceAccount struct{ namespace, name string }

func (a serviceAccount) username() string {
	return "system:serviceaccount:" + a.namespace + ":" + a.name
}

// groups are those that the API server gives each service account.
func (a serviceAccount) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"}
}

// need is what a service account is meant to do.
type need struct {
	account serviceAccount
	// driver is the name of the one whose devices it reports, if any.
	driver string
	// anyNode is for claims of other nodes than its own.
	anyNode bool
	// binding is for the allocation and the reservations.
	binding bool
	// namespace is that of the claims, all if empty.
	namespace string
	// verbs are update and patch, or one of them.
	verbs []string
}

// permission is what is asked.
type permission struct {
	// verbs are alternatives. The first one is enough.
	verbs                        []string
	subresource, namespace, name string
}

// resource as it stands in a role.
func (p permission) resource() string {
	if p.subresource == "" {
		return "resourceclaims"
	}
	return "resourceclaims/" + p.subresource
}

// permissions are those that are needed, all of them.
func (n need) permissions() []permission {
	list := []permission{{verbs: []string{"get"}, namespace: n.namespace}}
	for _, verb := range n.verbs {
		list = append(list, permission{verbs: []string{verb}, subresource: "status", namespace: n.namespace})
	}
	if n.driver != "" {
		for _, verb := range n.verbs {
			// Whoever may write for any node may do so for its own, too.
			verbs := []string{associatedNode + verb, "arbitrary-node:" + verb}
			if n.anyNode {
				verbs = verbs[1:]
			}
			list = append(list, permission{verbs: verbs, subresource: "driver", namespace: n.namespace, name: n.driver})
		}
	}
	if n.binding {
		for _, verb := range n.verbs {
			// The API server asks for all namespaces, whatever that of the claim is.
			list = append(list, permission{verbs: []string{verb}, subresource: "binding"})
		}
	}
	return list
}

// answer is what the API server says.
type answer struct {
	permission
	// verb is the one which is allowed, empty if none is.
	verb string
	// reason comes from the authorizer.
	reason string
}

// check asks the API server.
func check(ctx context.Context, client kubernetes.Interface, n need) ([]answer, error) {
	// The authorizer does not know which service accounts exist. Who may not read
	// them may still ask.
	if _, err := client.CoreV1().ServiceAccounts(n.account.namespace).Get(ctx, n.account.name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no ServiceAccount %s in the namespace %s: %w", n.account.name, n.account.namespace, err)
	} else if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("reading the ServiceAccount: %w", err)
	}
	var answers []answer
	for _, p := range n.permissions() {
		a := answer{permission: p}
		for _, verb := range p.verbs {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:   n.account.username(),
					Groups: n.account.groups(),
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Group: "resource.k8s.io", Resource: "resourceclaims", Subresource: p.subresource,
						Verb: verb, Namespace: p.namespace, Name: p.name,
					},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("asking the API server about %s %s (this takes create for subjectaccessreviews.authorization.k8s.io): %w", verb, p.resource(), err)
			}
			a.reason = review.Status.Reason
			if review.Status.EvaluationError != "" {
				a.reason = strings.TrimSpace(a.reason + " " + review.Status.EvaluationError)
			}
			if review.Status.Allowed {
				a.verb = verb
				break
			}
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// nodeBound is said where it matters, because no review can tell: it is about the token
// with which the ServiceAccount comes, and not about the ServiceAccount.
const nodeBound = `The verbs associated-node:... work only with a token that is bound to a node, which is the
one that the claim is allocated for: that of a pod on this node, or one from
kubectl create token --bound-object-kind=Node. Another token needs arbitrary-node:... (--any-node).
`

// associated says that an answer is about the node of the token, and not about any node.
func associated(a answer) bool {
	verb := a.verb
	if verb == "" {
		verb = a.verbs[0]
	}
	return strings.HasPrefix(verb, associatedNode)
}

const associatedNode = "associated-node:"

// report is what gets printed.
type report struct {
	text  string
	lacks bool
}

func newReport(n need, answers []answer) report {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, for claims in %s:\n", n.account.username(), where(n.namespace))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var rules []rbacv1.PolicyRule
	bindingLacks := false
	for _, a := range answers {
		verb, allowed := a.verb, "yes"
		if a.verb == "" {
			verb, allowed = a.verbs[0], "NO"
			rules = addRule(rules, a.permission)
			bindingLacks = bindingLacks || a.subresource == "binding"
		}
		line := []string{"  " + allowed, verb, a.resource() + nameOf(a.name)}
		if a.verb == "" && a.reason != "" {
			line = append(line, a.reason)
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	// It writes into memory.
	_ = table.Flush()
	if slices.ContainsFunc(answers, associated) {
		b.WriteString(nodeBound)
	}
	if len(rules) == 0 {
		b.WriteString("It lacks nothing.\n")
		return report{text: b.String()}
	}
	data, err := yaml.Marshal(map[string]any{"rules": rules})
	if err != nil {
		// It only has strings.
		panic(err)
	}
	kind := "ClusterRole, bound by a ClusterRoleBinding"
	if n.namespace != "" && !bindingLacks {
		kind = "Role in the namespace " + n.namespace
	}
	fmt.Fprintf(&b, "It lacks these rules in a %s:\n%s", kind, data)
	return report{text: b.String(), lacks: true}
}

func where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "the namespace " + namespace
}

func nameOf(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}

// addRule adds a permission, to the rule for the same resource if there is one.
func addRule(rules []rbacv1.PolicyRule, p permission) []rbacv1.PolicyRule {
	i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return r.Resources[0] == p.resource() })
	if i < 0 {
		r := rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{p.resource()}}
		if p.name != "" {
			r.ResourceNames = []string{p.name}
		}
		rules = append(rules, r)
		i = len(rules) - 1
	}
	rules[i].Verbs = append(rules[i].Verbs, p.verbs[0])
	return rules
}
