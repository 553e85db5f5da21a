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
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

// faultsVariable is the environment variable which lets the tests run that take long because they
// break things. It is set by "make test-faults".
const faultsVariable = "FAULTS"

// clockVariable is the environment variable which lets TestFaults set the clock of the machine. It is
// set by "make test-faults STEP_CLOCK=1".
const clockVariable = "STEP_CLOCK"

// clockStep is longer than any lease, and than the five minutes that pods stay on a node which is lost.
// It is shorter than the life of a token.
const clockStep = 10 * time.Minute

// outage is how long something is broken. It is less than what it takes for a node to be given up.
const outage = 15 * time.Second

// TestFaults breaks one thing after the other while a Job of 500 pods shares a claim, one claim is
// being allocated, and another one is being released. Pods keep running, no device is in two claims,
// and nobody has to do anything but to repair what was broken.
func TestFaults(t *testing.T) {
	if os.Getenv(faultsVariable) == "" {
		t.Skipf("%s is not set: \"make test-faults\" does that", faultsVariable)
	}
	onRealNode(t)
	const pods = 500
	w := &workloads{env: newEnv(t), on: true, pods: map[string]int{"large": pods}, consumers: map[string]cluster.Consumer{}}
	w.class, w.realClass = w.pool("simulated", 3, "simulated"), w.pool("real", 2, "real")
	w.claim("large", w.class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "large"})
	w.consumers["large"] = w.job("large", pods, cluster.PodSpec("large", ""), nil)
	w.older = w.olderJob("older", w.realClass)
	w.older.run()
	w.running("large", pods)
	w.uids = w.podUIDs(w.pods)
	hook, link := w.webhook(), w.link()

	for _, fault := range w.faults(hook, link) {
		// After a failure, nothing is as the next one needs it.
		ok := t.Run(fault.name, func(t *testing.T) {
			outer := w.env.T
			w.env.T = t
			defer func() { w.env.T = outer }()

			// This one is being released, and the next ones are being allocated.
			ending := w.small("ending", w.class)
			w.running("ending", smallPods)
			w.deleteJob("ending")
			starting, onNode := w.small("starting", w.class), w.small("node", w.realClass)
			repair := fault.inject()
			if fault.lasting {
				time.Sleep(outage)
			}
			repair()
			start := time.Now()
			w.running("starting", smallPods)
			w.running("node", smallPods)
			w.free("ending")
			t.Logf("all is well again after %s", time.Since(start).Round(100*time.Millisecond))

			w.reservedFor("starting", starting)
			w.reservedFor("node", onNode)
			w.reservedFor("large", w.consumers["large"])
			w.keepRunning(w.uids, w.older)
			w.noDeviceTwice()
			if ending.UID == starting.UID {
				t.Error("two Jobs have the same UID")
			}
			for _, name := range []string{"starting", "node"} {
				w.deleteJob(name)
				w.podsOf(name, 0)
				w.free(name)
			}
			for _, name := range []string{"ending", "starting", "node"} {
				w.deleteClaim(name)
				w.gone(name)
			}
		})
		if !ok {
			return
		}
	}
	w.deleteJob("large")
	w.free("large")
	w.older.delete()
	w.free("older")
}

// smallPods is the size of the Jobs that start and end during a fault.
const smallPods = 5

// small starts a Job with a claim of its own.
func (w *workloads) small(name, class string) cluster.Consumer {
	w.Helper()
	w.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
	return w.job(name, smallPods, cluster.PodSpec(name, untilTold), nil)
}

// fault is something that breaks.
type fault struct {
	name string
	// inject breaks it, and returns what repairs it.
	inject func() (repair func())
	// lasting is false if it is over when inject returns.
	lasting bool
}

func (w *workloads) faults(hook *webhook, link *link) []fault {
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	var faults []fault
	for _, component := range []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, cluster.Driver} {
		faults = append(faults, fault{"kill-" + component, func() func() {
			must(shared.Kill(w.ctx, component))
			return func() { must(shared.Start(w.ctx, component, nil)) }
		}, true})
	}
	for _, component := range []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, cluster.Driver, cluster.Containerd} {
		faults = append(faults, fault{"pause-" + component, func() func() {
			resume, err := shared.Pause(component)
			must(err)
			return resume
		}, true})
	}
	faults = append(faults,
		fault{"kill-" + cluster.Containerd, func() func() {
			must(shared.KillContainerd(w.ctx))
			return func() {}
		}, false},
		fault{"slow-etcd", func() func() {
			stop, err := shared.Slow(cluster.Etcd)
			must(err)
			return stop
		}, true},
		fault{"partition-of-kubelet", func() func() {
			link.cut.Store(true)
			link.closeAll()
			return func() { link.cut.Store(false) }
		}, true},
	)
	for _, answer := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, 0} {
		name := "writes-hang"
		if answer != 0 {
			name = fmt.Sprintf("writes-answered-%d", answer)
		}
		faults = append(faults, fault{name, func() func() {
			hook.answer.Store(int64(answer))
			hook.broken.Store(true)
			return func() {
				hook.broken.Store(false)
				if hook.refused.Swap(0) == 0 {
					w.Error("no write was refused")
				}
			}
		}, true})
	}
	faults = append(faults, fault{"all-answered-429", w.overload, true})
	if os.Getenv(clockVariable) == "" {
		return faults
	}
	for _, clock := range []struct {
		name string
		step time.Duration
	}{{"clock-forward", clockStep}, {"clock-back", -clockStep}} {
		faults = append(faults, fault{clock.name, func() func() {
			must(stepClock(clock.step))
			return func() { must(stepClock(-clock.step)) }
		}, true})
	}
	return faults
}

// stepClock sets the clock of this machine forward, or back if step is negative. All its processes see it.
func stepClock(step time.Duration) error {
	now := unix.NsecToTimeval(time.Now().Add(step).UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("set the clock by %s, which needs root and a machine of one's own: %w", step, err)
	}
	return nil
}

// overload lets kube-apiserver answer 429 to requests of components of Kubernetes, to reads, too: there
// is no place for them in flight. Watches that were open stay open.
func (w *workloads) overload() (repair func()) {
	w.Helper()
	name := w.namespace
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(0)),
				BorrowingLimitPercent:    new(int32(0)),
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	user := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
	}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			MatchingPrecedence:         2, // 1 is for upstream's own.
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					user("system:kube-controller-manager"), user("system:kube-scheduler"), group("system:nodes"), group("system:serviceaccounts:kube-system"),
				},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{flowcontrolv1.VerbAll}, APIGroups: []string{"", "apps", "batch", "resource.k8s.io"}, Resources: []string{flowcontrolv1.ResourceAll},
					Namespaces: []string{flowcontrolv1.NamespaceEvery}, ClusterScope: true,
				}},
			}},
		},
	}
	levels, schemas := w.FlowcontrolV1().PriorityLevelConfigurations(), w.FlowcontrolV1().FlowSchemas()
	if _, err := levels.Create(w.ctx, level, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := schemas.Create(w.ctx, schema, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return func() {
		metrics, err := shared.Metrics(w.ctx, cluster.APIServer)
		if err != nil {
			w.Error(err)
		}
		if !regexp.MustCompile(`(?m)^apiserver_flowcontrol_rejected_requests_total\{.*priority_level="` + name + `".*\} [1-9]`).MatchString(metrics) {
			w.Error("no request was refused")
		}
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{schemas.Delete, levels.Delete} {
			if err := remove(w.ctx, name, metav1.DeleteOptions{}); err != nil {
				w.Error(err)
			}
		}
	}
}

// webhook is asked by the API server about each write of a claim.
type webhook struct {
	broken atomic.Bool
	// answer is the HTTP status of what it refuses, 0 for no answer in time.
	answer atomic.Int64
	// refused is how many writes it refused.
	refused atomic.Int64
}

// webhook starts one for the namespace of the test.
func (w *workloads) webhook() *webhook {
	w.Helper()
	const timeout = 2
	hook := &webhook{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if hook.broken.Load() {
			hook.refused.Add(1)
			if code := hook.answer.Load(); code != 0 {
				review.Response.Allowed = false
				review.Response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: "broken by a test"}
			} else {
				time.Sleep((timeout + 1) * time.Second)
			}
		}
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review)
	}))
	w.Cleanup(server.Close)
	hooks := w.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "claims.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"resourceclaims", "resourceclaims/status"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(timeout)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if _, err := hooks.Create(w.ctx, configuration, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := hooks.Delete(context.Background(), w.namespace, metav1.DeleteOptions{}); err != nil {
			w.Logf("delete the webhook: %v", err)
		}
	})
	return hook
}

// link is between the kubelet and the API server.
type link struct {
	cut atomic.Bool
	mu  sync.Mutex
	// open are the connections.
	open map[net.Conn]bool
}

// link lets the kubelet talk with the API server through one.
func (w *workloads) link() *link {
	w.Helper()
	config, err := shared.Config()
	if err != nil {
		w.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	l := &link{open: map[net.Conn]bool{}}
	server := config.Host[len("https://"):]
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(conn, server)
		}
	}()
	via := func(address string) {
		if err := shared.ViaProxy(address); err != nil {
			w.Error(err)
		}
		if err := shared.Restart(context.Background(), cluster.Kubelet, nil); err != nil {
			w.Error(err)
		}
	}
	via(listener.Addr().String())
	w.Cleanup(func() {
		via("")
		_ = listener.Close()
		l.closeAll()
	})
	return l
}

// serve copies in both directions until one side ends. While the link is cut, nothing gets through.
func (l *link) serve(conn net.Conn, server string) {
	defer func() { _ = conn.Close() }()
	if l.cut.Load() {
		return
	}
	other, err := net.Dial("tcp4", server)
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	l.mu.Lock()
	l.open[conn], l.open[other] = true, true
	l.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{conn, other}, {other, conn}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	l.mu.Lock()
	delete(l.open, conn)
	delete(l.open, other)
	l.mu.Unlock()
}

// closeAll ends all connections.
func (l *link) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		_ = conn.Close()
	}
}
