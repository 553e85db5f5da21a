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
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeschedulerconfigv1 "k8s.io/kube-scheduler/config/v1"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	kubeschedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/kubernetes/test/integration/util"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

const (
	driverName = "reservedfor.example.com"
	className  = "reservedfor"

	numNodes = 4

	// timeout is for everything that is expected to happen. Generous because
	// nothing gets proved by it: it only ends a test that hangs.
	timeout = 10 * time.Minute

	// quiet is how long something that must not happen is waited for. It has to be
	// longer than the pause of the controller between releasing a claim and
	// deallocating it.
	quiet = 8 * time.Second

	// podGCPeriod is how often pods without node are looked for, and how long a node
	// must be gone. In a real cluster that takes longer.
	podGCPeriod = time.Second
)

var (
	jobs         = schema.GroupResource{Group: "batch", Resource: "jobs"}
	deployments  = schema.GroupResource{Group: "apps", Resource: "deployments"}
	statefulsets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	replicasets  = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	podsResource = schema.GroupResource{Resource: "pods"}
)

// setGate turns the feature on or off until the end of the test. It can be
// called again to change the value while the API server runs, which then
// behaves as if it had been restarted with the new value.
func setGate(tCtx ktesting.TContext, enabled bool) {
	tCtx.Helper()
	if !utilfeature.DefaultFeatureGate.Enabled(features.DynamicResourceAllocation) {
		// Off by default in old releases.
		featuregatetesting.SetFeatureGateDuringTest(tCtx, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
	}
	featuregatetesting.SetFeatureGateDuringTest(tCtx, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
}

// cluster is an API server with some other components.
type cluster struct {
	ktesting.TContext
	admin *rest.Config

	scheduler  *component
	controller *component
	agent      *nodeAgent
	holds      *holds
}

// startAPIServer starts an API server which serves all versions of the API and
// authorizes with RBAC.
func startAPIServer(tCtx ktesting.TContext) *cluster {
	tCtx.Helper()
	c, _ := startAPIServerWithEtcd(tCtx)
	return c
}

// startAPIServerWithEtcd also gives access to what is stored.
func startAPIServerWithEtcd(tCtx ktesting.TContext) (*cluster, etcdReader) {
	tCtx.Helper()
	var served []string
	for _, version := range versions {
		served = append(served, resourceapi.GroupName+"/"+version+"=true")
	}
	flags := append(framework.DefaultTestServerFlags(), "--authorization-mode=RBAC", "--runtime-config="+strings.Join(served, ","))
	server, err := kubeapiservertesting.StartTestServer(withoutCancel(tCtx), kubeapiservertesting.NewDefaultTestServerOptions(), flags, framework.SharedEtcd())
	if err != nil {
		// The time it may take is fixed. It is not enough on a machine which is
		// busy with something else.
		tCtx.Logf("Starting the apiserver once more: %v", err)
		server, err = kubeapiservertesting.StartTestServer(withoutCancel(tCtx), kubeapiservertesting.NewDefaultTestServerOptions(), flags, framework.SharedEtcd())
	}
	tCtx.ExpectNoError(err, "start apiserver")
	tCtx.Cleanup(server.TearDownFn)
	return &cluster{TContext: withRESTConfig(tCtx, server.ClientConfig), admin: server.ClientConfig, holds: newHolds()}, etcdReader{server}
}

// startCluster starts everything with the feature gate on.
func startCluster(tCtx ktesting.TContext) *cluster {
	tCtx.Helper()
	setGate(tCtx, true)
	c := startAPIServer(tCtx)
	c.createNodes()
	c.agent = startNodeAgent(c.TContext)
	c.startWorkloadControllers()
	c.scheduler = c.newScheduler()
	c.controller = c.newClaimController()
	c.scheduler.start()
	c.controller.start()
	return c
}

// withTest returns the same cluster for a sub-test.
func (c *cluster) withTest(tCtx ktesting.TContext) *cluster {
	copied := *c
	copied.TContext = withRESTConfig(tCtx, c.admin)
	return &copied
}

func (c *cluster) createNodes() {
	c.Helper()
	for i := range numNodes {
		c.createNode(fmt.Sprintf("worker-%d", i))
	}
}

func (c *cluster) createNode(name string) {
	c.Helper()
	node, err := c.Client().CoreV1().Nodes().Create(c, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create node")
	node.Status = v1.NodeStatus{
		Capacity: v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("1000"),
			v1.ResourceMemory: resource.MustParse("1Ti"),
			v1.ResourcePods:   resource.MustParse("5000"),
		},
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
	}
	node, err = c.Client().CoreV1().Nodes().UpdateStatus(c, node, metav1.UpdateOptions{})
	c.ExpectNoError(err, "update node status")
	// Added by the TaintNodesByCondition admission plugin.
	node.Spec.Taints = nil
	_, err = c.Client().CoreV1().Nodes().Update(c, node, metav1.UpdateOptions{})
	c.ExpectNoError(err, "remove node taint")
}

// component is something that can be restarted.
type component struct {
	tCtx ktesting.TContext
	// faults can be used to interfere with the component's API calls.
	faults *faults
	run    func(tCtx ktesting.TContext, config *rest.Config) (stop func())
	// qps limits what the component may send, if it is not zero, and wrap stands between its client
	// and the API server. Both have to be set before the start.
	qps  int
	wrap func(next http.RoundTripper) http.RoundTripper

	mutex sync.Mutex
	stopf func()
}

func newComponent(c *cluster, user string, groups []string, run func(tCtx ktesting.TContext, config *rest.Config) func()) *component {
	comp := &component{tCtx: c.TContext, faults: newFaults(), run: func(tCtx ktesting.TContext, config *rest.Config) func() {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
		return run(tCtx, config)
	}}
	c.Cleanup(comp.stop)
	return comp
}

func (comp *component) start() {
	comp.tCtx.Helper()
	comp.mutex.Lock()
	defer comp.mutex.Unlock()
	if comp.stopf != nil {
		return
	}
	config := rest.CopyConfig(comp.tCtx.RESTConfig())
	config.QPS = float32(cmp.Or(comp.qps, 1000))
	config.Burst = cmp.Or(comp.qps, 1000)
	config.Wrap(comp.faults.wrap)
	if comp.wrap != nil {
		config.Wrap(comp.wrap)
	}
	comp.stopf = comp.run(comp.tCtx, config)
}

func (comp *component) stop() {
	comp.mutex.Lock()
	defer comp.mutex.Unlock()
	if comp.stopf == nil {
		return
	}
	comp.faults.reset()
	comp.stopf()
	comp.stopf = nil
}

func (comp *component) restart() {
	comp.stop()
	comp.start()
}

// newScheduler prepares the scheduler with its default configuration and the
// permissions of the real one.
func (c *cluster) newScheduler() *component {
	return newComponent(c, "system:kube-scheduler", nil, func(tCtx ktesting.TContext, config *rest.Config) func() {
		tCtx = forComponent(tCtx, "scheduler", config)
		gvk := kubeschedulerconfigv1.SchemeGroupVersion.WithKind("KubeSchedulerConfiguration")
		cfg := &schedulerconfig.KubeSchedulerConfiguration{}
		_, _, err := kubeschedulerscheme.Codecs.UniversalDecoder().Decode(nil, &gvk, cfg)
		tCtx.ExpectNoError(err, "decode default scheduler configuration")
		enableHoldPlugin(cfg)
		informerFactory := startScheduler(tCtx, cfg, newRegistry(c.holds))
		return func() {
			tCtx.Cancel("stopping the scheduler")
			informerFactory.Shutdown()
		}
	})
}

// newClaimController prepares the resourceclaim controller with the permissions
// that it has when it runs as its own service account.
func (c *cluster) newClaimController() *component {
	return newComponent(c, "system:serviceaccount:kube-system:resource-claim-controller",
		[]string{"system:serviceaccounts", "system:serviceaccounts:kube-system"},
		func(tCtx ktesting.TContext, config *rest.Config) func() {
			tCtx = forComponent(tCtx, "claimController", config)
			// Informers are shared between controllers, so they use the identity
			// of kube-controller-manager.
			shared := rest.CopyConfig(config)
			shared.Impersonate = rest.ImpersonationConfig{UserName: "system:kube-controller-manager", Groups: []string{"system:authenticated"}}
			informerFactory := informers.NewSharedInformerFactory(withRESTConfig(tCtx, shared).Client(), 0)
			run := createClaimController(tCtx, informerFactory)
			informerFactory.Start(tCtx.Done())
			var wg sync.WaitGroup
			inBackground(&wg, run)
			return func() {
				tCtx.Cancel("stopping the resourceclaim controller")
				wg.Wait()
				informerFactory.Shutdown()
			}
		})
}

// startWorkloadControllers starts what kube-controller-manager runs for the
// workloads in these tests, including the garbage collector.
func (c *cluster) startWorkloadControllers() {
	c.Helper()
	config := rest.CopyConfig(c.admin)
	config.QPS = 1000
	config.Burst = 1000
	tCtx := forComponent(c.TContext, "workloads", config)
	client := tCtx.Client()
	f := informers.NewSharedInformerFactory(client, 0)
	jobController, err := newJobController(tCtx, f)
	tCtx.ExpectNoError(err, "create Job controller")
	deploymentController, err := deployment.NewDeploymentController(tCtx, f.Apps().V1().Deployments(), f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client)
	tCtx.ExpectNoError(err, "create Deployment controller")
	replicaSetController := replicaset.NewReplicaSetController(tCtx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client, replicaset.BurstReplicas)
	statefulSetController := statefulset.NewStatefulSetController(tCtx, f.Core().V1().Pods(), f.Apps().V1().StatefulSets(), f.Core().V1().PersistentVolumeClaims(), f.Apps().V1().ControllerRevisions(), client)
	aggregationController := clusterroleaggregation.NewClusterRoleAggregation(f.Rbac().V1().ClusterRoles(), client.RbacV1())
	podGC := podgc.NewPodGCInternal(tCtx, client, f.Core().V1().Pods(), f.Core().V1().Nodes(), 0, podGCPeriod, podGCPeriod)
	metadataClient, err := metadata.NewForConfig(config)
	tCtx.ExpectNoError(err, "create metadata client")
	namespaceController := namespace.NewNamespaceController(tCtx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources, f.Core().V1().Namespaces(), 0, v1.FinalizerKubernetes)
	runGC := util.CreateGCController(tCtx, tCtx, *config, f)
	f.Start(tCtx.Done())
	f.WaitForCacheSync(tCtx.Done())

	var wg sync.WaitGroup
	for _, run := range []func(context.Context, int){jobController.Run, deploymentController.Run, replicaSetController.Run, statefulSetController.Run, aggregationController.Run, namespaceController.Run} {
		inBackground(&wg, func() { run(tCtx, 2) })
	}
	inBackground(&wg, func() { podGC.Run(tCtx) })
	runGC()
	c.Cleanup(func() {
		tCtx.Cancel("stopping the workload controllers")
		wg.Wait()
		f.Shutdown()
	})
}

var notName = regexp.MustCompile(`[^a-z0-9-]+`)

// createNamespace creates a namespace for the test.
func (c *cluster) createNamespace() string {
	c.Helper()
	name := strings.Trim(notName.ReplaceAllString(strings.ToLower(c.Name()), "-"), "-")
	name = strings.Trim(name[max(0, len(name)-40):], "-")
	ns, err := c.Client().CoreV1().Namespaces().Create(c, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create namespace")
	return ns.Name
}

// createDevices publishes devices which are available on all nodes. Each test
// uses its own device class, thus there are no conflicts between tests.
func (c *cluster) createDevices(class string, count int) {
	c.Helper()
	driver := class + ".driver"
	slice := newSlice(class, driver, count)
	_, err := resourceClient(c.Client()).ResourceSlices().Create(c, slice, metav1.CreateOptions{})
	c.ExpectNoError(err, "create ResourceSlice")
	_, err = resourceClient(c.Client()).DeviceClasses().Create(c, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
		}}},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create DeviceClass")
}

// reservedFor is a reference as it is written into the spec of a claim.
func reservedFor(gr schema.GroupResource, name string, uid types.UID) *resourceapi.ResourceClaimConsumerReference {
	return &resourceapi.ResourceClaimConsumerReference{APIGroup: gr.Group, Resource: gr.Resource, Name: name, UID: uid}
}

// newClaim returns a claim for one device.
func newClaim(namespace, name, class string, ref *resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: resourceapi.ResourceClaimSpec{
			Devices:     resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{newRequest("req", class)}},
			ReservedFor: (*resourceapi.ResourceClaimWorkloadReference)(ref),
		},
	}
}

func (c *cluster) createClaim(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.Helper()
	claim, err := resourceClient(c.Client()).ResourceClaims(claim.Namespace).Create(c, claim, metav1.CreateOptions{})
	c.ExpectNoError(err, "create claim")
	return claim
}

func (c *cluster) getClaim(namespace, name string) *resourceapi.ResourceClaim {
	c.Helper()
	claim, err := resourceClient(c.Client()).ResourceClaims(namespace).Get(c, name, metav1.GetOptions{})
	c.ExpectNoError(err, "get claim")
	return claim
}

// podSpec is the spec of a pod which uses the claim.
func podSpec(claimName string) v1.PodSpec {
	return v1.PodSpec{
		Containers: []v1.Container{{
			Name:      "main",
			Image:     "registry.k8s.io/pause",
			Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "shared"}}},
		}},
		ResourceClaims: []v1.PodResourceClaim{{Name: "shared", ResourceClaimName: &claimName}},
	}
}

func newPod(namespace, name, claimName string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: podSpec(claimName)}
}

func (c *cluster) createPod(pod *v1.Pod) *v1.Pod {
	c.Helper()
	pod, err := c.Client().CoreV1().Pods(pod.Namespace).Create(c, pod, metav1.CreateOptions{})
	c.ExpectNoError(err, "create pod")
	return pod
}

func (c *cluster) getPod(pod *v1.Pod) *v1.Pod {
	c.Helper()
	pod, err := c.Client().CoreV1().Pods(pod.Namespace).Get(c, pod.Name, metav1.GetOptions{})
	c.ExpectNoError(err, "get pod")
	return pod
}

func (c *cluster) forceDelete(pod *v1.Pod) {
	c.Helper()
	err := c.Client().CoreV1().Pods(pod.Namespace).Delete(c, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	// A conflict means that there is another pod of the same name already.
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.ExpectNoError(err, "force-delete pod")
	}
}

func template(labels map[string]string, claimName string, policy v1.RestartPolicy) v1.PodTemplateSpec {
	spec := podSpec(claimName)
	spec.RestartPolicy = policy
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
}

func newJob(namespace, name, claimName string, pods int32) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{
			Parallelism:  &pods,
			Completions:  &pods,
			BackoffLimit: ptr.To(int32(1000)),
			Template:     template(map[string]string{"app": name}, claimName, v1.RestartPolicyNever),
		},
	}
}

func newDeployment(namespace, name, claimName string, pods int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &pods,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template(labels, claimName, v1.RestartPolicyAlways),
		},
	}
}

func newStatefulSet(namespace, name, claimName string, pods int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &pods,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template:            template(labels, claimName, v1.RestartPolicyAlways),
		},
	}
}

func (c *cluster) createJob(obj *batchv1.Job) *batchv1.Job {
	c.Helper()
	obj, err := c.Client().BatchV1().Jobs(obj.Namespace).Create(c, obj, metav1.CreateOptions{})
	c.ExpectNoError(err, "create Job")
	return obj
}

// begin creates what most tests need: a namespace, an observer, and devices.
func (c *cluster) begin(devices int) (string, *history) {
	c.Helper()
	ns := c.createNamespace()
	h := observe(c.TContext, ns)
	c.createDevices(ns, devices)
	return ns, h
}

// createSharedClaim creates the claim of the Job in startJob, whose UID is not
// known yet.
func (c *cluster) createSharedClaim(ns string) {
	c.Helper()
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(jobs, "train", "")))
}

// startJob creates a Job and waits until its pods run and its claim is reserved. It
// returns the pods and a condition for a claim that is reserved for that Job only.
func (c *cluster) startJob(ns string, pods int32) ([]v1.Pod, func(*resourceapi.ResourceClaim) bool) {
	c.Helper()
	job := c.createJob(newJob(ns, "train", "shared", pods))
	running := c.waitForRunning(ns, "train", int(pods))
	reserved := reservedForOnly(jobs, "train", job.UID)
	c.waitForClaim(ns, "shared", "reserved for the Job", reserved)
	return running, reserved
}

// finishAll ends pods successfully.
func (c *cluster) finishAll(pods []v1.Pod) {
	for i := range pods {
		c.agent.finish(&pods[i], v1.PodSucceeded)
	}
}

// podsOf returns the pods of a workload or, if name is empty, all pods.
func (c *cluster) podsOf(namespace, name string) []v1.Pod {
	c.Helper()
	var options metav1.ListOptions
	if name != "" {
		options.LabelSelector = "app=" + name
	}
	pods, err := c.Client().CoreV1().Pods(namespace).List(c, options)
	c.ExpectNoError(err, "list pods")
	return pods.Items
}

// waitForRunning waits until exactly the given number of pods of the workload run.
func (c *cluster) waitForRunning(namespace, name string, count int) []v1.Pod {
	c.Helper()
	var pods []v1.Pod
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		pods = nil
		for _, pod := range c.podsOf(namespace, name) {
			if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
		return len(pods)
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.Equal(count), "number of running pods of %s", name)
	return pods
}

// waitForNoPods waits until no pod of the workload is left.
func (c *cluster) waitForNoPods(namespace, name string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) []v1.Pod {
		return c.podsOf(namespace, name)
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.BeEmpty(), "pods of %s", name)
}

// waitForClaim waits until the claim is in a certain state.
func (c *cluster) waitForClaim(namespace, name, what string, condition func(claim *resourceapi.ResourceClaim) bool) *resourceapi.ResourceClaim {
	c.Helper()
	var claim *resourceapi.ResourceClaim
	eventually(c.TContext, func(tCtx ktesting.TContext) *resourceapi.ResourceClaim {
		claim = c.getClaim(namespace, name)
		return claim
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.Satisfy(condition), "claim %s should be %s", name, what)
	return claim
}

func (c *cluster) waitForDeallocated(namespace, name string) *resourceapi.ResourceClaim {
	c.Helper()
	return c.waitForClaim(namespace, name, "deallocated", func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation == nil && len(claim.Status.ReservedFor) == 0
	})
}

// consistently checks that the claim remains in a certain state for longer than
// the controller needs to release it.
func (c *cluster) consistently(namespace, name, what string, condition func(claim *resourceapi.ResourceClaim) bool) {
	c.Helper()
	consistently(c.TContext, func(tCtx ktesting.TContext) *resourceapi.ResourceClaim {
		return c.getClaim(namespace, name)
	}).WithTimeout(quiet).WithPolling(100*time.Millisecond).Should(gomega.Satisfy(condition), "claim %s should remain %s", name, what)
}

// reservedForOnly returns a condition for a claim that is allocated for any pod and reserved
// for exactly one object, and that object has the right UID.
func reservedForOnly(gr schema.GroupResource, name string, uid types.UID) func(claim *resourceapi.ResourceClaim) bool {
	return func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation != nil &&
			ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false) &&
			len(claim.Status.ReservedFor) == 1 &&
			claim.Status.ReservedFor[0] == *reservedFor(gr, name, uid)
	}
}

// waitForUnschedulable waits until the scheduler said no, with the reason.
func (c *cluster) waitForUnschedulable(pod *v1.Pod, reason string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) string {
		for _, condition := range c.getPod(pod).Status.Conditions {
			if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse && condition.Reason == v1.PodReasonUnschedulable {
				return condition.Message
			}
		}
		return ""
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.ContainSubstring(reason), "why pod %s is unschedulable", pod.Name)
}

// inBackground runs something until it returns.
func inBackground(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
}
