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

package thirdparty

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

var leaderWorkerSetController = controller{name: "lws", module: "sigs.k8s.io/lws", namespace: "lws-system", account: "lws-controller-manager"}

// groupIndex has the number of its group on each pod of a LeaderWorkerSet.
const groupIndex = "leaderworkerset.sigs.k8s.io/group-index"

// TestLeaderWorkerSet covers claims that are generated for each group of a LeaderWorkerSet: a leader and its
// workers have the same one, which belongs to the leader.
func TestLeaderWorkerSet(t *testing.T) {
	e := newEnv(t, leaderWorkerSetController)
	e.devices(4)
	e.apply(example("leaderworkerset.yaml"))
	groups := func() map[string]claim {
		t.Helper()
		claims := e.groups(4, 4, func(pod *corev1.Pod) string { return pod.Labels[groupIndex] })
		set, err := e.AppsV1().StatefulSets(e.namespace).Get(e.ctx, "serving", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := cluster.Consumer{APIGroup: "apps", Resource: "statefulsets", Name: set.Name, UID: set.UID}
		for group, c := range claims {
			leader, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, "serving-"+group, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if c.Owner.Kind != "Pod" || c.Owner.UID != leader.UID || c.Consumers[0] != want {
				t.Errorf("claim %s of leader %s belongs to %+v, and is reserved for %+v", c.Name, leader.Name, c.Owner, c.Consumers)
			}
		}
		return claims
	}
	first := groups()
	e.showClaims()

	// A leader that is gone makes the controller create its group again, and no other one.
	e.kubectl("delete", "pod", "serving-2")
	second := groups()
	for group, c := range second {
		if renewed := c.UID != first[group].UID; renewed != (group == "2") {
			t.Errorf("group %s had claim %+v, and has %+v", group, first[group], c)
		}
	}

	e.kubectl("delete", "leaderworkerset", "serving")
	e.noClaims()
}
