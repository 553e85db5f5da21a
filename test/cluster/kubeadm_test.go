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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/cluster/demo"
)

// kubeadmRelease is the environment variable with the folder of a release.
const kubeadmRelease = "KUBEADM_RELEASE"

// TestKubeadm takes a release home: kubeadm init with
// its binaries, images and configuration, a Job whose pods share a claim, and
// kubeadm reset, after which the machine is as before.
func TestKubeadm(t *testing.T) {
	release := os.Getenv(kubeadmRelease)
	if release == "" {
		t.Skip("it needs a release, and the machine for itself: make test-kubeadm")
	}
	ctx := t.Context()
	opts := shared.Options
	opts.Dir += "-2"
	opts.SimulatedNodes = 20
	opts.Images = nil
	unpacked := filepath.Join(filepath.Dir(opts.Dir), "kubeadm-test")
	if err := os.RemoveAll(unpacked); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(unpacked); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(unpacked, 0o755); err != nil {
		t.Fatal(err)
	}
	tarball := filepath.Join(release, "kubernetes-server-linux-"+runtime.GOARCH+".tar.gz")
	if out, err := exec.CommandContext(ctx, "tar", "--extract", "--file="+tarball, "--directory="+unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", tarball, err, out)
	}
	opts.Bin = filepath.Join(unpacked, "kubernetes", "server", "bin")
	archives, err := filepath.Glob(filepath.Join(opts.Bin, "*.tar"))
	if err != nil || len(archives) != 4 {
		t.Fatalf("want the archives of four images, got %q, %v", archives, err)
	}
	opts.Kubeadm = &cluster.Kubeadm{Config: filepath.Join(release, "kubeadm.yaml"), Archives: archives}

	before := machine(t)
	c, err := cluster.New(opts, logf)
	if err != nil {
		t.Fatal(err)
	}
	down := func() {
		if err := c.Down(t.Context()); err != nil {
			t.Errorf("take it down: %v", err)
		}
	}
	if err := c.Down(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Up(ctx); err != nil {
		t.Fatal(err)
	}
	defer down()
	client, err := c.NewClient(ctx)
	if err != nil {
		t.Fatal(err)
	}

	version, err := client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != stamp {
		t.Errorf("want an API server of version %s, got %v, %v", stamp, version, err)
	}
	checkStaticPods(t, client)
	checkProxy(t, client)
	checkImport(t, c)

	var out strings.Builder
	if err := demo.Run(ctx, c, demo.Options{Pods: 100, Timeout: 10 * time.Minute, Out: &out}); err != nil {
		t.Errorf("%v after\n%s", err, out.String())
	}
	t.Logf("the demo:\n%s", out.String())

	if err := c.KubeadmReset(ctx); err != nil {
		t.Error(err)
	}
	down()
	if after := machine(t); after != before {
		t.Errorf("the machine is not as before:\n%s", difference(before, after))
	}
}

// checkStaticPods waits until the control plane runs in pods, of the images in the
// release. The API server has such a pod some time after it began.
func checkStaticPods(t *testing.T, client *cluster.Client) {
	t.Helper()
	tag := ":" + strings.ReplaceAll(stamp, "+", "_")
	want := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		want[name] = "registry.k8s.io/" + name + tag
	}
	var seen []string
	for deadline := time.Now().Add(patience); len(want) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + cluster.RealNode})
		if err != nil {
			t.Fatal(err)
		}
		seen = nil
		for _, pod := range pods.Items {
			name, image := strings.TrimSuffix(pod.Name, "-"+cluster.RealNode), pod.Spec.Containers[0].Image
			seen = append(seen, fmt.Sprintf("%s %s %s", pod.Name, pod.Status.Phase, image))
			if pod.Status.Phase == corev1.PodRunning && pod.Annotations[corev1.MirrorPodAnnotationKey] != "" && image == want[name] {
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no static pods run with these images: %v; there are:\n%s", want, strings.Join(seen, "\n"))
	}
}

// checkProxy waits until kube-proxy, which needs more in its image than itself, has
// made rules for the one Service that there is.
func checkProxy(t *testing.T, client *cluster.Client) {
	t.Helper()
	rules, state := "", ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{
			LabelSelector: "k8s-app=kube-proxy", FieldSelector: "spec.nodeName=" + cluster.RealNode,
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "iptables-save", "--table=nat").CombinedOutput()
		rules, state = string(out), ""
		for _, pod := range pods.Items {
			for _, container := range pod.Status.ContainerStatuses {
				state = fmt.Sprintf("%s ready=%t restarts=%d %+v", pod.Name, container.Ready, container.RestartCount, container.State)
				if container.Ready && container.RestartCount == 0 && err == nil && strings.Contains(rules, "default/kubernetes:https") {
					return
				}
			}
		}
	}
	t.Errorf("kube-proxy has made no rules for the Service default/kubernetes: %s\n%s", state, rules)
}

// checkImport checks the names that the container runtime has for the images: those
// of upstream's tarballs, and those of kubeadm.
func checkImport(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctr := filepath.Join(repo, "_output", "tools", "bin", "ctr")
	images, err := c.RunInNode(t.Context(), ctr, "--namespace=k8s.io", "images", "list", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	tag := ":" + strings.ReplaceAll(stamp, "+", "_") + "\n"
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"} {
		for _, suffix := range []string{"", "-" + runtime.GOARCH} {
			if !strings.Contains(images, "registry.k8s.io/"+name+suffix+tag) {
				t.Errorf("containerd has no image %s%s%s", name, suffix, tag)
			}
		}
	}
	if t.Failed() {
		t.Logf("it has\n%s", images)
	}
}
