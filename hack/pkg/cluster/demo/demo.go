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

// Package demo tells on a running cluster what a shared claim is good for, and what the status of devices
// is.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
)

// Options are those of the command line.
type Options struct {
	// Network tells the story of the network driver instead of that of the Job.
	Network bool
	// Pods of the Job.
	Pods int
	// Timeout is for the whole story.
	Timeout time.Duration
	// Keep leaves everything as it is when all pods run.
	Keep bool
	// Out is where the story goes to, os.Stdout by default.
	Out io.Writer
}

const (
	namespace = "demo"
	class     = "fabric.example.com"
	slice     = "demo-fabric"
	claim     = "fabric"
	job       = "training"
)

type story struct {
	Options
	*cluster.Client
	// cluster is nil if this is another one.
	cluster *cluster.Cluster
	start   time.Time
}

// Run tells the story. The error says at which point it did not come true.
func Run(ctx context.Context, c *cluster.Cluster, opts Options) error {
	client, err := c.NewClient(ctx)
	if err != nil {
		return err
	}
	return run(ctx, &story{Options: opts, Client: client, cluster: c})
}

// RunOn tells the story of the Job on a cluster that was not made by package cluster. It has to have what
// that one has: a driver called cluster.DriverName, and an image called cluster.ShellImage.
func RunOn(ctx context.Context, client *cluster.Client, opts Options) error {
	if opts.Network {
		return errors.New("the story of the network driver needs a cluster of package cluster")
	}
	return run(ctx, &story{Options: opts, Client: client})
}

func run(ctx context.Context, s *story) error {
	s.start = time.Now()
	if s.Out == nil {
		s.Out = os.Stdout
	}
	tell := s.tell
	if s.Network {
		tell = s.tellNetwork
	} else if s.Pods < 1 {
		return fmt.Errorf("%d pods are too few", s.Pods)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("not done after %s", s.Timeout))
	defer cancel()
	if err := tell(ctx); err != nil {
		return fmt.Errorf("the demo did not come true: %w", err)
	}
	return nil
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "[%6.1fs] %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// show prints an object as a user would write it.
func (s *story) show(object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\n          %s\n\n", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n          "))
	return nil
}

// until looks again and again, and now and then says how far it is, until there is nothing to wait for.
func (s *story) until(ctx context.Context, look func() (waiting string, err error)) error {
	for shown := (time.Time{}); ; {
		waiting, err := look()
		if err != nil || waiting == "" {
			return err
		}
		if time.Since(shown) > 2*time.Second {
			s.say("  %s", waiting)
			shown = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", waiting, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *story) tell(ctx context.Context) error {
	if err := s.DeleteNamespace(ctx, namespace, time.Minute); err != nil {
		return err
	}
	if err := s.NewNamespace(ctx, namespace); err != nil {
		return err
	}
	s.say("DeviceClass %s, and a ResourceSlice with 4 devices of driver %s that every node reaches", class, cluster.DriverName)
	if err := s.Replace(ctx, "deviceclasses", s.DeviceClass(class, cluster.DriverName)); err != nil {
		return err
	}
	if err := s.Replace(ctx, "resourceslices", s.ResourceSlice(slice, cluster.DriverName, []string{"device-0", "device-1", "device-2", "device-3"}, "", "")); err != nil {
		return err
	}

	s.say("one ResourceClaim, reserved for a Job which does not exist yet:")
	object := s.Claim(claim, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: job})
	if err := s.show(object.Object); err != nil {
		return err
	}
	created, err := s.Claims(namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, found, _ := unstructured.NestedMap(created.Object, "spec", "reservedFor"); !found {
		return errors.New("the API server dropped spec.reservedFor: is the feature gate DRAReservedForWorkloads on?")
	}
	watcher, err := s.Claims(namespace).Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: claim, ResourceVersion: created.GetResourceVersion()}))
	if err != nil {
		return err
	}
	defer watcher.Stop()

	s.say("Job %s with %d pods, each of which refers to that claim", job, s.Pods)
	begin := time.Now()
	if _, err := s.BatchV1().Jobs(namespace).Create(ctx, s.job(), metav1.CreateOptions{}); err != nil {
		return err
	}
	var counts cluster.PodCounts
	err = s.until(ctx, func() (waiting string, err error) {
		counts, err = s.CountPods(ctx, namespace, cluster.JobLabel+"="+job)
		switch {
		case err != nil:
			return err.Error(), nil // The machine may be busy.
		case counts.Running >= s.Pods:
			return "", nil
		case counts.Ended > 0:
			return "", fmt.Errorf("%d pods ended, although all of them were to run: %s", counts.Ended, counts.Ending)
		}
		return fmt.Sprintf("%d pods created, %d scheduled, %d running; %s", counts.All, counts.Bound, counts.Running, counts.Waiting), nil
	})
	if err != nil {
		return err
	}
	s.say("all %d pods run, %s after the Job was created (%.0f a second)", counts.Running, seconds(begin), float64(s.Pods)/time.Since(begin).Seconds())
	if s.cluster != nil {
		if real, _ := s.cluster.HasRealNode(); real {
			s.say("%d of them really do, on the node with a kubelet", counts.OnReal)
		}
	}
	status, err := s.checkClaim(ctx)
	if err != nil {
		return err
	}
	s.say("the claim was written %d times until then, and it is %d bytes long", writes(watcher), status.Size)
	if s.Keep {
		s.say("everything stays as it is: kubectl get resourceclaims,jobs,pods -n %s", namespace)
		return nil
	}
	return s.end(ctx)
}

func (s *story) job() *batchv1.Job {
	spec := cluster.PodSpec(claim, "")
	if s.cluster == nil {
		// With systemd and version 1 of control groups, runc sometimes cannot freeze the group of a
		// container that it starts ("unable to freeze"). The kubelet starts it again.
		spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	// Otherwise the real node, which is smaller than the simulated ones, gets almost none of them.
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelHostname,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{cluster.JobLabel: job}},
	}}
	return cluster.Job(job, int32(s.Pods), spec)
}

// checkClaim checks that the claim has the one reference that it should have.
func (s *story) checkClaim(ctx context.Context) (*cluster.ClaimStatus, error) {
	live, err := s.Claims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	status, err := cluster.ReadClaim(live)
	if err != nil {
		return nil, err
	}
	owner, err := s.BatchV1().Jobs(namespace).Get(ctx, job, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	want := cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: job, UID: owner.UID}
	if len(status.Consumers) != 1 || status.Consumers[0] != want {
		first := status.Consumers[:min(1, len(status.Consumers))]
		return nil, fmt.Errorf("status.reservedFor should be the Job with UID %s alone, but has %d entries, the first of them %+v", owner.UID, len(status.Consumers), first)
	}
	if !status.ReservedForAnyPod {
		return nil, errors.New("status.allocation.reservedForAnyPod is not true")
	}
	s.say("the claim is reserved once, for the Job:")
	return status, s.show(map[string]any{"status": live.Object["status"]})
}

// end deletes the Job, waits until the devices are free, and cleans up.
func (s *story) end(ctx context.Context) error {
	s.say("the Job is deleted")
	begin := time.Now()
	if err := s.BatchV1().Jobs(namespace).Delete(ctx, job, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return err
	}
	var gone time.Time
	err := s.until(ctx, func() (string, error) {
		// First the claim: pods that are gone when it is looked at must not count.
		status, err := s.GetClaim(ctx, namespace, claim)
		if err != nil {
			return err.Error(), nil
		}
		counts, err := s.CountPods(ctx, namespace, cluster.JobLabel+"="+job)
		if err != nil {
			return err.Error(), nil
		}
		// A pod that has ended uses nothing. A kubelet may need a while until it removes it.
		if users := counts.All - counts.Ended; users > 0 && status.Free() {
			return "", fmt.Errorf("the devices are free although %d pods have not ended", users)
		}
		if counts.All > 0 {
			return fmt.Sprintf("%d pods are left", counts.All), nil
		}
		if gone.IsZero() {
			gone = time.Now()
			s.say("the last pod is gone after %s", seconds(begin))
		}
		if status.Free() {
			return "", nil
		}
		return fmt.Sprintf("the claim still has devices %v, reserved for %+v", status.Devices, status.Consumers), nil
	})
	if err != nil {
		return err
	}
	s.say("the devices are free %s after the last pod; the claim waits for the next Job of that name", seconds(gone))
	if err := s.DeleteNamespace(ctx, namespace, 2*time.Minute); err != nil {
		return err
	}
	for resource, name := range map[string]string{"deviceclasses": class, "resourceslices": slice} {
		if err := s.Dynamic.Resource(s.Resource(resource)).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	s.say("done")
	return nil
}

func seconds(since time.Time) string { return fmt.Sprintf("%.1f s", time.Since(since).Seconds()) }

// writes counts what was seen of changes until now.
func writes(w watch.Interface) int {
	n := 0
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return n
			}
			if event.Type == watch.Modified {
				n++
			}
		case <-time.After(200 * time.Millisecond):
			return n
		}
	}
}
