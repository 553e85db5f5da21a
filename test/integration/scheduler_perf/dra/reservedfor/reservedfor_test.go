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

// Package reservedfor measures pods that share one claim, with and without
// spec.reservedFor (KEP-5194).
//
// It uses nothing that only exists in a patched tree: the same files get
// compiled in an unpatched one for comparison.
package reservedfor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/component-base/logs/json/register"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

const (
	namespace  = "bench"
	claimName  = "shared"
	className  = "bench"
	driverName = "bench.example.com"
	jobName    = "bench"

	// devicesForPods is enough for the pods of a workload in which each has a claim.
	devicesForPods = 10000

	// fullNode is where the pods are that fill the list of a claim.
	fullNode = "elsewhere"
)

// Environment variables.
const (
	// reportVariable names the file for the results of a benchmark.
	reportVariable = "RESERVEDFOR_BENCH_REPORT"

	// gatesVariable lists feature gates which get turned on for
	// upstream's benchmarks.
	gatesVariable = "RESERVEDFOR_BENCH_GATES"
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
	if gates := os.Getenv(gatesVariable); gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", gatesVariable, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// TestSchedulerPerf runs the small workloads and checks what a benchmark would
// only measure.
func TestSchedulerPerf(t *testing.T) {
	reports := map[string]*report{}
	runIntegration(t, "integration-config.yaml", func(tCtx ktesting.TContext) error {
		return prepare(tCtx, func(r *report) { reports[r.Name] = r })
	})
	for name, r := range reports {
		t.Run(name, func(t *testing.T) {
			if r.Scheduled != r.Pods || r.Pods < 300 {
				t.Errorf("%d of %d pods were scheduled", r.Scheduled, r.Pods)
			}
			if r.ClaimWrites > 3 {
				t.Errorf("%d writes to the claim", r.ClaimWrites)
			}
			if r.ClaimBytes > 4096 {
				t.Errorf("the claim has %d bytes", r.ClaimBytes)
			}
			if strings.Contains(name, "Release") && r.FreeAfterSeconds == nil {
				t.Error("the claim was not deallocated")
			}
		})
	}
	if len(reports) != 2 {
		t.Errorf("expected two reports, got %d", len(reports))
	}
}

// BenchmarkPerfScheduling has to contain exactly this word to be picked up by
// benchmark jobs.
func BenchmarkPerfScheduling(b *testing.B) {
	runBenchmark(b, "performance-config.yaml", "dra_reservedfor", func(tCtx ktesting.TContext) error {
		return prepare(tCtx, func(r *report) { writeReport(tCtx, r) })
	})
}

// BenchmarkPerfSchedulingUpstream runs upstream's workloads, with the same
// measurements as for ours.
func BenchmarkPerfSchedulingUpstream(b *testing.B) {
	// b.Chdir is not known to the language version of 1.32.
	here, err := os.Getwd()
	if err == nil {
		err = os.Chdir("..")
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.Chdir(here); err != nil {
			b.Error(err)
		}
	})
	// Those workloads create nodes more than once.
	observed := ""
	runBenchmark(b, "performance-config.yaml", "dra_upstream", func(tCtx ktesting.TContext) error {
		if observed == tCtx.Name() {
			return nil
		}
		observed = tCtx.Name()
		return startCollector(tCtx, "test", func(r *report) { writeReport(tCtx, r) })
	})
}

func writeReport(tCtx ktesting.TContext, r *report) {
	path := os.Getenv(reportVariable)
	if path == "" || tCtx.Failed() {
		return
	}
	data, err := json.MarshalIndent(r, "", "  ")
	tCtx.ExpectNoError(err, "encode report")
	tCtx.ExpectNoError(os.WriteFile(path, append(data, '\n'), 0o644), "write report")
}

// prepare creates what the pods of a workload need and starts to observe them. The namespace
// exists already, and so do the Jobs.
func prepare(tCtx ktesting.TContext, done func(r *report)) error {
	if isCase(tCtx, "NoClaimOneNode", "NoClaimRack") {
		if _, err := labelNodes(tCtx); err != nil {
			return err
		}
	}
	if !isCase(tCtx, "NoClaim", "NoClaimOneNode", "NoClaimRack", "NoClaimInGroups") {
		if err := prepareClaims(tCtx); err != nil {
			return err
		}
	}
	if err := startCollector(tCtx, namespace, done); err != nil {
		return err
	}
	return createOwnedPods(tCtx)
}

// createOwnedPods creates the pods of cases where scheduler_perf cannot do that.
var createOwnedPods = func(ktesting.TContext) error { return nil }

// isCase says whether one of some cases is running.
func isCase(tCtx ktesting.TContext, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(tCtx.Name(), "/"+name+"/") })
}

// labelNodes marks the nodes that can use the device: one, or those of a rack. It returns their names.
func labelNodes(tCtx ktesting.TContext) ([]string, error) {
	count := int64(1)
	if isCase(tCtx, "NoClaimRack", "SharedClaimRack") {
		count = 50
	}
	nodes, err := tCtx.Client().CoreV1().Nodes().List(tCtx, metav1.ListOptions{Limit: count})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return nil, errors.New("there are no nodes yet")
	}
	var names []string
	for _, node := range nodes.Items {
		_, err = tCtx.Client().CoreV1().Nodes().Patch(tCtx, node.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"bench":"device"}}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, fmt.Errorf("label node: %w", err)
		}
		names = append(names, node.Name)
	}
	return names, nil
}

// prepareClaims creates a device and a claim for each Job.
func prepareClaims(tCtx ktesting.TContext) error {
	client := tCtx.Client()
	_, err := resourceClient(client).DeviceClasses().Create(tCtx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driverName)},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create DeviceClass: %w", err)
	}
	jobs, err := client.BatchV1().Jobs(namespace).List(tCtx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	devices := len(jobs.Items)
	if isCase(tCtx, "ClaimPerPod") {
		devices = devicesForPods
	}
	if err := createDevices(tCtx, devices); err != nil {
		return err
	}
	switch {
	case isCase(tCtx, "GeneratedClaims"):
		return createTemplate(tCtx, `,"reservedFor":{"apiGroup":"batch","resource":"jobs"}`)
	case isCase(tCtx, "ClaimPerPod", "PodGroupTemplate"):
		return createTemplate(tCtx, "")
	}
	for _, job := range jobs.Items {
		// As JSON because an unpatched tree has no Go type with this field.
		spec := fmt.Sprintf(`"devices":{"requests":[%s]}`, requestJSON("req", className))
		if isCase(tCtx, "SharedClaimForWorkload", "SharedClaimOneNode", "SharedClaimRack", "SharedClaimsForWorkloads", "NamedClaims", "Release", "ReleaseWorkloads") {
			spec += fmt.Sprintf(`,"reservedFor":{"apiGroup":"batch","resource":"jobs","name":%q,"uid":%q}`, job.Name, job.UID)
		}
		name := claimName + strings.TrimPrefix(job.Name, jobName)
		if err := post(tCtx, "ResourceClaim", name, spec); err != nil {
			return err
		}
	}
	if isCase(tCtx, "SharedClaimFull") {
		return fillClaim(tCtx)
	}
	return nil
}

// createTemplate creates a ResourceClaimTemplate, with more in the claim's spec.
func createTemplate(tCtx ktesting.TContext, more string) error {
	return post(tCtx, "ResourceClaimTemplate", claimName, fmt.Sprintf(`"spec":{"devices":{"requests":[%s]}%s}`, requestJSON("req", className), more))
}

// post creates an object from the JSON of what is in its spec.
func post(tCtx ktesting.TContext, kind, name, spec string) error {
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{%s}}`, resourceapi.SchemeGroupVersion, kind, name, spec)
	err := resourceClient(tCtx.Client()).RESTClient().Post().Namespace(namespace).Resource(strings.ToLower(kind)+"s").
		Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(tCtx).Error()
	if err != nil {
		return fmt.Errorf("create %s: %w", kind, err)
	}
	return nil
}

// createDevices creates a pool of devices, for all nodes or for some of them.
func createDevices(tCtx ktesting.TContext, count int) error {
	var nodes []string
	if isCase(tCtx, "SharedClaimOneNode", "SharedClaimRack") {
		var err error
		if nodes, err = labelNodes(tCtx); err != nil {
			return err
		}
	}
	const perSlice = resourceapi.ResourceSliceMaxDevices
	total := (count + perSlice - 1) / perSlice
	for i := range total {
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driverName,
				Pool:   resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: int64(total)},
			},
		}
		switch len(nodes) {
		case 0:
			slice.Spec.AllNodes = allNodes
		case 1:
			slice.Spec.NodeName = onNode(nodes[0])
		default:
			slice.Spec.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "bench", Operator: v1.NodeSelectorOpIn, Values: []string{"device"}}},
			}}}
		}
		for j := i * perSlice; j < min(count, (i+1)*perSlice); j++ {
			slice.Spec.Devices = append(slice.Spec.Devices, newDevice(fmt.Sprintf("device-%d", j)))
		}
		if _, err := resourceClient(tCtx.Client()).ResourceSlices().Create(tCtx, slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ResourceSlice: %w", err)
		}
	}
	return nil
}

// fillClaim reserves the claim for as many pods as possible.
func fillClaim(tCtx ktesting.TContext) error {
	client := tCtx.Client()
	claim, err := resourceClient(client).ResourceClaims(namespace).Get(tCtx, claimName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get claim: %w", err)
	}
	claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
	if claim, err = resourceClient(client).ResourceClaims(namespace).Update(tCtx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add finalizer: %w", err)
	}
	var refs []resourceapi.ResourceClaimConsumerReference
	for i := range resourceapi.ResourceClaimReservedForMaxSize {
		// In some other namespace, they would be dropped from the list.
		pod, err := client.CoreV1().Pods(namespace).Create(tCtx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("reserved-%d", i)},
			Spec: v1.PodSpec{
				NodeName:   fullNode,
				Containers: []v1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		refs = append(refs, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: types.UID(pod.UID)})
	}
	claim.Status = resourceapi.ResourceClaimStatus{
		ReservedFor: refs,
		Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "req", Driver: driverName, Pool: "pool", Device: "device-0",
			}}},
		},
	}
	addTimestamp(claim.Status.Allocation)
	if _, err := resourceClient(client).ResourceClaims(namespace).UpdateStatus(tCtx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("fill claim: %w", err)
	}
	return nil
}
