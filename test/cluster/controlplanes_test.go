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
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

const (
	// controlPlanesVariable makes all tests run on a cluster with so many control planes.
	controlPlanesVariable = "CONTROL_PLANES"
	controlPlanes         = 3
)

// TestControlPlanes has three members of etcd, API servers, controller managers and schedulers. Leaders are
// killed, members hang, and the programs are replaced one by one while requests get to any of them.
func TestControlPlanes(t *testing.T) {
	unpatched := os.Getenv(unpatchedBin)
	if shared.Options.ControlPlanes != controlPlanes || unpatched == "" {
		t.Skip("\"make test-control-planes\" runs it")
	}
	m := &members{env: newEnv(t)}
	m.class = m.devices(6, "simulated")
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"leaders are killed", m.killLeaders},
		{"members hang", m.hang},
		{"upgrade and back", func() { m.upgradeAndBack(unpatched) }},
	} {
		// After a failure, nothing is as the next one needs it.
		if !t.Run(part.name, func(t *testing.T) {
			outer := m.T
			m.T = t
			defer func() { m.T = outer }()
			part.run()
		}) {
			return
		}
	}
}

// members are the control planes, and what the tests run on them.
type members struct {
	*env
	class string
}

// at is the same for the API server of one of them, counted from 1.
func (m *members) at(number int) *env {
	m.Helper()
	config, err := shared.MemberConfig(number)
	if err != nil {
		m.Fatal(err)
	}
	other := *m.env
	if other.Client, err = cluster.ClientFor(m.ctx, config); err != nil {
		m.Fatal(err)
	}
	return &other
}

// leader waits until one of a kind leads that is not another one, and returns its number.
func (m *members) leader(kind string, other int) (leader int) {
	m.Helper()
	metric := fmt.Sprintf("leader_election_master_status{name=%q} 1\n", kind)
	m.eventually("a "+kind+" leads", func() error {
		leader = 0
		for number := 1; number <= controlPlanes; number++ {
			metrics, err := shared.Get(m.ctx, fmt.Sprintf("https://127.0.0.1:%d/metrics", shared.Ports[cluster.Member(kind, number)]))
			if err == nil && number != other && strings.Contains(metrics, metric) {
				leader = number
			}
		}
		if leader == 0 {
			return fmt.Errorf("none, besides number %d", other)
		}
		return nil
	})
	return leader
}

// kill kills the leader of a kind, and starts it again when another one leads.
func (m *members) kill(kind string) {
	m.Helper()
	first := m.leader(kind, 0)
	name := cluster.Member(kind, first)
	if err := shared.Kill(m.ctx, name); err != nil {
		m.Fatal(err)
	}
	next := m.leader(kind, first)
	m.Logf("%s leads after %s", cluster.Member(kind, next), name)
	if err := shared.Start(m.ctx, name, nil); err != nil {
		m.Fatal(err)
	}
}

// shareWith starts a Job whose pods share a claim of its name.
func (m *members) shareWith(name string, pods int) cluster.Consumer {
	m.Helper()
	m.claim(name, m.class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
	return m.job(name, int32(pods), cluster.PodSpec(name, ""), nil)
}

// killLeaders kills the scheduler and the controller manager that lead, in the middle of 600 pods with one
// claim, and in the middle of their end.
func (m *members) killLeaders() {
	const pods = 600
	consumer := m.shareWith("large", pods)
	count := func() (cluster.PodCounts, error) {
		return m.CountPods(m.ctx, m.namespace, cluster.JobLabel+"=large")
	}
	m.eventually("some pods are bound", func() error {
		n, err := count()
		if err == nil && n.Bound < pods/10 {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	m.kill(cluster.Scheduler)
	m.kill(cluster.ControllerManager)
	m.running("large", pods)
	m.reservedFor("large", consumer)
	uid := m.uidOf("large")

	m.deleteJob("large")
	m.eventually("some pods are gone", func() error {
		n, err := count()
		if err == nil && n.All == pods {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	m.kill(cluster.ControllerManager)
	m.podsOf("large", 0)
	m.free("large")
	if now := m.uidOf("large"); now != uid {
		m.Errorf("claim large was made again: %s, before %s", now, uid)
	}
}

// uidOf is the UID of a claim, as all API servers say it.
func (m *members) uidOf(name string) (uid string) {
	m.Helper()
	for number := 1; number <= controlPlanes; number++ {
		claim, err := m.at(number).Claims(m.namespace).Get(m.ctx, name, metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		if number > 1 && uid != string(claim.GetUID()) {
			m.Errorf("API server %d: claim %s has UID %s, not %s", number, name, claim.GetUID(), uid)
		}
		uid = string(claim.GetUID())
	}
	return uid
}

// hang stops the processes of members of etcd for a while: that of the scheduler that leads, which the others
// do without, and then one more, without which nothing is written. Leaders lose their leases meanwhile, and
// end. A Job ends and another one starts while one member hangs, or right after two did.
func (m *members) hang() {
	for _, count := range []int{1, 2} {
		first := m.leader(cluster.Scheduler, 0)
		next := first%controlPlanes + 1
		// The API server of the next one writes while the first one hangs.
		other := &members{env: m.at(next), class: m.class}
		name := fmt.Sprintf("hang-%d", count)
		ending := name + "-ending"
		m.shareWith(ending, smallPods)
		m.running(ending, smallPods)
		var resume []func()
		for _, number := range []int{first, next}[:count] {
			one, err := shared.Pause(cluster.Member(cluster.Etcd, number))
			if err != nil {
				m.Fatal(err)
			}
			resume = append(resume, one)
		}
		var consumer cluster.Consumer
		if count == 1 {
			other.deleteJob(ending)
			consumer = other.shareWith(name, smallPods)
		}
		time.Sleep(outage)
		for _, one := range resume {
			one()
		}
		m.restartEnded()
		if count > 1 {
			m.eventually("an API server writes again", func() error {
				_, err := m.Claims(m.namespace).Create(m.ctx, m.Claim("probe", m.class, nil), metav1.CreateOptions{})
				return err
			})
			m.deleteClaim("probe")
			m.deleteJob(ending)
			consumer = m.shareWith(name, smallPods)
		}
		m.running(name, smallPods)
		m.reservedFor(name, consumer)
		m.podsOf(ending, 0)
		m.free(ending)
		m.deleteJob(name)
		m.podsOf(name, 0)
		m.free(name)
	}
}

// restartEnded starts what ended because it lost its lease, as a kubelet does with static pods.
func (m *members) restartEnded() {
	m.Helper()
	for _, kind := range components[:3] {
		for number := 1; number <= controlPlanes; number++ {
			name := cluster.Member(kind, number)
			if _, err := shared.PIDs(name); err == nil {
				continue
			}
			m.Logf("%s had ended", name)
			if err := shared.Start(m.ctx, name, nil); err != nil {
				m.Fatal(err)
			}
		}
	}
}

// replace restarts all components of a kind, or some of them, with what is in use now.
func (m *members) replace(kind string, gates map[string]bool, numbers ...int) {
	m.Helper()
	if len(numbers) == 0 {
		numbers = []int{1, 2, 3}
	}
	for _, number := range numbers {
		if err := shared.Restart(m.ctx, cluster.Member(kind, number), gates); err != nil {
			m.Fatal(err)
		}
	}
}

// upgradeAndBack takes the cluster from upstream's programs to patched ones, and back. Each API server writes
// claims in each state, as with a load balancer in front of them.
func (m *members) upgradeAndBack(unpatched string) {
	patched, gates := shared.Options.Bin, shared.Options.Gates
	m.Cleanup(func() { m.use(patched, gates) })
	off := map[string]bool{gate: false}

	m.use(unpatched, nil)
	for _, kind := range components[:3] {
		m.replace(kind, nil)
	}
	m.claim("plain", m.class, nil)
	m.job("plain", 10, cluster.PodSpec("plain", ""), nil)
	m.running("plain", 10)
	jobs := map[string]int{"plain": 10}
	before := m.podUIDs(jobs)
	consumer := &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "early"}

	// The wrong order: the gate is on in one API server, and the others are upstream's.
	m.use(patched, gates)
	m.replace(cluster.APIServer, nil, 1)
	m.claim("early", m.class, consumer)
	if fields := m.fields("early"); fields != "spec.reservedFor" {
		m.Errorf("the new API server stores %q", fields)
	}
	m.at(2).touch("early")
	if fields := m.fields("early"); fields != "" {
		m.Errorf("upstream's API server wrote the claim, and it still has %s", fields)
	}
	if _, err := m.at(3).Claims(m.namespace).Create(m.ctx, m.Claim("other", m.class, consumer), metav1.CreateOptions{}); err != nil {
		m.Error(err)
	}
	if fields := m.fields("other"); fields != "" {
		m.Errorf("upstream's API server stored %s", fields)
	}
	// Such claims are per pod, also when all is done. Nobody is bound to them for ever.
	m.job("early", 3, cluster.PodSpec("early", ""), nil)
	m.running("early", 3)
	m.listed("early", 3)
	m.deleteJob("early")
	m.free("early")

	// The right order: the programs of all, and then the gate.
	m.replace(cluster.APIServer, off)
	for _, kind := range components[1:3] {
		m.replace(kind, off)
	}
	m.claim("before", m.class, consumer)
	if fields := m.fields("before"); fields != "" {
		m.Errorf("with the gate off, an API server stored %s", fields)
	}
	for _, kind := range []string{cluster.ControllerManager, cluster.APIServer, cluster.Scheduler} {
		m.replace(kind, nil)
		m.keepRunning(before, nil)
	}
	large := m.shareWith("shared", tooMany)
	m.running("shared", tooMany)
	for number := 1; number <= controlPlanes; number++ {
		m.at(number).touch("shared")
	}
	m.reservedFor("shared", large)
	if fields := m.fields("shared"); fields != "spec.reservedFor and status.allocation.reservedForAnyPod" {
		m.Errorf("after each API server wrote the claim, it has %s", fields)
	}

	// Back, as the documents say: nothing depends on our fields when the first of upstream's API servers
	// writes a claim.
	m.replace(cluster.Scheduler, off)
	m.patchJob("shared", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, listable))
	m.running("shared", listable)
	if out, err := m.downgrade("--apply"); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	jobs["shared"] = listable
	before = m.podUIDs(jobs)
	m.use(unpatched, nil)
	m.replace(cluster.APIServer, nil, 1)
	for number := 1; number <= controlPlanes; number++ {
		m.at(number).touch("shared")
	}
	m.listed("shared", listable)
	m.replace(cluster.APIServer, nil, 2, 3)
	for _, kind := range components[1:3] {
		m.replace(kind, nil)
	}
	m.keepRunning(before, nil)
	for name := range jobs {
		m.deleteJob(name)
		m.podsOf(name, 0)
		m.free(name)
	}
}
