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

// Package thirdparty runs controllers of others beside a cluster with the carry: their programs, from their
// modules, with the manifests that come with them.
//
// RELEASE is the release of the cluster, whose binaries must be in _output/<release>/bin. hack/tools pins
// the controllers. With KEEP=true the cluster is still there afterwards, without the controllers.
package thirdparty

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// patience is how long something may take that takes seconds on a machine with nothing else to do.
const patience = 3 * time.Minute

var (
	// shared is the cluster of all tests.
	shared *cluster.Cluster
	repo   string
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, finalErr error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	opts, err := options()
	if err != nil {
		return 1, err
	}
	if shared, err = cluster.New(opts, logf); err != nil {
		return 1, err
	}
	down := func() error { return shared.Down(context.WithoutCancel(ctx)) }
	// What an interrupted run left.
	if err := down(); err != nil {
		return 1, err
	}
	if _, err := shared.Up(ctx); err != nil {
		return 1, err
	}
	if os.Getenv("KEEP") != "true" {
		defer func() { finalErr = errors.Join(finalErr, down()) }()
		go func() {
			<-ctx.Done()
			logf("stopped: %v", errors.Join(context.Cause(ctx), down()))
			os.Exit(1)
		}()
	}
	return m.Run(), nil
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// options are those of a cluster with simulated nodes only, at ports that are free.
func options() (opts cluster.Options, err error) {
	if repo, err = filepath.Abs("../.."); err != nil {
		return opts, err
	}
	l, err := ledger.Load(repo)
	if err != nil {
		return opts, err
	}
	release, err := l.Default()
	if name := os.Getenv("RELEASE"); name != "" {
		release, err = l.Release(name)
	}
	if err != nil {
		return opts, err
	}
	gates := map[string]bool{}
	for _, gate := range l.Gates(release.Name) {
		gates[gate] = true
	}
	output := filepath.Join(repo, "_output", release.Name)
	return cluster.Options{
		Repo:           repo,
		Release:        release.Name,
		Bin:            filepath.Join(output, "bin"),
		Dir:            filepath.Join(output, "cluster-test-thirdparty"),
		Gates:          gates,
		LogLevel:       4,
		SimulatedNodes: 10,
		NoRealNode:     true,
	}, nil
}

// env is what a test works with: a client, and a namespace of its own.
type env struct {
	*testing.T
	*cluster.Client
	ctx       context.Context
	namespace string
}

// newEnv starts controllers, and makes a namespace.
func newEnv(t *testing.T, controllers ...controller) *env {
	t.Helper()
	client, err := shared.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, Client: client, ctx: t.Context(), namespace: strings.ToLower(t.Name())}
	for _, c := range controllers {
		e.install(c)
	}
	if err := client.NewNamespace(e.ctx, e.namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.ctx = context.Background() // That of the test has ended.
		if t.Failed() {
			for _, what := range []string{"resourceclaims", "jobs,pods", "events"} {
				t.Logf("%s:\n%s", what, e.kubectl("get", what, "--output=wide"))
			}
		}
		if os.Getenv("KEEP") == "true" {
			return
		}
		if err := client.DeleteNamespace(e.ctx, e.namespace, patience); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

// kubectl runs it in the namespace of the test, and returns what it prints.
func (e *env) kubectl(args ...string) string {
	e.Helper()
	out, err := e.tryKubectl("", args...)
	if err != nil {
		e.Error(err)
	}
	return out
}

func (e *env) tryKubectl(stdin string, args ...string) (string, error) {
	cmd := shared.KubectlCommand(e.ctx, append([]string{"--namespace=" + e.namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

// apply applies a manifest as it is, or once for each name, which replaces NAME in it. A kind that is new may
// not be served yet.
func (e *env) apply(manifest string, names ...string) {
	e.Helper()
	content, err := os.ReadFile(filepath.FromSlash(manifest))
	if err != nil {
		e.Fatal(err)
	}
	texts := []string{string(content)}
	if len(names) > 0 {
		texts = nil
	}
	for _, name := range names {
		texts = append(texts, strings.ReplaceAll(string(content), "NAME", name))
	}
	for _, text := range texts {
		e.eventually("apply "+manifest, func() error {
			_, err := e.tryKubectl(text, "apply", "--filename=-")
			return err
		})
	}
}

// example is a manifest that the documents show.
func example(name string) string { return filepath.Join(repo, "examples", "reservedfor", name) }

// devices creates the class of the examples with as many devices, which all nodes can use.
func (e *env) devices(n int) {
	e.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("accelerator-%d", i))
	}
	const name = "shared-accelerator"
	for resource, object := range map[string]*unstructured.Unstructured{
		"deviceclasses":  e.DeviceClass(name, cluster.DriverName),
		"resourceslices": e.ResourceSlice(name, cluster.DriverName, names, "", ""),
	} {
		if err := e.Replace(e.ctx, resource, object); err != nil {
			e.Fatal(err)
		}
	}
}

// showClaims logs what kubectl prints of claims, as documents have it.
func (e *env) showClaims() {
	e.Helper()
	const columns = "custom-columns=NAME:.metadata.name,OWNER:.metadata.ownerReferences[0].name," +
		"DEVICE:.status.allocation.devices.results[0].device,RESERVED FOR:.status.reservedFor[*].name"
	e.Logf("claims:\n%s", e.kubectl("get", "resourceclaims", "--output="+columns))
}

// eventually polls until the condition holds.
func (e *env) eventually(what string, condition func() error) {
	e.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || e.ctx.Err() != nil {
			e.Fatalf("%s: %v", what, err)
		}
	}
}

// claim is one that a group of pods shares.
type claim struct {
	Name  string
	UID   types.UID
	Owner metav1.OwnerReference
	*cluster.ClaimStatus
}

// groups waits until so many groups of pods run, and no other pods. Each must have a claim of its own with
// one device, reserved once for a workload, and there must be no other claim. It returns the claim of each
// group. groupOf identifies the group of a pod.
func (e *env) groups(number, size int, groupOf func(*corev1.Pod) string) map[string]claim {
	e.Helper()
	var claims map[string]claim
	e.eventually(fmt.Sprintf("%d groups of %d pods, each with a claim", number, size), func() (err error) {
		claims, err = e.tryGroups(number, size, groupOf)
		return err
	})
	return claims
}

func (e *env) tryGroups(number, size int, groupOf func(*corev1.Pod) string) (map[string]claim, error) {
	pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := e.claims()
	if len(pods.Items) != number*size || len(all) != number {
		return nil, fmt.Errorf("there are %d pods and %d claims", len(pods.Items), len(all))
	}
	count, groups, devices := map[string]int{}, map[string]claim{}, map[string]bool{}
	for _, pod := range pods.Items {
		name, _, err := resourceclaim.Name(&pod, &pod.Spec.ResourceClaims[0])
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if name == nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return nil, fmt.Errorf("pod %s is %s, deleted at %v", pod.Name, pod.Status.Phase, pod.DeletionTimestamp)
		}
		group := groupOf(&pod)
		c := all[*name]
		if other, found := groups[group]; found && other.UID != c.UID {
			return nil, fmt.Errorf("pods of group %s have claims %s and %s", group, other.Name, c.Name)
		}
		groups[group] = c
		count[group]++
	}
	for group, c := range groups {
		if count[group] != size {
			return nil, fmt.Errorf("group %s has %d pods", group, count[group])
		}
		if !c.ReservedForAnyPod || len(c.Workloads()) != 1 || len(c.Consumers) != 1 || len(c.Devices) != 1 || devices[c.Devices[0]] {
			return nil, fmt.Errorf("group %s has %+v", group, c.ClaimStatus)
		}
		devices[c.Devices[0]] = true
	}
	if len(groups) != number {
		return nil, fmt.Errorf("there are %d groups", len(groups))
	}
	return groups, nil
}

// jobOf is the job of a pod, by a label of the manifests in testdata.
func jobOf(pod *corev1.Pod) string { return pod.Labels["job"] }

// controllerOf is the UID of what controls a pod.
func controllerOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// claims are those of the test's namespace, by name.
func (e *env) claims() map[string]claim {
	e.Helper()
	list, err := e.Claims(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	claims := map[string]claim{}
	for _, object := range list.Items {
		status, err := cluster.ReadClaim(&object)
		if err != nil {
			e.Fatal(err)
		}
		c := claim{Name: object.GetName(), UID: object.GetUID(), ClaimStatus: status}
		if owner := metav1.GetControllerOf(&object); owner != nil {
			c.Owner = *owner
		}
		claims[c.Name] = c
	}
	return claims
}

// free waits until a claim that exists has no devices.
func (e *env) free(name string) {
	e.Helper()
	e.eventually("the device of claim "+name+" is free", func() error {
		c, found := e.claims()[name]
		if !found {
			return errors.New("the claim is gone")
		}
		if !c.Free() {
			return fmt.Errorf("%+v", c.ClaimStatus)
		}
		return nil
	})
}

// ownedBy checks that each group's claim belongs to the object whose name or UID identifies the group, and is
// reserved for an object of its resource.
func (e *env) ownedBy(groups map[string]claim, kind, resource string) {
	e.Helper()
	for group, c := range groups {
		if c.Owner.Kind != kind || (c.Owner.Name != group && string(c.Owner.UID) != group) || c.Consumers[0].Resource != resource {
			e.Errorf("claim %s of %s %s belongs to %+v, and is reserved for %+v", c.Name, kind, group, c.Owner, c.Consumers)
		}
	}
}

// held checks that a claim has its devices, for one workload.
func (e *env) held(name string) {
	e.Helper()
	if c, found := e.claims()[name]; !found || !c.ReservedForAnyPod || len(c.Workloads()) != 1 {
		e.Errorf("claim %s exists: %t, its status is %+v", name, found, c.ClaimStatus)
	}
}

// same checks that groups have the claims and devices that they had before.
func (e *env) same(before, now map[string]claim) {
	e.Helper()
	for group, c := range now {
		if old := before[group]; c.UID != old.UID || c.Devices[0] != old.Devices[0] {
			e.Errorf("before, %s had %+v, and now %+v", group, old, c)
		}
	}
}

// noClaims waits until no claim is left: all devices are free then.
func (e *env) noClaims() {
	e.Helper()
	e.eventually("all claims are gone", func() error {
		if n := len(e.claims()); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// pods waits until so many pods with a label run, and no other pods have it.
func (e *env) pods(selector string, number int) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d pods with %s", number, selector), func() error {
		n, err := e.CountPods(e.ctx, e.namespace, selector)
		if err == nil && (n.All != number || n.Running != number) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
}

// end ends running pods with a label, in a phase.
func (e *env) end(phase corev1.PodPhase, selector string) {
	e.Helper()
	e.kubectl("label", "pods", "--selector="+selector, cluster.EndLabel+"="+string(phase))
}
