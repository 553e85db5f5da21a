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

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-dra/hack/pkg/cluster"
)

const networkNamespace = "demo-network"

// tellNetwork is the story of two pods with a second interface each.
func (s *story) tellNetwork(ctx context.Context) error {
	if real, reason := s.cluster.HasRealNode(); !real {
		return fmt.Errorf("network devices need a real node, and there is none: %s", reason)
	}
	driver, err := s.cluster.NetworkDriver()
	if err != nil {
		return err
	}
	example, err := s.cluster.NetworkExample(s.Version)
	if err != nil {
		return err
	}
	if err := s.DeleteNamespace(ctx, networkNamespace, time.Minute); err != nil {
		return err
	}
	s.say("DaemonSet %s, from cmd/dra-network-driver/deploy", cluster.NetworkDaemonSet)
	if _, err := s.kubectl(ctx, driver, "apply", "-f", "-"); err != nil {
		return err
	}
	err = s.until(ctx, func() (string, error) {
		set, err := s.AppsV1().DaemonSets(cluster.NetworkNamespace).Get(ctx, cluster.NetworkDaemonSet, metav1.GetOptions{})
		if err == nil && set.Status.NumberReady == 1 {
			return "", nil
		}
		return fmt.Sprintf("the driver is not ready; see kubectl logs -n %s daemonset/%s", cluster.NetworkNamespace, cluster.NetworkDaemonSet), nil
	})
	if err != nil {
		return err
	}

	s.say("it is ready. A Deployment of two pods, each with a claim for an interface, from examples/network")
	if err := s.NewNamespace(ctx, networkNamespace); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, example, "apply", "-n", networkNamespace, "-f", "-"); err != nil {
		return err
	}
	pods, err := s.networkPods(ctx)
	if err != nil {
		return err
	}
	claim := *pods[0].Status.ResourceClaimStatuses[0].ResourceClaimName
	addresses, err := s.addresses(ctx, pods)
	if err != nil {
		return err
	}
	s.say("both run, and the driver has reported what they have:")
	for _, args := range [][]string{
		{"get", "resourceclaims", "-o", "wide"},
		{"describe", "resourceclaim", claim},
		{"exec", pods[0].Name, "--", "ip", "address", "show", "storage"},
		{"exec", pods[0].Name, "--", "ping", "-c", "1", "-I", "storage", addresses[1]},
	} {
		if err := s.showKubectl(ctx, args...); err != nil {
			return err
		}
	}
	if s.Keep {
		s.say("everything stays as it is: kubectl get resourceclaims,pods -n %s", networkNamespace)
		return nil
	}
	return s.endNetwork(ctx, driver, example)
}

// networkPods waits until both run.
func (s *story) networkPods(ctx context.Context) (pods []corev1.Pod, err error) {
	err = s.until(ctx, func() (string, error) {
		list, err := s.CoreV1().Pods(networkNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error(), nil
		}
		pods = list.Items
		for _, pod := range pods {
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Sprintf("%s is %s; see kubectl get events -n %s", pod.Name, pod.Status.Phase, networkNamespace), nil
			}
		}
		if len(pods) != 2 {
			return fmt.Sprintf("there are %d pods", len(pods)), nil
		}
		return "", nil
	})
	return pods, err
}

// addresses waits until they are in the status of the pods' claims.
func (s *story) addresses(ctx context.Context, pods []corev1.Pod) (addresses []string, err error) {
	for _, pod := range pods {
		name := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		err := s.until(ctx, func() (string, error) {
			claim, err := s.Claims(networkNamespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error(), nil
			}
			if devices, _, _ := unstructured.NestedSlice(claim.Object, "status", "devices"); len(devices) == 1 {
				ips, _, _ := unstructured.NestedStringSlice(devices[0].(map[string]any), "networkData", "ips")
				if len(ips) > 0 {
					address, _, _ := strings.Cut(ips[0], "/")
					addresses = append(addresses, address)
					return "", nil
				}
			}
			return "the driver has not reported an address for claim " + name, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return addresses, nil
}

// endNetwork deletes everything, and waits until it is gone.
func (s *story) endNetwork(ctx context.Context, driver, example string) error {
	s.say("all of it is deleted")
	if _, err := s.kubectl(ctx, example, "delete", "--ignore-not-found", "-n", networkNamespace, "-f", "-"); err != nil {
		return err
	}
	if err := s.DeleteNamespace(ctx, networkNamespace, 2*time.Minute); err != nil {
		return err
	}
	// The driver knows about the end of pods before the API server does.
	ports, err := filepath.Glob(filepath.Join("/sys/class/net", s.cluster.NetworkBridge(), "brif", "*"))
	if err != nil {
		return err
	}
	if len(ports) > 0 {
		return fmt.Errorf("the pods are gone, but their interfaces are not: %q", ports)
	}
	leases, err := s.cluster.RunInNode(ctx, "find", "/var/lib/cni/networks/storage", "-name", "10.*")
	if err != nil {
		return err
	}
	if leases = strings.TrimSpace(leases); leases != "" {
		return fmt.Errorf("the pods are gone, but their addresses are still taken: %s", leases)
	}
	if _, err := s.kubectl(ctx, driver, "delete", "--ignore-not-found", "-f", "-"); err != nil {
		return err
	}
	s.say("done: neither interfaces nor addresses are left")
	return nil
}

// showKubectl prints a command as a user would type it, and its output.
func (s *story) showKubectl(ctx context.Context, args ...string) error {
	out, err := s.kubectl(ctx, "", append([]string{"-n", networkNamespace}, args...)...)
	fmt.Fprintf(s.Out, "\n$ kubectl %s\n%s\n", strings.Join(args, " "), strings.TrimRight(out, "\n"))
	return err
}

func (s *story) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := s.cluster.KubectlCommand(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
