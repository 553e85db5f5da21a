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
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

const (
	// failingPods want a network at the same time, again and again.
	failingPods = 100
	// bystanders are pods without a claim, which are started one after the other.
	bystanders = 10
)

// TestNetworkBystander measures how long a pod without a claim takes to start again on a node where a tenant's pods
// fail for ever: because their network has no address left, because its plugins do not answer, and because the API
// server does not answer either. The figures are in docs/network-driver.md. It fails if a bystander does not start,
// or if a pod of the tenant runs without its interface.
func TestNetworkBystander(t *testing.T) {
	if os.Getenv("DRIVER_CHECK") != "true" {
		t.Skip("nothing else may go on beside it: make test-drivers")
	}
	onRealNode(t)
	e := newEnv(t)
	e.deployNetworkDriver("--devices=128")
	manifest, err := shared.NetworkExample(e.Version)
	if err != nil {
		t.Fatal(err)
	}
	manifest = e.replace(manifest, "replicas: 2", "replicas: 0")
	network := func(name, subnet string) (class string) {
		class = name + "-network"
		e.kubectlApply(e.replace(manifest,
			"name: storage-network", "name: "+class,
			"deviceClassName: storage-network", "deviceClassName: "+class,
			"name: storage\n", "name: "+name+"\n",
			"- subnet: 10.220.0.0/24\n", "- subnet: "+subnet+"\n",
		), "--namespace="+e.namespace)
		t.Cleanup(func() { e.kubectlDeleteNames("deviceclass/" + class) })
		return class
	}
	tenant := func(name, class string) (ended func()) {
		for i := range failingPods {
			e.networkPod(fmt.Sprintf("%s-%d", name, i), class)
		}
		e.eventually(fmt.Sprintf("%d pods fail", failingPods), func() error {
			events, err := e.CoreV1().Events(e.namespace).List(e.ctx, metav1.ListOptions{FieldSelector: "reason=FailedAttachNetworkDevice"})
			if err != nil {
				return err
			}
			pods := map[string]bool{}
			for _, event := range events.Items {
				if pod := event.InvolvedObject.Name; strings.HasPrefix(pod, name+"-") {
					pods[pod] = true
				}
			}
			// One has got the only address.
			if len(pods) < failingPods-1 {
				return fmt.Errorf("only %d", len(pods))
			}
			return nil
		})
		return func() {
			e.noneWithoutInterface()
			e.kubectlDeleteNames("pods", "--all", "--namespace="+e.namespace)
		}
	}

	restart := e.bystanders("undisturbed")
	restart()

	// Two hosts: the bridge and one pod.
	class := network("full", "10.223.0.0/30")
	restart = e.bystanders("no-address")
	ended := tenant("full", class)
	restart()
	ended()
	e.nothingIsLeft("full")

	class = network("slow", "10.222.0.0/24")
	e.networkPod("first", class)
	e.userRuns("first") // makes the lock of the network
	restart = e.bystanders("hanging-plugin")
	withoutAPI := e.bystanders("and-api-server")
	goOn := e.lockNetwork("slow")
	ended = tenant("slow", class)
	restart()
	resume, err := shared.Pause(cluster.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resume)
	withoutAPI()
	resume()
	goOn()
	ended()
	e.nothingIsLeft("slow")
}

// bystanders starts pods without a claim. The function returned starts each of them once more, which nobody needs the
// API server for.
func (e *env) bystanders(name string) (restart func()) {
	e.Helper()
	folder := "/run/bystanders/" + name
	remove := func(ctx context.Context) {
		e.Helper()
		if _, err := shared.RunInNode(ctx, "rm", "-rf", folder); err != nil {
			e.Error(err)
		}
	}
	remove(e.ctx) // what an interrupted test has left
	e.Cleanup(func() { remove(context.WithoutCancel(e.ctx)) })
	var pods []string
	account, grace, kind := false, int64(1), corev1.HostPathDirectoryOrCreate
	for i := range bystanders {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-bystander-%d", name, i)}, Spec: corev1.PodSpec{
			NodeSelector:                 map[string]string{cluster.TypeLabel: "real"},
			AutomountServiceAccountToken: &account,
			// The container has to end before the next one starts.
			TerminationGracePeriodSeconds: &grace,
			Volumes:                       []corev1.Volume{{Name: "started", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder, Type: &kind}}}},
			Containers: []corev1.Container{{
				Name: "main", Image: cluster.ShellImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command:      []string{"sh", "-c", fmt.Sprintf("cut -d ' ' -f 1 /proc/uptime >>%s/%d; exec sleep 1000000", folder, i)},
				VolumeMounts: []corev1.VolumeMount{{Name: "started", MountPath: folder}},
			}},
		}}
		if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
		pods = append(pods, pod.Name)
	}
	for _, pod := range pods {
		e.userRuns(pod)
	}
	starts := func(i int) []string {
		e.Helper()
		out, err := shared.RunInNode(e.ctx, "cat", fmt.Sprintf("%s/%d", folder, i))
		if err != nil {
			e.Fatal(err)
		}
		return strings.Fields(out)
	}
	return func() {
		e.Helper()
		var took []time.Duration
		for i, pod := range pods {
			killed := uptime(e)
			e.killSandbox(pod)
			e.eventually(pod+" runs again", func() error {
				if len(starts(i)) < 2 {
					return errors.New("it does not")
				}
				return nil
			})
			took = append(took, seconds(e, starts(i)[1])-killed)
		}
		slices.Sort(took)
		e.Logf("%s: a bystander ran again after %s (median), %s (the slowest of %d)", name, took[len(took)/2].Round(10*time.Millisecond), took[len(took)-1].Round(10*time.Millisecond), len(took))
	}
}

// uptime reads how long this machine, which is also the node, has been up.
func uptime(e *env) time.Duration {
	e.Helper()
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		e.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), " ")
	return seconds(e, first)
}

func seconds(e *env, text string) time.Duration {
	e.Helper()
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		e.Fatal(err)
	}
	return time.Duration(value * float64(time.Second))
}
