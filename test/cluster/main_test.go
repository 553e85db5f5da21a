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

// Package cluster tests binaries of Kubernetes as a user runs them: in a
// cluster with everything that a cluster has. It knows nothing of their code.
//
// RELEASE is the release that is tested, whose binaries must be in
// _output/<release>/bin or in BIN. With KEEP=true the cluster is still there
// afterwards. With NO_REAL_NODE=true it has simulated nodes only, also for root.
//
// TestKubeadm has a node of its own: with KUBEADM_RELEASE, the folder of a release, no
// cluster is started for other tests.
package cluster

import (
	"context"
	"encoding/json"
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

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	gate = "DRAReservedForWorkloads"
	// patience is how long something may take that takes seconds on a machine
	// with nothing else to do. No test passes because of it. Beside other tests, on two CPUs, a
	// namespace with 300 pods took more than three minutes to go.
	patience = 10 * time.Minute
)

var (
	// shared is the cluster that most tests use.
	shared *testCluster
	repo   string
	stamp  string
)

func TestMain(m *testing.M) {
	if server := os.Getenv(downgradeServer); server != "" {
		os.Exit(downgradeAlone(server, os.Args[1:]))
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, finalErr error) {
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return m.Run(), nil
	}
	ctx := context.Background()
	opts, err := options()
	if err != nil {
		return 1, err
	}
	c, err := cluster.New(opts, logf)
	if err != nil {
		return 1, err
	}
	shared = &testCluster{c}
	// What an interrupted run left.
	if err := shared.Down(ctx); err != nil {
		return 1, err
	}
	if os.Getenv(kubeadmRelease) != "" {
		// TestKubeadm has one of its own.
		return m.Run(), nil
	}
	if _, err := shared.Up(ctx); err != nil {
		return 1, err
	}
	keep := os.Getenv("KEEP") == "true"
	if !keep {
		defer func() {
			if err := shared.Down(ctx); err != nil {
				finalErr = errors.Join(finalErr, err)
			}
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		logf("stopped by %s", <-signals)
		if !keep {
			if err := shared.Down(ctx); err != nil {
				logf("%v", err)
			}
		}
		os.Exit(1)
	}()
	return m.Run(), nil
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// options are those of the shared cluster. It takes whatever ports and addresses are
// free: a developer's own cluster, or another clone's tests, may be running.
func options() (cluster.Options, error) {
	var opts cluster.Options
	dir, err := os.Getwd()
	if err != nil {
		return opts, err
	}
	for repo = dir; ; repo = filepath.Dir(repo) {
		if _, err := os.Stat(filepath.Join(repo, "hack", "ledger.yaml")); err == nil {
			break
		}
		if repo == filepath.Dir(repo) {
			return opts, fmt.Errorf("%s is not in the repository", dir)
		}
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
	stamp = l.Stamp(release)
	output := filepath.Join(repo, "_output", release.Name)
	bin := filepath.Join(output, "bin")
	gates := featureGates(l, release.Name)
	several := 0
	if os.Getenv(controlPlanesVariable) != "" {
		several = controlPlanes
	}
	if other := os.Getenv("BIN"); other != "" {
		bin = other
		version, err := cluster.VersionOf(context.Background(), bin)
		if err != nil {
			return opts, err
		}
		first, _, _ := strings.Cut(os.Getenv(upgradePath), string(filepath.ListSeparator))
		if strings.HasSuffix(first, gatesOff) || !cluster.IsPatched(version) {
			gates = nil
		}
	}
	return cluster.Options{
		Repo:           repo,
		Release:        release.Name,
		Bin:            bin,
		Dir:            filepath.Join(output, "cluster-test"),
		Gates:          gates,
		LogLevel:       4,
		ControlPlanes:  several,
		SimulatedNodes: 100,
		NoRealNode:     several > 0 || os.Getenv("NO_REAL_NODE") == "true",
	}, nil
}

// featureGates are those of the carried features of a release, all on.
func featureGates(l *ledger.Ledger, release string) map[string]bool {
	gates := map[string]bool{}
	for _, gate := range l.Gates(release) {
		gates[gate] = true
	}
	return gates
}

// env is what a test works with: a client, and a namespace of its own.
type env struct {
	*testing.T
	*cluster.Client
	ctx       context.Context
	namespace string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	ctx := t.Context()
	client, err := shared.NewClient(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, Client: client, ctx: ctx, namespace: strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")}
	if err := client.NewNamespace(ctx, e.namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			e.explain(e.namespace)
		}
		if os.Getenv("KEEP") == "true" {
			return
		}
		// The context of the test has ended.
		if err := client.DeleteNamespace(context.Background(), e.namespace, patience); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

// explain shows what is in a namespace when a test fails.
func (e *env) explain(namespace string) {
	e.explainWith(namespace, []string{"get", "resourceclaims", "-o", "yaml"}, []string{"get", "jobs,pods", "-o", "wide"}, []string{"get", "events"})
}

// explainWith writes what kubectl prints to a file, and shows the end of each part: not so
// much that what the test says itself is lost on the screen.
func (e *env) explainWith(namespace string, commands ...[]string) {
	var all, ends strings.Builder
	for _, args := range commands {
		out, _ := shared.KubectlCommand(context.Background(), append([]string{"--namespace=" + namespace}, args...)...).CombinedOutput()
		title := "kubectl " + strings.Join(args, " ")
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fmt.Fprintf(&all, "%s:\n%s\n", title, out)
		fmt.Fprintf(&ends, "\n%s:\n%s", title, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	// The name of a subtest has slashes.
	name := filepath.Join(filepath.Dir(shared.AuditLog()), strings.ReplaceAll(strings.ToLower(e.Name()), "/", "-")+"-"+namespace+".txt")
	if err := os.WriteFile(name, []byte(all.String()), 0o644); err != nil {
		e.Log(err)
	}
	e.Logf("the whole of this is in %s, logs beside it:%s", name, ends.String())
}

// onRealNode skips the test where there is none.
func onRealNode(t *testing.T) {
	t.Helper()
	if real, reason := shared.HasRealNode(); !real {
		t.Skipf("no node with a kubelet: %s", reason)
	}
}

// eventually polls until the condition holds.
func (e *env) eventually(what string, condition func() error) {
	e.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		var stop fatal
		if errors.As(err, &stop) || time.Now().After(deadline) || e.ctx.Err() != nil {
			e.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// fatal is an error that does not go away.
type fatal struct{ error }

// devices creates a DeviceClass of the test's name, and a pool with as many
// devices for nodes with that type, or for all nodes.
func (e *env) devices(n int, nodeType string) (class string) {
	e.Helper()
	name := e.namespace + ".example.com"
	var devices []string
	for i := range n {
		devices = append(devices, fmt.Sprintf("device-%d", i))
	}
	label := ""
	if nodeType != "" {
		label = cluster.TypeLabel
	}
	// Other tests have pools of the same driver, so the class selects devices
	// of this one.
	object := e.DeviceClass(name, cluster.DriverName)
	slice := e.ResourceSlice(name, cluster.DriverName, devices, label, nodeType)
	if err := mark(object, slice, e.Version, e.namespace); err != nil {
		e.Fatal(err)
	}
	if err := e.Replace(e.ctx, "deviceclasses", object); err != nil {
		e.Fatal(err)
	}
	if err := e.Replace(e.ctx, "resourceslices", slice); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		for resource, name := range map[string]string{"deviceclasses": object.GetName(), "resourceslices": slice.GetName()} {
			if os.Getenv("KEEP") != "true" {
				_ = e.Dynamic.Resource(e.Resource(resource)).Delete(context.Background(), name, metav1.DeleteOptions{})
			}
		}
	})
	return name
}

// mark gives all devices an attribute that the class asks for, and their index.
func mark(class, slice *unstructured.Unstructured, version, value string) error {
	expression := fmt.Sprintf("device.driver == %q && device.attributes[%q].test == %q", cluster.DriverName, cluster.DriverName, value)
	selectors := []any{map[string]any{"cel": map[string]any{"expression": expression}}}
	if err := unstructured.SetNestedSlice(class.Object, selectors, "spec", "selectors"); err != nil {
		return err
	}
	devices, _, err := unstructured.NestedSlice(slice.Object, "spec", "devices")
	if err != nil {
		return err
	}
	path := []string{"attributes"}
	if version == "v1beta1" {
		path = []string{"basic", "attributes"}
	}
	for i, device := range devices {
		attributes := map[string]any{"test": map[string]any{"string": value}, "index": map[string]any{"int": int64(i)}}
		if err := unstructured.SetNestedMap(device.(map[string]any), attributes, path...); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(slice.Object, devices, "spec", "devices")
}

// claim creates a claim.
func (e *env) claim(name, class string, consumer *cluster.Consumer) {
	e.Helper()
	if _, err := e.Claims(e.namespace).Create(e.ctx, e.Claim(name, class, consumer), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// job creates a Job and returns its UID as that of a consumer.
func (e *env) job(name string, pods int32, spec corev1.PodSpec, labels map[string]string) cluster.Consumer {
	e.Helper()
	job := cluster.Job(name, pods, spec)
	for key, value := range labels {
		job.Spec.Template.Labels[key] = value
	}
	job, err := e.BatchV1().Jobs(e.namespace).Create(e.ctx, job, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name, UID: job.UID}
}

// running waits until so many pods of a Job run.
func (e *env) running(job string, pods int) {
	e.Helper()
	e.runningPods(cluster.JobLabel+"="+job, pods)
}

// runningPods waits until so many pods with a label run.
func (e *env) runningPods(selector string, pods int) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d pods with %s run", pods, selector), func() error {
		n, err := e.CountPods(e.ctx, e.namespace, selector)
		if err != nil {
			return err
		}
		if n.Ended > 0 {
			return fatal{fmt.Errorf("%+v", n)}
		}
		if n.Running != pods {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
}

// reservedFor checks that a claim is allocated, and reserved for that consumer
// alone.
func (e *env) reservedFor(claim string, want cluster.Consumer) *cluster.ClaimStatus {
	e.Helper()
	status, err := e.GetClaim(e.ctx, e.namespace, claim)
	if err != nil {
		e.Fatal(err)
	}
	if !status.Allocated || !status.ReservedForAnyPod || len(status.Consumers) != 1 || status.Consumers[0] != want {
		e.Fatalf("want the claim to be allocated for any pod, and reserved for %+v alone; got %+v", want, status)
	}
	return status
}

// free waits until nobody has the devices of a claim.
func (e *env) free(claim string) {
	e.Helper()
	start := time.Now()
	e.eventually("the devices of claim "+claim+" are free", func() error {
		status, err := e.GetClaim(e.ctx, e.namespace, claim)
		if err != nil {
			return err
		}
		if !status.Free() {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	e.Logf("devices are free after %s", time.Since(start).Round(100*time.Millisecond))
}

// event waits for an event about an object.
func (e *env) event(kind, name string, matches func(event *corev1.Event) bool) string {
	e.Helper()
	var message string
	e.eventually(fmt.Sprintf("event about %s %s", kind, name), func() error {
		events, err := e.CoreV1().Events(e.namespace).List(e.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var seen []string
		for i := range events.Items {
			if event := &events.Items[i]; matches(event) {
				message = event.Message
				return nil
			}
			seen = append(seen, events.Items[i].Reason+": "+events.Items[i].Message)
		}
		return fmt.Errorf("there are only %q", seen)
	})
	return message
}

// kubectl runs it, and returns what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := shared.KubectlCommand(t.Context(), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func parseJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
