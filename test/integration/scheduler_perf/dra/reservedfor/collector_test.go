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

package reservedfor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// report is what was measured about one workload.
type report struct {
	// Name is the name of the sub-benchmark.
	Name string `json:"name"`
	// Pods were created, this many of them were scheduled.
	Pods      int `json:"pods"`
	Scheduled int `json:"scheduled"`
	// WallSeconds is the time from the first pod that was created to the last one
	// that was scheduled.
	WallSeconds float64 `json:"wallSeconds"`
	// PodsPerSecond is the throughput during that time.
	PodsPerSecond float64 `json:"podsPerSecond"`
	// P50Seconds and P99Seconds are times between creation and binding.
	P50Seconds float64 `json:"p50Seconds"`
	P99Seconds float64 `json:"p99Seconds"`
	// CPUSeconds is what API server, scheduler and controller together used
	// during that time. Not included: etcd.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Calls are the API calls since the first pod was created, per pod. Watches and
	// lists are not counted, nor what has nothing to do with pods, claims or events.
	CallsPerPod float64 `json:"callsPerPod"`
	// ClaimWrites changed the claim, ClaimWritesAttempted includes those which were
	// refused, and ClaimConflicts is how many of them had a conflict.
	ClaimWrites          int `json:"claimWrites"`
	ClaimWritesAttempted int `json:"claimWritesAttempted"`
	ClaimConflicts       int `json:"claimConflicts"`
	// ClaimBytes is the largest size of the claim as JSON.
	ClaimBytes int `json:"claimBytes"`
	// MaxMemoryMiB is the largest resident size of the process.
	MaxMemoryMiB int `json:"maxMemoryMiB"`
	// RestCores is how much CPU was used while nothing happened
	// anymore in a workload with pods that cannot be scheduled. IdleCores is
	// the same before there were such pods.
	RestCores *float64 `json:"restCores,omitempty"`
	IdleCores *float64 `json:"idleCores,omitempty"`
	// FreeAfterSeconds is the time from the end of the last pod to the deallocation
	// of the last claim, DeleteSeconds that from the first to the last pod that ended.
	FreeAfterSeconds *float64 `json:"freeAfterSeconds,omitempty"`
	DeleteSeconds    *float64 `json:"deleteSeconds,omitempty"`
	// CallsPerRelease are the API calls after the first pod ended, per claim:
	// those about claims, and reading the owners of their pods.
	CallsPerRelease *float64 `json:"callsPerRelease,omitempty"`
}

// endPodGroup deletes a PodGroup, in releases that have them.
var endPodGroup func(ctx context.Context, client clientset.Interface, name string) error

// restPeriod is a part of a workload with pods that cannot be scheduled, and just as
// long a time before those pods.
const (
	restPeriod = 25 * time.Second
	// restAfter is when everything that has to be done for those pods should be done.
	restAfter = 10 * time.Second
)

type cpuSample struct {
	at      time.Time
	seconds float64
}

// collector observes the pods and claims of a workload.
type collector struct {
	namespace string
	client    clientset.Interface

	mutex     sync.Mutex
	created   map[types.UID]time.Time
	scheduled map[types.UID]time.Time
	deleted   map[types.UID]time.Time
	// ended are the Jobs and PodGroups whose pods end, allocated the claims that have
	// devices, freed those that had some.
	ended            map[string]bool
	allocated, freed map[string]bool
	lastFreed        time.Time
	podGroups        bool
	wg               *sync.WaitGroup
	writes           int
	// largest is the claim when it had most entries.
	largest *resourceapi.ResourceClaim
	cpu     []cpuSample
	// before are the API calls shortly before the first pod, after are those that were
	// counted last. The counters get reset before the workload ends.
	before, after map[call]float64
	// released are those when the last claim was free.
	released map[call]float64
	sampled  time.Time
}

// startCollector observes a namespace until the end of the workload and then calls
// done.
func startCollector(tCtx ktesting.TContext, namespace string, done func(*report)) error {
	c := &collector{
		namespace: namespace,
		client:    tCtx.Client(),
		created:   map[types.UID]time.Time{},
		scheduled: map[types.UID]time.Time{},
		deleted:   map[types.UID]time.Time{},
		ended:     map[string]bool{},
		allocated: map[string]bool{},
		freed:     map[string]bool{},
		podGroups: isCase(tCtx, "ReleasePodGroups"),
	}
	c.before = calls()
	ctx, cancel := context.WithCancel(tCtx)
	var wg sync.WaitGroup
	c.wg = &wg
	if err := watchAll(ctx, &wg, c.client.CoreV1().Pods(namespace).Watch, func(event watch.Event) {
		if pod, ok := event.Object.(*v1.Pod); ok {
			c.pod(ctx, event.Type, pod)
		}
	}); err != nil {
		cancel()
		return fmt.Errorf("watch pods: %w", err)
	}
	if err := watchAll(ctx, &wg, resourceClient(c.client).ResourceClaims(namespace).Watch, func(event watch.Event) {
		if claim, ok := event.Object.(*resourceapi.ResourceClaim); ok && (strings.HasPrefix(claim.Name, claimName) || strings.HasPrefix(claim.Name, jobName)) {
			c.claim(event.Type, claim)
		}
	}); err != nil {
		cancel()
		return fmt.Errorf("watch claims: %w", err)
	}
	inBackground(&wg, func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.sampleCPU()
				c.sampleCalls()
			case <-ctx.Done():
				return
			}
		}
	})
	name := tCtx.Name()
	tCtx.Cleanup(func() {
		c.sampleCPU()
		cancel()
		wg.Wait()
		done(c.report(name))
	})
	return nil
}

// watchAll calls a function for all events until the context is canceled. When
// the API server ends a watch because it cannot keep up, it continues where that was.
func watchAll(ctx context.Context, wg *sync.WaitGroup, start func(context.Context, metav1.ListOptions) (watch.Interface, error), handle func(watch.Event)) error {
	w, err := start(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	inBackground(wg, func() {
		last := ""
		for ctx.Err() == nil {
			for event := range w.ResultChan() {
				if obj, err := meta.Accessor(event.Object); err == nil {
					last = obj.GetResourceVersion()
				}
				handle(event)
			}
			if w, err = start(ctx, metav1.ListOptions{ResourceVersion: last}); err != nil {
				return
			}
		}
	})
	return nil
}

func (c *collector) pod(ctx context.Context, event watch.EventType, pod *v1.Pod) {
	now := time.Now()
	if pod.Spec.NodeName == fullNode {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, ok := c.created[pod.UID]; !ok {
		c.created[pod.UID] = now
	}
	if _, ok := c.scheduled[pod.UID]; !ok && pod.Spec.NodeName != "" {
		c.scheduled[pod.UID] = now
	}
	if event != watch.Deleted {
		return
	}
	c.end(ctx, cmp.Or(pod.Labels["workload"], jobName))
	c.deleted[pod.UID] = now
}

// end ends a workload: the first of its pods has ended, so all do. Errors will be noticed
// because the claim does not become free.
func (c *collector) end(ctx context.Context, workload string) {
	if c.ended[workload] {
		return
	}
	c.ended[workload] = true
	// The events of other pods do not wait for that.
	inBackground(c.wg, func() {
		_ = c.client.BatchV1().Jobs(c.namespace).Delete(ctx, workload, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if c.podGroups {
			_ = endPodGroup(ctx, c.client, workload)
		}
	})
}

func (c *collector) claim(event watch.EventType, claim *resourceapi.ResourceClaim) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if claim.Status.Allocation != nil {
		c.allocated[claim.Name] = true
	}
	if len(c.deleted) > 0 {
		if claim.Status.Allocation == nil && c.allocated[claim.Name] && !c.freed[claim.Name] {
			c.freed[claim.Name] = true
			c.lastFreed = time.Now()
		}
		return
	}
	if len(c.created) > 0 && event == watch.Modified {
		c.writes++
	}
	if c.largest == nil || len(claim.Status.ReservedFor) > len(c.largest.Status.ReservedFor) || claim.Status.Allocation != nil && c.largest.Status.Allocation == nil {
		c.largest = claim
	}
}

// cpuSeconds is what this process has used.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func (c *collector) sampleCPU() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.cpu = append(c.cpu, cpuSample{time.Now(), cpuSeconds()})
}

// free says whether all claims that had devices are free again.
func (c *collector) free() bool {
	return len(c.freed) > 0 && len(c.freed) == len(c.allocated)
}

// sampleCalls counts the API calls: often when all pods are scheduled, and only
// from time to time before that because it takes time itself.
func (c *collector) sampleCalls() {
	c.mutex.Lock()
	created, scheduled, deleted, sampled := len(c.created), len(c.scheduled), len(c.deleted), c.sampled
	free := deleted == created && c.free() && c.released == nil
	c.mutex.Unlock()
	if free {
		released := calls()
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.released = released
		return
	}
	interval := 5 * time.Second
	switch {
	case created == 0:
		interval = time.Second
	case scheduled == created:
		interval = 200 * time.Millisecond
	}
	// Deleting them does not count.
	if deleted > 0 || time.Since(sampled) < interval {
		return
	}
	after := calls()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.sampled = time.Now()
	if len(c.created) == 0 {
		// Upstream's workloads also have pods that are not measured.
		c.before = after
		return
	}
	if sum(after) >= sum(c.after) {
		c.after = after
	}
}

func sum(m map[call]float64) float64 {
	total := 0.0
	for _, n := range m {
		total += n
	}
	return total
}

// cpuAt returns the last sample before some time, or the first one.
func (c *collector) cpuAt(at time.Time) cpuSample {
	i, _ := slices.BinarySearchFunc(c.cpu, at, func(s cpuSample, at time.Time) int { return s.at.Compare(at) })
	return c.cpu[min(max(i, 0), len(c.cpu)-1)]
}

// cores returns how much CPU was used during the rest period before some time.
func (c *collector) cores(at time.Time) *float64 {
	start, end := c.cpuAt(at.Add(-restPeriod)), c.cpuAt(at)
	if d := end.at.Sub(start.at).Seconds(); d > 0 {
		return ptr.To((end.seconds - start.seconds) / d)
	}
	return nil
}

// call identifies a kind of API call.
type call struct{ verb, resource, code string }

// calls returns how many API calls there have been.
func calls() map[call]float64 {
	result := map[call]float64{}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return result
	}
	for _, family := range families {
		if family.GetName() != "apiserver_request_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			var c call
			for _, label := range metric.GetLabel() {
				switch label.GetName() {
				case "verb":
					c.verb = label.GetValue()
				case "resource":
					c.resource = label.GetValue()
				case "code":
					c.code = label.GetValue()
				}
			}
			result[c] += metric.GetCounter().GetValue()
		}
	}
	return result
}

func (c *collector) report(name string) *report {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	r := &report{Name: name, Pods: len(c.created), Scheduled: len(c.scheduled), ClaimWrites: c.writes, MaxMemoryMiB: maxMemoryMiB()}
	if data, err := json.Marshal(c.largest); err == nil && c.largest != nil {
		r.ClaimBytes = len(data)
	}
	if len(c.created) == 0 {
		return r
	}
	var first, last, firstDeleted, lastDeleted time.Time
	for _, at := range c.created {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	var durations []time.Duration
	for uid, at := range c.scheduled {
		if at.After(last) {
			last = at
		}
		durations = append(durations, at.Sub(c.created[uid]))
	}
	for _, at := range c.deleted {
		if firstDeleted.IsZero() || at.Before(firstDeleted) {
			firstDeleted = at
		}
		if at.After(lastDeleted) {
			lastDeleted = at
		}
	}
	if len(durations) > 0 {
		slices.Sort(durations)
		r.WallSeconds = last.Sub(first).Seconds()
		if r.WallSeconds > 0 {
			r.PodsPerSecond = float64(len(durations)) / r.WallSeconds
		}
		r.P50Seconds = durations[(len(durations)-1)*50/100].Seconds()
		r.P99Seconds = durations[(len(durations)-1)*99/100].Seconds()
		r.CPUSeconds = c.cpuAt(last).seconds - c.cpuAt(first).seconds
	}
	for c, n := range deltaOf(c.before, c.after) {
		switch c.verb {
		case "POST", "PUT", "PATCH", "APPLY", "GET", "DELETE":
		default:
			continue
		}
		switch c.resource {
		case "pods", "events", "resourceclaims":
			r.CallsPerPod += n / float64(r.Pods)
		}
		if c.resource == "resourceclaims" && (c.verb == "PUT" || c.verb == "PATCH" || c.verb == "APPLY") {
			r.ClaimWritesAttempted += int(n)
			if c.code == "409" {
				r.ClaimConflicts += int(n)
			}
		}
	}
	if r.Scheduled < r.Pods {
		// Not at the end: collecting metrics there takes seconds of CPU time.
		r.RestCores = c.cores(first.Add(restAfter + restPeriod))
		r.IdleCores = c.cores(first)
	}
	if len(c.deleted) > 0 && len(c.deleted) == len(c.created) {
		r.DeleteSeconds = ptr.To(lastDeleted.Sub(firstDeleted).Seconds())
		// Before that, it would have been a mistake.
		if c.free() && c.lastFreed.After(lastDeleted) {
			r.FreeAfterSeconds = ptr.To(c.lastFreed.Sub(lastDeleted).Seconds())
		}
	}
	if c.released != nil {
		n := 0.0
		for c, calls := range deltaOf(c.after, c.released) {
			reads := c.verb == "GET" || c.verb == "LIST"
			switch c.resource {
			case "resourceclaims":
				if c.verb != "WATCH" {
					n += calls
				}
			case "pods", "jobs", "podgroups":
				if reads {
					n += calls
				}
			}
		}
		r.CallsPerRelease = ptr.To(n / float64(len(c.freed)))
	}
	return r
}

func deltaOf(before, after map[call]float64) map[call]float64 {
	delta := map[call]float64{}
	for c, n := range after {
		if n -= before[c]; n > 0 {
			delta[c] = n
		}
	}
	return delta
}

// maxMemoryMiB is the largest resident size that this process ever had.
func maxMemoryMiB() int {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		if value, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))))
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}

// inBackground runs something until it returns.
func inBackground(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
}
