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
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var taintRule = schema.GroupKind{Group: "resource.k8s.io", Kind: "DeviceTaintRule"}

var taintChecks = []check.Check{
	{
		ID:    "taint",
		Asks:  "Does a new pod get no device while a DeviceTaintRule taints all of the node, and one when the rule is gone?",
		Do:    "The scheduler does this, and not the driver: see whether the names in its slices are those of the devices.",
		Needs: []check.Need{needsTaintRules},
		Run: func(c *check.Case) {
			for _, pool := range sets.List(reachable(c)) {
				taint(c, "NoSchedule", check.Fields{"driver": c.Driver, "pool": pool})
			}
			claim := c.NewClaim("claim")
			pod := c.Start("pod", check.Pod{Ends: true}, claim)
			c.Pod(pod, "is refused by the scheduler", func(pod *corev1.Pod) error {
				if pod.Spec.NodeName != "" {
					return check.Failf("the pod was bound to node %s, although all devices there have a taint", pod.Spec.NodeName)
				}
				for _, condition := range pod.Status.Conditions {
					if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
						return nil
					}
				}
				return errors.New("it was not looked at yet")
			})
			c.Must(removeTaints(c.Context(), c))
			c.Succeeds(pod)
			c.Free(claim)
		},
	},
	{
		ID:    "taint-evicts",
		Asks:  "Is a pod evicted whose device gets a taint with NoExecute, and does the driver unprepare its claim?",
		Do:    "Unprepare the claims of pods that are evicted like those of all others. Look at the driver's log for NodeUnprepareResources.",
		Needs: []check.Need{needsTaintRules},
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			pod := c.Start("pod", check.Pod{}, claim)
			c.Runs(pod)
			for _, r := range c.Devices(claim) {
				taint(c, "NoExecute", check.Fields{"driver": r.Driver, "pool": r.Pool, "device": r.Device})
			}
			c.Gone(pod)
			c.Free(claim)
		},
	},
}

// reachable are the pools of the node, and those of no node alone. Other nodes are left in peace.
func reachable(c *check.Case) sets.Set[string] {
	pools := sets.New[string]()
	for _, slice := range c.Slices() {
		if slice.Spec.NodeName == nil || onNode(slice, c.Node()) {
			pools.Insert(slice.Spec.Pool.Name)
		}
	}
	return pools
}

func needsTaintRules(c *check.Case) string {
	_, err := c.Mapper.RESTMapping(taintRule)
	if meta.IsNoMatchError(err) {
		return "the cluster has no DeviceTaintRules"
	}
	c.Must(err)
	return ""
}

// taint creates a rule, which goes with the others or with the check.
func taint(c *check.Case, effect string, selector check.Fields) {
	mapping, err := c.Mapper.RESTMapping(taintRule)
	c.Must(err)
	rule := &unstructured.Unstructured{Object: check.Fields{
		"apiVersion": mapping.GroupVersionKind.GroupVersion().String(), "kind": taintRule.Kind,
		"spec": check.Fields{"deviceSelector": selector, "taint": check.Fields{"key": "dra-driver-check/" + effect, "effect": effect}},
	}}
	rule.SetGenerateName("dra-driver-check-")
	rule.SetLabels(c.Labels())
	// An interrupt waits for the answer: a rule that is stored after the clean-up would stay.
	_, err = c.Dynamic.Resource(mapping.Resource).Create(context.WithoutCancel(c.Context()), rule, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		// It may be stored although there is an error.
		c.Cleanup(func(ctx context.Context) error { return removeTaints(ctx, c) })
	}
	c.Must(err)
}

// removeTaints removes the rules of this run. Their names need not be known.
func removeTaints(ctx context.Context, c *check.Case) error {
	mapping, err := c.Mapper.RESTMapping(taintRule)
	if err != nil {
		return err
	}
	if err := c.Dynamic.Resource(mapping.Resource).DeleteCollection(ctx, metav1.DeleteOptions{}, c.Mine()); err != nil {
		return fmt.Errorf("delete DeviceTaintRules with the label %s: %w", c.Mine().LabelSelector, err)
	}
	return nil
}
