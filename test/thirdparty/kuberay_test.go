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
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var rayJobs = schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayjobs"}

// kubeRayController is KubeRay's operator. It asks Ray about jobs at a Service of the cluster, through an
// HTTP proxy.
func kubeRayController(proxy string) controller {
	return controller{
		name:      "ray-operator",
		module:    "github.com/ray-project/kuberay/ray-operator",
		namespace: metav1.NamespaceDefault,
		account:   "kuberay-operator",
		args:      []string{"--enable-leader-election=false", "--metrics-addr=0", "--health-probe-bind-address=HEALTH"},
		env:       []string{"HTTP_PROXY=" + proxy},
	}
}

// dashboards answer for that of Ray in each RayCluster: no Ray runs on simulated nodes.
type dashboards struct {
	sync.Mutex
	// jobs have the status of the Ray job in a RayCluster, for those that do not run any more.
	jobs map[string]string
}

func newDashboards(t *testing.T) (d *dashboards, url string) {
	t.Helper()
	d = &dashboards{jobs: map[string]string{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return d, server.URL
}

// ServeHTTP says what has become of a Ray job, whatever is asked.
func (d *dashboards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.Lock()
	defer d.Unlock()
	rayCluster, _, _ := strings.Cut(r.Host, "-head-svc")
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status": %q}`, cmp.Or(d.jobs[rayCluster], "RUNNING"))
}

func (d *dashboards) end(rayCluster, status string) {
	d.Lock()
	defer d.Unlock()
	d.jobs[rayCluster] = status
}

// TestRayJob covers a claim that is generated for each RayJob. Its pods have it through their RayCluster, and so
// have those of each RayCluster that comes after it. There are two devices.
func TestRayJob(t *testing.T) {
	rays, proxy := newDashboards(t)
	e := newEnv(t, kubeRayController(proxy))
	e.devices(2)
	e.apply(example("raycluster-role.yaml"))
	e.apply(example("rayjob-role.yaml"))
	e.apply("testdata/rayjob.yaml", "one", "two")
	claims := e.groups(2, 3, jobOf)
	e.ownedBy(claims, "RayJob", rayJobs.Resource)
	e.showClaims()

	// Suspended is not finished.
	first := e.rayJobIs("one", "Running")
	e.kubectl("patch", "rayjob", "one", "--type=merge", `--patch={"spec":{"suspend":true}}`)
	e.rayJobIs("one", "Suspended")
	e.pods("job=one", 0)
	e.held(claims["one"].Name)
	e.kubectl("patch", "rayjob", "one", "--type=merge", `--patch={"spec":{"suspend":false}}`)
	e.same(claims, e.groups(2, 3, jobOf))

	// After a failure it is tried again.
	second := e.rayJobIs("one", "Running", first)
	rays.end(second, "FAILED")
	third := e.rayJobIs("one", "Running", first, second)
	e.same(claims, e.groups(2, 3, jobOf))

	// The next one gets the device of one that is done, although the two exist.
	e.apply("testdata/rayjob.yaml", "three")
	e.eventually("RayJob three waits for devices", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, "job=three")
		if err == nil && (n.All == 0 || n.Bound > 0 || n.Waiting == "") {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	rays.end(e.rayJobIs("two", "Running"), "SUCCEEDED")
	e.rayJobIs("two", "Complete")
	e.pods("job=two", 0)
	e.free(claims["two"].Name)
	e.pods("job=three", 3)
	rays.end(third, "FAILED")
	e.rayJobIs("one", "Failed")
	e.free(claims["one"].Name)

	e.kubectl("delete", "rayjobs", "--all")
	e.noClaims()
}

// rayJobIs waits until a RayJob has a status, with a RayCluster that is none of those that it had before, and
// returns the name of that.
func (e *env) rayJobIs(name, want string, before ...string) (rayCluster string) {
	e.Helper()
	e.eventually("RayJob "+name+" is "+want, func() error {
		object, err := e.Dynamic.Resource(rayJobs).Namespace(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _, _ := unstructured.NestedString(object.Object, "status", "jobDeploymentStatus")
		rayCluster, _, _ = unstructured.NestedString(object.Object, "status", "rayClusterName")
		if status != want || slices.Contains(before, rayCluster) {
			return fmt.Errorf("it is %s, with RayCluster %q", status, rayCluster)
		}
		return nil
	})
	return rayCluster
}
