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

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
	"kubernetes-dra/cmd/internal/access"
)

var accessChecks = []check.Check{{
	ID:    "access",
	Asks:  "Has the driver's service account the rights for claims and slices, and for the status as 1.36 wants them?",
	Do:    "Add them to the driver's ClusterRole. kubectl dra doctor access prints the rules for the status.",
	Needs: []check.Need{needsAccount},
	Run: func(c *check.Case) {
		account := access.Account{Namespace: c.AccountNamespace, Name: c.AccountName}
		lacks := lacking(c.Driver, func(p access.Permission) bool {
			answer, err := account.Ask(c.Context(), c.Kube, p)
			c.Must(err)
			return answer.Verb != ""
		})
		if len(lacks) > 0 {
			c.Must(&check.Failure{What: fmt.Sprintf("%s/%s lacks %d rights", c.AccountNamespace, c.AccountName, len(lacks)), Seen: lacks})
		}
	},
}}

func needsAccount(c *check.Case) string {
	if c.AccountName == "" {
		return "without --service-account, nobody knows whose rights to look at"
	}
	err := access.Account{Namespace: c.AccountNamespace, Name: c.AccountName}.Exists(c.Context(), c.Kube)
	if apierrors.IsNotFound(err) {
		c.Must(&check.Failure{What: err.Error(), Seen: []string{"no such service account"}, Do: "Correct --service-account."})
	}
	c.Must(err)
	return ""
}

// lacking are the rights that a driver needs and does not have.
func lacking(driver string, has func(access.Permission) bool) (lacks []string) {
	need := func(p access.Permission) {
		if !has(p) {
			lacks = append(lacks, p.String())
		}
	}
	need(access.ForClaims("get", "", ""))
	// Slices of a node belong to it, and go with it.
	need(access.Permission{Verbs: []string{"get"}, Resource: "nodes"})
	for _, verb := range []string{"list", "watch", "create", "update", "delete"} {
		need(access.Permission{Verbs: []string{verb}, Group: access.Group, Resource: "resourceslices"})
	}
	// A driver that may not write the status does not report. One that may needs the right to do so
	// for its own devices, too, where the API server asks for that.
	for _, verb := range []string{"update", "patch"} {
		if has(access.ForClaims(verb, "status", "")) {
			need(access.ForDriver(verb, driver, "", false))
		}
	}
	return lacks
}
