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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"kubernetes-dra/cmd/dra-driver-check/pkg/command"
	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tools"
)

// exampleDriver is upstream's, as hack/tools pins it.
const exampleDriver = "gpu.example.com"

// checkedPods is what fits on a machine that does other things, too.
const checkedPods = 20

// manyPods is more than upstream lets share a claim, and what dra-driver-check asks for by default.
const manyPods = 300

// TestDriverCheck runs dra-driver-check as a driver's author does, against the test driver, upstream's
// example driver, ours for networks, and one that looks for pods where there are none. What is
// skipped, and what fails, is in docs/drivers.md.
func TestDriverCheck(t *testing.T) {
	if os.Getenv("DRIVER_CHECK") != "true" {
		t.Skip("it takes as long as all others together: make test-drivers")
	}
	onRealNode(t)
	const probe = `--probe=[ -n "$DRA_CLAIM" ]`
	testDriver := func(t *testing.T, name string, args ...string) *env {
		e := newEnv(t)
		e.deployDriver(name, append([]string{shared.Own("driver"), "--driver-name=" + name, "--node-name=" + cluster.RealNode, "--devices=8",
			"--data-dir=/var/lib/kubelet/plugins/" + name, "--cdi-dir=/run/cdi", "--ready-file=/tmp/ready"}, args...), "test -e /tmp/ready")
		return e
	}
	exampleDriverEnv := func(t *testing.T) *env {
		e := newEnv(t)
		if err := tools.Build(e.ctx, repo, []string{"dra-example-driver"}, t.Logf); err != nil {
			t.Fatal(err)
		}
		e.deployDriver(exampleDriver, []string{
			filepath.Join(tools.Dir(repo), "dra-example-kubeletplugin"), "--node-name=" + cluster.RealNode, "--cdi-root=/run/cdi",
		}, "true")
		t.Cleanup(func() {
			// It has one for all claims, which it leaves.
			if _, err := shared.RunInNode(context.Background(), "sh", "-c", "rm -f /run/cdi/k8s."+exampleDriver+"-*"); err != nil {
				t.Log(err)
			}
		})
		return e
	}
	const exampleProbe = "--probe=env | grep GPU_DEVICE_"

	// Alone on the node, before those that run at the same time.
	many := []string{"--pods=" + strconv.Itoa(manyPods), "--only=workload,workload-turns"}
	sawMany := func(t *testing.T, notes string) {
		t.Helper()
		if want := strconv.Itoa(manyPods) + " pods on node"; !strings.Contains(notes, want) {
			t.Errorf("want %s, got %s", want, notes)
		}
	}
	t.Run("test-driver-many-pods", func(t *testing.T) {
		const driver = "many.example.com"
		sawMany(t, testDriver(t, driver).driverCheck(driver, map[string]string{}, append(many, probe)...))
	})
	t.Run("example-driver-many-pods", func(t *testing.T) {
		sawMany(t, exampleDriverEnv(t).driverCheck(exampleDriver, map[string]string{}, append(many, exampleProbe)...))
	})

	t.Run("test-driver", func(t *testing.T) {
		t.Parallel()
		const driver = "good.example.com"
		testDriver(t, driver).driverCheck(driver, map[string]string{"exclusive": "skip", "status": "skip"}, probe)
	})
	// Drivers that look for pods in the list refuse a claim without any, or do nothing and report success.
	for _, does := range []string{"refuse", "ignore"} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			driver := does + ".example.com"
			testDriver(t, driver, "--without-pod="+does).driverCheck(driver,
				map[string]string{"workload": "fail", "workload-turns": "fail", "custom-consumer": "fail"}, probe,
				"--patience=1m", "--only=slices,access,pod,generated,two-claims,shared,workload,workload-turns,custom-consumer,mixed-consumers")
		})
	}

	t.Run("example-driver", func(t *testing.T) {
		t.Parallel()
		exampleDriverEnv(t).driverCheck(exampleDriver, map[string]string{"exclusive": "skip", "status": "skip"},
			exampleProbe,
			// It has no readiness probe, so it depends on who is faster.
			"--skip=ready")
	})

	t.Run("network-driver", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		e.deployNetworkDriver()
		manifest, err := shared.NetworkExample(e.Version)
		if err != nil {
			t.Fatal(err)
		}
		e.kubectlApply(e.replace(manifest, "replicas: 2", "replicas: 0"), "--namespace="+e.namespace)
		t.Cleanup(func() { e.kubectlDelete(manifest, "--namespace="+e.namespace) })
		e.checkDriver(cluster.NetworkDriverName, "storage-network", cluster.NetworkNamespace+"/app="+cluster.NetworkDaemonSet, cluster.NetworkNamespace+"/"+cluster.NetworkDaemonSet,
			map[string]string{"shared": "skip", "workload": "skip"}, "--exclusive", "--probe=ip link show net1")
		e.nothingIsLeft("storage")
	})
}

// deployDriver runs a driver in pods that have its program from this machine, until the end of the test.
func (e *env) deployDriver(name string, command []string, ready string) {
	e.Helper()
	quoted, err := json.Marshal(command)
	if err != nil {
		e.Fatal(err)
	}
	object := func(resource, spec string) string {
		return fmt.Sprintf("apiVersion: %s\nmetadata: {name: %s, namespace: %s}\n%s---\n", resource, e.namespace, e.namespace, spec)
	}
	manifest := object("v1\nkind: ServiceAccount", "") +
		object("rbac.authorization.k8s.io/v1\nkind: ClusterRole", `rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, patch, delete]}
`) +
		object("rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding", fmt.Sprintf(`roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[1]s}]
`, e.namespace)) +
		object("apps/v1\nkind: DaemonSet", fmt.Sprintf(`spec:
  selector: {matchLabels: {app: driver}}
  template:
    metadata: {labels: {app: driver}}
    spec:
      serviceAccountName: %s
      hostNetwork: true
      terminationGracePeriodSeconds: 5
      nodeSelector: {%s: real}
      containers:
      - name: driver
        image: %s
        imagePullPolicy: IfNotPresent
        command: %s
        env:
        - {name: NODE_NAME, value: %s}
        - {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
        - {name: KUBERNETES_SERVICE_PORT, value: %q}
        securityContext: {privileged: true}
        readinessProbe: {exec: {command: [sh, -c, %q]}, periodSeconds: 1}
        volumeMounts:
        - {name: program, mountPath: %[8]s, readOnly: true}
        - {name: plugins, mountPath: /var/lib/kubelet/plugins}
        - {name: registry, mountPath: /var/lib/kubelet/plugins_registry}
        - {name: cdi, mountPath: /run/cdi}
      volumes:
      - {name: program, hostPath: {path: %[8]s}}
      - {name: plugins, hostPath: {path: /var/lib/kubelet/plugins}}
      - {name: registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}
      - {name: cdi, hostPath: {path: /run/cdi}}
`, e.namespace, cluster.TypeLabel, cluster.ShellImage, quoted, cluster.RealNode, strconv.Itoa(shared.Ports[cluster.APIServer]), ready, filepath.Dir(command[0])))
	e.kubectlApply(manifest)
	e.Cleanup(func() {
		if e.Failed() {
			e.explainWith(e.namespace, []string{"get", "pods", "-o", "wide"}, []string{"logs", "daemonset/" + e.namespace, "--tail=1000"})
		}
		e.kubectlDelete(manifest)
		e.kubectlDeleteNames("deviceclasses", name)
		e.kubectlDeleteNames("resourceslices", "--field-selector=spec.driver="+name)
	})
	if err := e.Replace(e.ctx, "deviceclasses", e.DeviceClass(name, name)); err != nil {
		e.Fatal(err)
	}
	e.eventually("driver "+name+" has published its devices", func() error {
		list, err := e.Dynamic.Resource(e.Resource("resourceslices")).List(e.ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + name})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("it has not")
		}
		return err
	})
}

// driverCheck is for a driver that deployDriver has started.
func (e *env) driverCheck(driver string, other map[string]string, args ...string) (notes string) {
	e.Helper()
	return e.checkDriver(driver, driver, e.namespace+"/app=driver", e.namespace+"/"+e.namespace, other, args...)
}

// checkDriver runs the program, and returns what the checks note. All have to pass, but for those with another verdict.
func (e *env) checkDriver(driver, class, selector, account string, other map[string]string, args ...string) (notes string) {
	e.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command.New(genericiooptions.IOStreams{Out: &stdout, ErrOut: io.MultiWriter(&stderr, e.Output())})
	cmd.SetArgs(append([]string{"--kubeconfig=" + shared.Kubeconfig(), "--driver=" + driver, "--device-class=" + class, "--driver-selector=" + selector,
		"--service-account=" + account, "--image=" + cluster.ShellImage, "--pods=" + strconv.Itoa(checkedPods), "--patience=5m", "--output=json"}, args...))
	err := cmd.ExecuteContext(e.ctx)
	var report struct {
		Results []struct {
			Check, Verdict, Reason, Do string
			Seconds                    float64
			Notes, Seen                []string
		}
	}
	parseJSON(e.T, stdout.String(), &report)
	got, failed := map[string]string{}, 0
	for _, r := range report.Results {
		notes += strings.Join(r.Notes, "\n") + "\n"
		e.Logf("%s: %s, %.1f s. %s %s", r.Check, r.Verdict, r.Seconds, r.Reason, strings.Join(r.Notes, "; "))
		if r.Verdict != "pass" {
			got[r.Check] = r.Verdict
		}
		if r.Verdict == "fail" {
			failed++
			e.Logf("  %s\n  %s", strings.Join(r.Seen, "\n  "), r.Do)
		}
	}
	if !maps.Equal(got, other) {
		e.Errorf("want these other verdicts than pass: %v\ngot %v\n%s", other, got, stderr.String())
	}
	if want := min(failed, 1); command.ExitCode(err) != want {
		e.Errorf("want exit code %d, got %v", want, err)
	}
	_, namespace, _ := strings.Cut(stderr.String(), "namespace: ")
	namespace, _, _ = strings.Cut(namespace, "\n")
	if _, err := e.CoreV1().Namespaces().Get(e.ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		e.Errorf("want nothing to be left of namespace %q, got %v", namespace, err)
	}
	if len(got) >= len(report.Results) {
		e.Error("no check has passed")
	}
	return notes
}
