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
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-dra/hack/pkg/cluster"
)

// What becomes of a pod.
const (
	// works is for a pod which runs because the claim is reserved for its Job.
	works = "works"
	// perPodOnly is for a pod which runs because it is listed in the claim, which has room for 256.
	perPodOnly = "per pod, up to 256"
	// refused is for a pod which the kubelet does not start, and whose Event names the gate.
	refused = "refused by the kubelet"
)

// gatedComponents have the gate, in the order of the table.
var gatedComponents = [...]string{"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet"}

// gateSet says for each of them whether the gate is on.
type gateSet [len(gatedComponents)]bool

// mixedRow is what pods meet with one combination of gates.
type mixedRow struct {
	// new is for the pods of a Job which was created, with its claim, while the gates were like that.
	new string
	// before is for one more pod of a Job whose claim was allocated while the gate was on everywhere,
	// and which runs since then.
	before string
	// beforeOnNode is for a pod with that claim which never meets the scheduler: its spec.nodeName was
	// set when it was created.
	beforeOnNode string
}

// mixedFile has what is expected, as docs/operations.md shows it.
const mixedFile = "mixed-gates.txt"

//go:embed mixed-gates.txt
var mixedGates string

// mixedTable reads it.
func mixedTable(t *testing.T) map[gateSet]mixedRow {
	t.Helper()
	table := map[gateSet]mixedRow{}
	lines := strings.Split(strings.TrimSpace(mixedGates), "\n")
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != len(gatedComponents)+3 {
			t.Fatalf("%s: %q has %d cells", mixedFile, line, len(cells))
		}
		var gates gateSet
		for i := range gates {
			gates[i] = cells[i] == "on"
		}
		cells = cells[len(gates):]
		table[gates] = mixedRow{new: cells[0], before: cells[1], beforeOnNode: cells[2]}
	}
	if len(table) != 1<<len(gatedComponents) {
		t.Fatalf("%s has %d combinations", mixedFile, len(table))
	}
	return table
}

// walkGates goes through all combinations such that one component changes at a time. It begins with the
// gate on everywhere, and ends one change away from that. Components which take long to restart change
// seldom.
func walkGates() []gateSet {
	seldomLast := [len(gatedComponents)]int{1, 2, 3, 0}
	var walk []gateSet
	for i := range 1 << len(gatedComponents) {
		// The reflected binary code.
		code := i ^ i>>1
		var gates gateSet
		for bit, component := range seldomLast {
			gates[component] = code&(1<<bit) == 0
		}
		walk = append(walk, gates)
	}
	return walk
}

// TestMixedGates turns the gate on and off in each component separately, in
// all combinations. Whatever comes of a claim for a Job, nobody is left without a
// word, loses devices while using them, or keeps them afterwards.
func TestMixedGates(t *testing.T) {
	onRealNode(t)
	e := newEnv(t)
	walk := walkGates()
	current := walk[0]
	setGates := func(ctx context.Context, want gateSet) {
		for i, component := range gatedComponents {
			if current[i] == want[i] {
				continue
			}
			if err := shared.Restart(ctx, component, map[string]bool{gate: want[i]}); err != nil {
				t.Fatal(err)
			}
			current[i] = want[i]
		}
	}
	// Whatever happens, other tests need them.
	t.Cleanup(func() { setGates(context.Background(), walk[0]) })

	// There is one device for the new claims of all combinations: one that gets
	// lost is missed by the next.
	newClass := e.pool("new", 1, "real")
	simulatedClass := e.pool("simulated", 1, "simulated")
	oldClass := e.pool("old", len(walk)+2, "real")

	// One for each combination, and one that goes through all of them.
	survivor := e.olderJob("survivor", oldClass)
	older := map[gateSet]*olderJob{}
	for i, gates := range walk {
		older[gates] = e.olderJob(fmt.Sprintf("older-%d", i), oldClass)
	}
	survivor.run()
	for _, job := range older {
		job.run()
	}

	var perPod *olderJob
	table := mixedTable(t)
	for _, gates := range walk {
		start := time.Now()
		setGates(e.ctx, gates)
		restarted := time.Since(start)
		row := e.combination(gates, newClass, older[gates])
		if want, known := table[gates]; !known || row != want {
			t.Errorf("not what %s says: want %+v, got %+v", mixedFile, want, row)
		}
		delete(table, gates)
		delete(older, gates)
		if gates == (gateSet{true, false, true, true}) {
			e.limit(simulatedClass)
			// This one stays as it was allocated.
			perPod = e.olderJob("per-pod", oldClass)
			perPod.run()
		}

		// All others are as they were.
		for _, job := range older {
			job.check()
		}
		survivor.check()
		if perPod != nil {
			perPod.check()
		}
		t.Logf("%v: %s; from before: %s, %s; %s, %s of it for the restart", gates, row.new, row.before, row.beforeOnNode, time.Since(start).Round(100*time.Millisecond), restarted.Round(100*time.Millisecond))
	}
	setGates(e.ctx, walk[0])

	if len(table) > 0 {
		t.Errorf("nobody met these rows of %s: %v", mixedFile, table)
	}

	// With the gate on everywhere again, it goes on where it stopped.
	for _, check := range []struct {
		job  *olderJob
		want string
	}{{survivor, works}, {perPod, perPodOnly}} {
		if got := e.outcome(check.job.claim(), check.job.another()); got != check.want {
			t.Errorf("one more pod of Job %s: want %q, got %q", check.job.name, check.want, got)
		}
		e.end(check.job.name)
		e.free(check.job.claim())
		check.job.delete()
	}
	// What was allocated without the feature is not bound to that for ever.
	perPod.run()
	if got := e.outcome(perPod.claim(), perPod.pod.Name); got != works {
		t.Errorf("the next Job %s: want %q, got %q", perPod.name, works, got)
	}
	for _, job := range []*olderJob{survivor, perPod} {
		job.delete()
		e.deleteClaim(job.claim())
		e.gone(job.claim())
	}
	e.prepared()
}

// combination is what happens with these gates: to a new Job with a new claim, and
// to one from before.
func (e *env) combination(gates gateSet, class string, older *olderJob) mixedRow {
	e.Helper()
	const name = "new"
	var row mixedRow
	e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
	e.job(name, 2, cluster.PodSpec(name, untilTold), nil)
	another := older.another()
	e.podOnNode("older-on-node", older.claim())

	// All pods of a Job meet the same.
	for i, pod := range e.podsOf(name, 2) {
		outcome := e.outcome(name, pod)
		if i > 0 && outcome != row.new {
			e.Errorf("%v: one pod of the Job got %q, another %q", gates, row.new, outcome)
		}
		row.new = outcome
	}
	// Its claim is allocated by now. That is necessary for a pod which the
	// scheduler does not see.
	e.podOnNode("new-on-node", name)
	row.before = e.outcome(older.claim(), another)
	row.beforeOnNode = e.outcome(older.claim(), "older-on-node")

	// A claim that is to be deleted stays while pods use it, and no longer.
	e.deleteClaim(older.claim())
	older.check()
	e.deletePod("older-on-node")
	e.deleteJob(older.name)

	if outcome := e.outcome(name, "new-on-node"); outcome != row.new {
		e.Errorf("%v: a pod with spec.nodeName got %q, the pods of the Job %q", gates, outcome, row.new)
	}
	e.deletePod("new-on-node")
	if row.new == refused {
		e.deleteJob(name)
	} else {
		e.end(name)
	}
	e.free(name)
	e.deleteJob(name)
	e.deleteClaim(name)
	for _, claim := range []string{name, older.claim()} {
		e.gone(claim)
	}
	e.eventually("pods are gone", func() error {
		for _, pod := range []string{"older-on-node", "new-on-node"} {
			if _, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, pod, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is left: %w", pod, err)
			}
		}
		if n := len(e.pods(name)) + len(e.pods(older.name)); n > 0 {
			return fmt.Errorf("%d pods of Jobs are left", n)
		}
		return nil
	})
	return row
}

// limit checks what the first pod is told for which a claim has no room.
func (e *env) limit(class string) {
	e.Helper()
	const name, room = "limit", 256
	e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
	e.job(name, room+1, cluster.PodSpec(name, ""), nil)
	e.eventually(fmt.Sprintf("%d pods are scheduled", room), func() error {
		n, err := e.CountPods(e.ctx, e.namespace, cluster.JobLabel+"="+name)
		if err == nil && (n.All != room+1 || n.Bound != room) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	status, err := e.GetClaim(e.ctx, e.namespace, name)
	if err != nil {
		e.Fatal(err)
	}
	if len(status.Consumers) != room || len(status.Workloads()) > 0 {
		e.Errorf("want %d pods to be listed, got %d entries with %v", room, len(status.Consumers), status.Workloads())
	}
	for name, pod := range e.pods(name) {
		if pod.Spec.NodeName != "" {
			continue
		}
		message := e.event("Pod", name, func(event *corev1.Event) bool {
			return event.Reason == "FailedScheduling" && strings.Contains(event.Message, gate)
		})
		e.Logf("the scheduler says: %s", message)
		for _, want := range []string{"limit", "256", "spec.reservedFor", cluster.APIServer, cluster.Scheduler} {
			if !strings.Contains(message, want) {
				e.Errorf("the scheduler's reason does not mention %q: %s", want, message)
			}
		}
	}
	e.deleteJob(name)
	e.deleteClaim(name)
	e.gone(name)
}

// pool creates devices with a class of their own for nodes of a type.
func (e *env) pool(name string, n int, nodeType string) (class string) {
	e.Helper()
	other := *e
	other.namespace += "-" + name
	return other.devices(n, nodeType)
}

// outcome waits until a pod runs, or is refused with an Event that explains it.
func (e *env) outcome(claim, pod string) string {
	e.Helper()
	var outcome string
	e.eventually("pod "+pod+" runs or is told why not", func() error {
		p, err := e.CoreV1().Pods(e.namespace).Get(e.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch p.Status.Phase {
		case corev1.PodRunning:
			status, err := e.GetClaim(e.ctx, e.namespace, claim)
			if err != nil {
				return err
			}
			switch {
			case slices.ContainsFunc(status.Consumers, func(c cluster.Consumer) bool { return c.UID == p.UID }):
				outcome = perPodOnly
			case status.ReservedForAnyPod && len(status.Workloads()) == 1:
				outcome = works
			default:
				return fatal{fmt.Errorf("it runs with a claim that is not reserved for it: %+v", status)}
			}
			return nil
		case corev1.PodSucceeded, corev1.PodFailed:
			return fatal{fmt.Errorf("%+v", p.Status)}
		}

		events, err := e.CoreV1().Events(e.namespace).List(e.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var seen []string
		for _, event := range events.Items {
			if event.InvolvedObject.UID != p.UID {
				continue
			}
			seen = append(seen, event.Source.Component+": "+event.Reason+": "+event.Message)
			if event.Type == corev1.EventTypeWarning && event.Source.Component == "kubelet" && strings.Contains(event.Message, gate) {
				for _, want := range []string{claim, "jobs.batch", "disabled on this node"} {
					if !strings.Contains(event.Message, want) {
						e.Errorf("the kubelet's reason does not mention %q: %s", want, event.Message)
					}
				}
				outcome = refused
				return nil
			}
		}
		return fmt.Errorf("it is %s, and there are only these events: %q", p.Status.Phase, seen)
	})
	return outcome
}

// podOnNode creates a pod which the scheduler does not see.
func (e *env) podOnNode(name, claim string) {
	e.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cluster.PodSpec(claim, untilTold)}
	pod.Spec.NodeName = cluster.RealNode
	if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e *env) deletePod(name string) {
	e.Helper()
	if err := e.CoreV1().Pods(e.namespace).Delete(e.ctx, name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
}

// podsOf waits until a Job has so many pods.
func (e *env) podsOf(job string, n int) (names []string) {
	e.Helper()
	e.eventually(fmt.Sprintf("Job %s has %d pods", job, n), func() error {
		names = names[:0]
		for name := range e.pods(job) {
			names = append(names, name)
		}
		if len(names) != n {
			return fmt.Errorf("it has %q", names)
		}
		return nil
	})
	return names
}

// deleteJob deletes a Job with its pods, but does not wait for them.
func (e *env) deleteJob(name string) {
	e.Helper()
	err := e.BatchV1().Jobs(e.namespace).Delete(e.ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		e.Fatal(err)
	}
}

func (e *env) deleteClaim(name string) {
	e.Helper()
	if err := e.Claims(e.namespace).Delete(e.ctx, name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
}

// gone waits until a claim that was deleted is.
func (e *env) gone(name string) {
	e.Helper()
	e.eventually("claim "+name+" is gone", func() error {
		status, err := e.GetClaim(e.ctx, e.namespace, name)
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		return fmt.Errorf("%+v", status)
	})
}

// olderJob is a Job with a claim, created before the gates change. One pod runs, and
// the Job can have one more.
type olderJob struct {
	*env
	name   string
	pod    *corev1.Pod
	uid    types.UID
	device []string
}

func (e *env) olderJob(name, class string) *olderJob {
	e.Helper()
	job := &olderJob{env: e, name: name}
	e.claim(job.claim(), class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
	job.create()
	return job
}

func (j *olderJob) claim() string { return j.name }

func (j *olderJob) create() {
	j.Helper()
	job := cluster.Job(j.name, 1, cluster.PodSpec(j.claim(), untilTold))
	job.Spec.Completions = new(int32(2))
	if _, err := j.BatchV1().Jobs(j.namespace).Create(j.ctx, job, metav1.CreateOptions{}); err != nil {
		j.Fatal(err)
	}
}

// run waits until the first pod runs. A Job that was deleted is created again.
func (j *olderJob) run() {
	j.Helper()
	if j.pod != nil {
		j.create()
	}
	j.running(j.name, 1)
	for _, pod := range j.pods(j.name) {
		j.pod = pod
	}
	status, err := j.GetClaim(j.ctx, j.namespace, j.claim())
	if err != nil {
		j.Fatal(err)
	}
	j.uid, j.device = status.UID, status.Devices
}

// check checks that the first pod runs, and has its device.
func (j *olderJob) check() {
	j.Helper()
	j.sameContainer(j.pod)
	status, err := j.GetClaim(j.ctx, j.namespace, j.claim())
	if err != nil {
		j.Fatal(err)
	}
	if status.UID != j.uid || !slices.Equal(status.Devices, j.device) || len(status.Devices) != 1 || len(status.Consumers) == 0 {
		j.Errorf("pod %s uses %v, but the claim is %+v", j.pod.Name, j.device, status)
	}
}

// another starts one more pod of the Job.
func (j *olderJob) another() string {
	j.Helper()
	j.patchJob(j.name, `{"spec":{"parallelism":2}}`)
	for _, name := range j.podsOf(j.name, 2) {
		if name != j.pod.Name {
			return name
		}
	}
	j.Fatal(errors.New("no other pod"))
	return ""
}

// delete deletes the Job, and waits until its pods are gone.
func (j *olderJob) delete() {
	j.Helper()
	j.deleteJob(j.name)
	j.podsOf(j.name, 0)
}
