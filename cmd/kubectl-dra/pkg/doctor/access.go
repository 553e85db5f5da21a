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

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/cmd/internal/access"
)

// need is what a service account is meant to do.
type need struct {
	account access.Account
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

// permissions are those that are needed, all of them.
func (n need) permissions() []access.Permission {
	list := []access.Permission{access.ForClaims("get", "", n.namespace)}
	for _, verb := range n.verbs {
		list = append(list, access.ForClaims(verb, "status", n.namespace))
	}
	for _, verb := range n.verbs {
		if n.driver != "" {
			list = append(list, access.ForDriver(verb, n.driver, n.namespace, n.anyNode))
		}
	}
	for _, verb := range n.verbs {
		if n.binding {
			// The API server asks for all namespaces, whatever that of the claim is.
			list = append(list, access.ForClaims(verb, "binding", ""))
		}
	}
	return list
}

// check asks the API server.
func check(ctx context.Context, client kubernetes.Interface, n need) ([]access.Answer, error) {
	if err := n.account.Exists(ctx, client); err != nil {
		return nil, err
	}
	var answers []access.Answer
	for _, p := range n.permissions() {
		a, err := n.account.Ask(ctx, client, p)
		if err != nil {
			return nil, err
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

// report is what gets printed.
type report struct {
	text  string
	lacks bool
}

func newReport(n need, answers []access.Answer) report {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, for claims in %s:\n", n.account.Username(), where(n.namespace))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var rules []rbacv1.PolicyRule
	bindingLacks := false
	for _, a := range answers {
		verb, allowed := a.Verb, "yes"
		if a.Verb == "" {
			verb, allowed = a.Verbs[0], "NO"
			rules = addRule(rules, a.Permission)
			bindingLacks = bindingLacks || a.Subresource == "binding"
		}
		line := []string{"  " + allowed, verb, a.Resources() + nameOf(a.Name)}
		if a.Verb == "" && a.Reason != "" {
			line = append(line, a.Reason)
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	// It writes into memory.
	_ = table.Flush()
	if slices.ContainsFunc(answers, access.Answer.IsAssociated) {
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
func addRule(rules []rbacv1.PolicyRule, p access.Permission) []rbacv1.PolicyRule {
	i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return r.Resources[0] == p.Resources() })
	if i < 0 {
		r := rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{p.Resources()}}
		if p.Name != "" {
			r.ResourceNames = []string{p.Name}
		}
		rules = append(rules, r)
		i = len(rules) - 1
	}
	rules[i].Verbs = append(rules[i].Verbs, p.Verbs[0])
	return rules
}
