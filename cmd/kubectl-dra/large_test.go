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

package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/doctor"
	"kubernetes-dra/cmd/kubectl-dra/pkg/fakeapi"
)

// asProgram makes the test binary the program itself, so that a benchmark can measure a process of its own.
const asProgram = "KUBECTL_DRA_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		// What getrusage says about memory was inherited from whoever started this process.
		status, err := os.ReadFile("/proc/self/status")
		if err == nil {
			fmt.Fprintln(os.Stderr, peak.FindString(string(status)))
		}
		return
	}
	doctor.SecondLook = 10 * time.Millisecond
	os.Exit(m.Run())
}

var peak = regexp.MustCompile(`VmHWM:\s+\d+`)

const (
	largeNodes, largePods, largeClaims = 5_000, 50_000, 10_000
	largeNamespaces                    = 100
)

// largeCluster has encoded lists by their paths, as the cache of an API server has.
func largeCluster(b *testing.B) map[string][]byte {
	claims, slices, nodes := &resourcev1.ResourceClaimList{}, &resourcev1.ResourceSliceList{}, &corev1.NodeList{}
	pods, names := map[string]*corev1.PodList{}, &metav1.PartialObjectMetadataList{}
	created := metav1.NewTime(time.Now().Add(-time.Hour))
	// What the API server notes about writers is the larger half of small objects.
	fields := []metav1.ManagedFieldsEntry{{
		Manager: "kube-scheduler", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "resource.k8s.io/v1", Time: &created, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:allocation":{".":{},"f:devices":{".":{},"f:results":{}},"f:nodeSelector":{}},"f:reservedFor":{".":{},"k:{\"uid\":\"x\"}":{}}}}`)},
	}}
	for i := range largeNodes {
		node := fmt.Sprintf("node-%04d", i)
		nodes.Items = append(nodes.Items, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node), CreationTimestamp: created, Labels: map[string]string{"kubernetes.io/hostname": node}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		slice := resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("slice-" + node), CreationTimestamp: created, ManagedFields: fields},
			Spec:       resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}},
		}
		for d := range 4 {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
				Name:       fmt.Sprintf("gpu-%d", d),
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: ptr.To("a")}, "uuid": {StringValue: ptr.To(node)}},
			})
		}
		slices.Items = append(slices.Items, slice)
	}
	for i := range largePods {
		namespace := fmt.Sprintf("team-%02d", i%largeNamespaces)
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Namespace: namespace, UID: types.UID(fmt.Sprintf("pod-%05d", i)), CreationTimestamp: created, ManagedFields: fields},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%04d", i%largeNodes), Containers: []corev1.Container{{Name: "main", Image: "registry/image:tag"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if i < largeClaims {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(fmt.Sprintf("claim-%05d", i))}}
			claims.Items = append(claims.Items, resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%05d", i), Namespace: namespace, UID: types.UID(fmt.Sprintf("claim-%05d", i)), CreationTimestamp: created, ManagedFields: fields},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
					Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
				}}}},
				Status: resourcev1.ResourceClaimStatus{
					ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
					Allocation: &resourcev1.AllocationResult{AllocationTimestamp: &created, Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
						Request: "gpu", Driver: "gpu.example.com", Pool: pod.Spec.NodeName, Device: fmt.Sprintf("gpu-%d", i/largeNodes),
					}}}},
				},
			})
		}
		if pods[namespace] == nil {
			pods[namespace] = &corev1.PodList{}
		}
		pods[namespace].Items = append(pods[namespace].Items, pod)
		names.Items = append(names.Items, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
	}
	// One pod waits: no node has five devices.
	claims.Items = append(claims.Items, resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "team-00", UID: "large", CreationTimestamp: created},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 5},
		}}}},
	})
	pods["team-00"].Items = append(pods["team-00"].Items, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "team-00", UID: "large-pod", CreationTimestamp: created},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("large")}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	})
	class := resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}},
	}}
	if err := metav1.AddMetaToScheme(scheme.Scheme); err != nil {
		b.Fatal(err)
	}
	encode := func(o runtime.Object) []byte {
		gvks, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			b.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		var buffer bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &buffer); err != nil {
			b.Fatal(err)
		}
		return buffer.Bytes()
	}
	const api = "/apis/resource.k8s.io/v1/"
	bodies := map[string][]byte{
		api + "resourceclaims": encode(claims), api + "resourceslices": encode(slices), "/api/v1/nodes": encode(nodes), "/api/v1/pods names": encode(names),
		"/api/v1/namespaces/team-00/pods": encode(pods["team-00"]), api + "deviceclasses": encode(&resourcev1.DeviceClassList{Items: []resourcev1.DeviceClass{class}}),
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": encode(&rbacv1.ClusterRoleList{}),
	}
	own := &resourcev1.ResourceClaimList{}
	for _, c := range claims.Items {
		if c.Namespace == "team-00" {
			own.Items = append(own.Items, c)
		}
	}
	bodies[api+"namespaces/team-00/resourceclaims"] = encode(own)
	return bodies
}

// serve answers with these bodies.
func serve(b *testing.B, bodies map[string][]byte) *fakeapi.Server {
	server := fakeapi.New(b, "v1")
	server.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		path := r.URL.Path
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			path += " names"
		}
		body, found := bodies[path]
		if found && strings.Contains(r.Header.Get("Accept"), "protobuf") {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(body)
		}
		return found && strings.Contains(r.Header.Get("Accept"), "protobuf")
	}
	return server
}

// BenchmarkLarge measures a process for each verb, in a cluster with 10,000 claims, 50,000 pods and 5,000 nodes.
func BenchmarkLarge(b *testing.B) {
	bodies := largeCluster(b)
	all := serve(b, maps.Clone(bodies))
	// A user who may see one namespace, and nothing that has none.
	maps.DeleteFunc(bodies, func(path string, _ []byte) bool { return !strings.Contains(path, "/namespaces/team-00/") })
	tenant := serve(b, bodies)
	tenant.Forbidden = []string{"resourceclaims in other namespaces", "pods in other namespaces", "resourceslices", "nodes", "deviceclasses", "clusterroles"}
	home := b.TempDir()
	for _, run := range []struct {
		name   string
		server *fakeapi.Server
		verb   []string
	}{
		{"who", all, []string{"who"}},
		{"doctor", all, []string{"doctor"}},
		{"why", all, []string{"why", "large", "--namespace=team-00"}},
		{"who of a tenant", tenant, []string{"who", "--namespace=team-00"}},
	} {
		b.Run(run.name, func(b *testing.B) {
			var memory int
			var cpu time.Duration
			var out []byte
			for b.Loop() {
				command := exec.CommandContext(b.Context(), os.Args[0], append(run.verb, "--server="+run.server.URL)...)
				command.Env = []string{asProgram + "=true", "HOME=" + home, "KUBECONFIG=/dev/null"}
				var err error
				if out, err = command.CombinedOutput(); err != nil {
					b.Fatalf("%v: %.1000s", err, out)
				}
				if kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(peak.FindString(string(out)), "VmHWM:"))); err == nil {
					memory = max(memory, kib)
				}
				cpu += command.ProcessState.UserTime() + command.ProcessState.SystemTime()
			}
			b.ReportMetric(float64(memory)/1024, "MiB")
			b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s/op")
			b.Logf("%.600s", out)
		})
	}
}
