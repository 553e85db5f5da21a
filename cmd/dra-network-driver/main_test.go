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
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"kubernetes-dra/cmd/dra-network-driver/pkg/config"
)

const driverName = "network.dra.example.com"

// manifest returns the objects in a file. Unknown and duplicate fields are
// errors, as for kubectl.
func manifest(t *testing.T, name string) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	defer documents.Close()
	var objects []runtime.Object
	buffer := make([]byte, 64*1024)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(buffer[:n], nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects = append(objects, object)
	}
}

// TestKustomizations checks what "kubectl apply -k" makes of the folders that the documents name.
func TestKustomizations(t *testing.T) {
	const policies = "../../examples/devicestatus/node-policy"
	for dir, want := range map[string]map[string]int{
		"deploy":            {"kind: DaemonSet": 1, "kind: ValidatingAdmissionPolicy\n": 3, "- Deny\n": 3, "imagePullPolicy": 0},
		"deploy-kind":       {"kind: DaemonSet": 1, "kind: ValidatingAdmissionPolicy\n": 3, "- Deny\n": 3, "imagePullPolicy: Never\n": 1},
		policies:            {"kind: ValidatingAdmissionPolicy\n": 2, "- Deny\n": 2},
		policies + "-audit": {"kind: ValidatingAdmissionPolicy\n": 2, "- Deny\n": 0, "- Audit\n": 2, "- Warn\n": 2},
	} {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		text, err := objects.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		for part, n := range want {
			if got := strings.Count(string(text), part); got != n {
				t.Errorf("%s: %q is there %d times, want %d", dir, part, got, n)
			}
		}
	}
}

// TestDeploy checks that the manifests of the driver are complete, and that the
// driver has the flags which they use.
func TestDeploy(t *testing.T) {
	kinds := make(map[string]int)
	for _, object := range manifest(t, "deploy/driver.yaml") {
		kinds[object.GetObjectKind().GroupVersionKind().Kind]++
		switch object := object.(type) {
		case *appsv1.DaemonSet:
			source, err := os.ReadFile("main.go")
			if err != nil {
				t.Fatal(err)
			}
			// Nothing that belongs to other drivers, nor to the node's own network.
			for _, volume := range object.Spec.Template.Spec.Volumes {
				for _, shared := range []string{"/var/lib/kubelet/plugins", "/var/lib/cni"} {
					if path := filepath.Clean(volume.HostPath.Path); path == shared || strings.HasPrefix(shared, path+"/") {
						t.Errorf("the driver gets all of %s", path)
					}
				}
			}
			for _, arg := range object.Spec.Template.Spec.Containers[0].Args {
				name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				if name != "v" && !bytes.Contains(source, []byte(`"`+name+`"`)) {
					t.Errorf("the driver has no flag --%s", name)
				}
			}
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			// Whoever takes another namespace must not lose the policy.
			expression := object.Spec.MatchConditions[0].Expression
			pattern := regexp.MustCompile(`matches\("(.*)"\)`).FindStringSubmatch(expression)
			if pattern == nil {
				t.Fatalf("no pattern in %s", expression)
			}
			for user, want := range map[string]bool{
				"system:serviceaccount:dra-network:dra-network-driver": true,
				"system:serviceaccount:other:dra-network-driver":       true,
				"system:serviceaccount:other:default":                  false,
				"dra-network-driver":                                   false,
			} {
				if got := regexp.MustCompile(pattern[1]).MatchString(user); got != want {
					t.Errorf("%s: the policy for events matches: %v, want %v", user, got, want)
				}
			}
		case *rbacv1.ClusterRole:
			// The contract of upstream 1.36: nothing wider than the own
			// driver and the own node.
			i := slices.IndexFunc(object.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.Resources, "resourceclaims/driver")
			})
			if i < 0 {
				t.Fatal("the role does not have resourceclaims/driver")
			}
			rule := object.Rules[i]
			if !slices.Equal(rule.ResourceNames, []string{driverName}) || !slices.Equal(rule.Verbs, []string{"associated-node:update", "associated-node:patch"}) {
				t.Errorf("rule %+v", rule)
			}
			// And that of the policies, which look at nobody who may everything.
			if !slices.ContainsFunc(object.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Equal(rule.Resources, []string{"resourceslices"}) && slices.Equal(rule.Verbs, []string{"associated-node"})
			}) {
				t.Errorf("the role is not for the policies: %+v", object.Rules)
			}
			for _, rule := range object.Rules {
				if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Verbs, "arbitrary-node") {
					t.Errorf("rule %+v", rule)
				}
			}
		}
	}
	want := map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "DaemonSet": 1,
		// For Events.
		"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("want objects of the kinds %v, got %v", want, kinds)
	}
}

// TestExamples takes the parameters in the examples through the driver's own
// checks.
func TestExamples(t *testing.T) {
	for version, name := range map[string]string{"v1": "pods.yaml", "v1beta1": "pods-v1beta1.yaml"} {
		t.Run(version, func(t *testing.T) {
			allocation := &resourceapi.AllocationResult{}
			result := resourceapi.DeviceRequestAllocationResult{Request: "network", Driver: driverName, Pool: "node", Device: "net-0"}
			add := func(source resourceapi.AllocationConfigSource, requests []string, driver string, parameters runtime.RawExtension) {
				allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
					Source:   source,
					Requests: requests,
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: driver, Parameters: parameters,
					}},
				})
			}
			for _, object := range manifest(t, filepath.Join("../../examples/network", name)) {
				switch object := object.(type) {
				case *resourceapi.DeviceClass:
					add(resourceapi.AllocationConfigSourceClass, nil, object.Spec.Config[0].Opaque.Driver, object.Spec.Config[0].Opaque.Parameters)
				case *resourcev1beta1.DeviceClass:
					add(resourceapi.AllocationConfigSourceClass, nil, object.Spec.Config[0].Opaque.Driver, object.Spec.Config[0].Opaque.Parameters)
				case *resourceapi.ResourceClaimTemplate:
					c := object.Spec.Spec.Devices.Config[0]
					add(resourceapi.AllocationConfigSourceClaim, c.Requests, c.Opaque.Driver, c.Opaque.Parameters)
				case *resourcev1beta1.ResourceClaimTemplate:
					c := object.Spec.Spec.Devices.Config[0]
					add(resourceapi.AllocationConfigSourceClaim, c.Requests, c.Opaque.Driver, c.Opaque.Parameters)
				}
			}
			if len(allocation.Devices.Config) != 2 {
				t.Fatalf("configurations: %+v", allocation.Devices.Config)
			}
			source := config.Source{Driver: driverName, Dir: t.TempDir()}
			allocation.Devices.Results = append(allocation.Devices.Results, result)
			device, err := source.ForResult(allocation, result)
			if err != nil {
				t.Fatal(err)
			}
			list, err := config.ParseNetwork(device.Network)
			if err != nil || list.Name != "storage" || device.InterfaceName != "storage" {
				t.Errorf("device %+v, list %+v, error %v", device, list, err)
			}
			if _, err := config.Decode(allocation.Devices.Config[1].Opaque.Parameters.Raw, field.NewPath("parameters")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestResources(t *testing.T) {
	devices := resources("node", resourceapi.ResourceSliceMaxDevices).Pools["node"].Slices[0].Devices
	if len(devices) != 128 || devices[0].Name != "net-0" || devices[127].Name != "net-127" {
		t.Errorf("%d devices, first %+v", len(devices), devices[0])
	}
}

func TestOptions(t *testing.T) {
	for expected, o := range map[string]options{
		"--node-name or the environment variable NODE_NAME must be set": {},
		"--devices: -1 is not in the range from 0 to 128":               {nodeName: "node", devices: -1},
		"--devices: 129 is not in the range from 0 to 128":              {nodeName: "node", devices: 129},
	} {
		o.kubeconfig = "/does/not/exist"
		if err := run(t.Context(), o); err == nil || err.Error() != expected {
			t.Errorf("error %v, want %s", err, expected)
		}
	}
}

// TestOneProcess checks that a second process touches nothing, and goes on once the first one has ended.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = run(ctx, options{nodeName: "node", kubeconfig: "/does/not/exist", dataDir: dir, cdiDir: dir})
	if want := "another process of the driver works on " + dir; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	done := make(chan error, 1)
	go func() {
		unlockSecond, err := lock(t.Context(), dir)
		if err == nil {
			unlockSecond()
		}
		done <- err
	}()
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestIsNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leftover")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, expected := range map[string]bool{"/proc/self/ns/net": true, file: false, file + "2": false, "": false} {
		if got := isNamespace(path); got != expected {
			t.Errorf("%q: %v", path, got)
		}
	}
}
