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

package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod says what is special in a pod. The rest is that of the user's template.
type Pod struct {
	// Node where it runs, if it is not that of all others.
	Node string
	// Ends is true if its containers end at once.
	Ends bool
	// Containers is how many there are, 0 for one. With more than one, there is an init container, too.
	Containers int
	// Restart is the restart policy, Never by default.
	Restart corev1.RestartPolicy
	// Template is one of a claim, by name.
	Template string
	// Blind is true if it need not see its devices.
	Blind bool
}

// stay keeps a container until it is told to end.
const stay = "trap 'exit 0' TERM INT; sleep 1000000 & wait"

// podTemplate is one of pods with claims.
func (c *Case) podTemplate(p Pod, claims []string) corev1.PodTemplateSpec {
	t := *c.Template.DeepCopy()
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	maps.Copy(t.Labels, c.Labels())
	spec := &t.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	if p.Restart != "" {
		spec.RestartPolicy = p.Restart
	}
	if p.Node == "" {
		p.Node = c.Node()
	}
	pin(spec, p.Node)
	first := &spec.Containers[0]
	first.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	add := func(claim corev1.PodResourceClaim) {
		claim.Name = fmt.Sprintf("checked-%d", len(spec.ResourceClaims))
		spec.ResourceClaims = append(spec.ResourceClaims, claim)
		first.Resources.Claims = append(first.Resources.Claims, corev1.ResourceClaim{Name: claim.Name})
	}
	for _, name := range claims {
		add(corev1.PodResourceClaim{ResourceClaimName: &name})
	}
	if p.Template != "" {
		add(corev1.PodResourceClaim{ResourceClaimTemplateName: &p.Template})
	}
	// What the template wants to know is about another command.
	first.LivenessProbe, first.ReadinessProbe, first.StartupProbe, first.Lifecycle = nil, nil, nil, nil
	script := "true"
	if c.Probe != "" && !p.Blind {
		script = "{\n" + c.Probe + "\n} || { echo 'the probe failed: no device here'; exit 1; }"
	}
	container := func(name, script string) corev1.Container {
		another := *first.DeepCopy()
		another.Name, another.Command, another.Args = name, []string{"sh", "-c", script}, nil
		return another
	}
	if p.Containers > 1 {
		init := container("checked-init", script)
		init.Ports = nil
		spec.InitContainers = append(spec.InitContainers, init)
	}
	if !p.Ends {
		// A container runs before its first command has failed, but it is not ready.
		first.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}},
			PeriodSeconds: 5, TimeoutSeconds: 10,
		}
		script += "\n" + stay
	}
	*first = container(first.Name, script)
	for i := 1; i < p.Containers; i++ {
		another := container(fmt.Sprintf("checked-%d", i), script)
		another.Ports = nil
		spec.Containers = append(spec.Containers, another)
	}
	return t
}

// pin makes the scheduler choose a node. Without the scheduler, no claim would be allocated.
func pin(spec *corev1.PodSpec, node string) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	// The terms are alternatives.
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}})
	}
}

// Start creates a pod with claims, and returns its name.
func (c *Case) Start(suffix string, p Pod, claims ...string) string {
	t := c.podTemplate(p, claims)
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Name = c.Name(suffix)
	_, err := c.Kube.CoreV1().Pods(c.Namespace).Create(c.ctx, pod, metav1.CreateOptions{})
	c.Must(err)
	return pod.Name
}

// StartJob creates a Job with pods, which run one after the other.
func (c *Case) StartJob(suffix string, pods int, p Pod, claim string) *batchv1.Job {
	none, one, all := int32(0), int32(1), int32(pods)
	template := c.podTemplate(p, []string{claim})
	for i := range template.Spec.Containers {
		if probe := template.Spec.Containers[i].ReadinessProbe; probe != nil {
			// A few each second, whatever the number of pods.
			probe.PeriodSeconds = max(probe.PeriodSeconds, all/5)
		}
	}
	job, err := c.Kube.BatchV1().Jobs(c.Namespace).Create(c.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name(suffix), Labels: c.Labels()},
		Spec:       batchv1.JobSpec{Completions: &all, Parallelism: &one, BackoffLimit: &none, Template: template},
	}, metav1.CreateOptions{})
	c.Must(err)
	return job
}

// RunJob lets a Job run so many pods at once, and waits for that. It starts some at a time: a container runtime
// that is asked for hundreds gives some of them up, whatever the driver does.
func (c *Case) RunJob(job *batchv1.Job, pods int) {
	const atOnce = 25
	for n := min(atOnce, pods); ; n = min(n+atOnce, pods) {
		patched, err := c.Kube.BatchV1().Jobs(c.Namespace).Patch(c.ctx, job.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"parallelism":%d}}`, n), metav1.PatchOptions{})
		c.Must(err)
		c.JobPods(patched, corev1.PodRunning)
		if n == pods {
			return
		}
	}
}

// JobPods waits until the pods of a Job are in a phase: those that run at once, or all that have succeeded.
func (c *Case) JobPods(job *batchv1.Job, phase corev1.PodPhase) {
	want := *job.Spec.Completions
	if phase == corev1.PodRunning {
		want = *job.Spec.Parallelism
	}
	what := fmt.Sprintf("%d pods of the Job are %s", want, phase)
	c.Must(c.countdown(c.ctx, what, func(ctx context.Context) (int, error) {
		pods, err := c.Kube.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		// A pod that has a sandbox is half way.
		left := 2 * int(want)
		if err != nil {
			return left, err
		}
		for _, pod := range pods.Items {
			switch {
			case pod.Status.Phase == corev1.PodFailed:
				return left, Failf("pod %s of the Job failed", pod.Name)
			case pod.Status.Phase == phase && (phase != corev1.PodRunning || isTrue(&pod, corev1.PodReady)):
				left -= 2
			case isTrue(&pod, corev1.PodReadyToStartContainers):
				left--
			}
		}
		return left, nil
	}))
}

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition && c.Status == corev1.ConditionTrue })
}

// Pod waits until a pod is as the condition wants it.
func (c *Case) Pod(name, what string, condition func(pod *corev1.Pod) error) (pod *corev1.Pod) {
	c.Until("pod "+name+" "+what, func() (err error) {
		pod, err = c.Kube.CoreV1().Pods(c.Namespace).Get(c.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return Failf("pod %s is gone", name)
		}
		if err == nil {
			err = condition(pod)
		}
		return err
	})
	return pod
}

// Runs waits until all containers of a pod run, and see their devices.
func (c *Case) Runs(name string) *corev1.Pod { return c.reaches(name, corev1.PodRunning) }

// Succeeds waits until all containers of a pod have ended well.
func (c *Case) Succeeds(name string) *corev1.Pod { return c.reaches(name, corev1.PodSucceeded) }

func (c *Case) reaches(name string, want corev1.PodPhase) *corev1.Pod {
	return c.Pod(name, "is "+string(want), func(pod *corev1.Pod) error {
		switch phase := pod.Status.Phase; phase {
		case want:
			if want == corev1.PodRunning && !isTrue(pod, corev1.PodReady) {
				return errors.New("it is not ready")
			}
			return nil
		case corev1.PodFailed, corev1.PodSucceeded:
			return Failf("pod %s was to be %s, and is %s", name, want, phase)
		default:
			return fmt.Errorf("it is %s", phase)
		}
	})
}

// Delete deletes a pod. With force, the API server does not wait for the kubelet.
func (c *Case) Delete(name string, force bool) {
	var options metav1.DeleteOptions
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	if err := c.Kube.CoreV1().Pods(c.Namespace).Delete(c.ctx, name, options); !apierrors.IsNotFound(err) {
		c.Must(err)
	}
}

// Gone waits until the kubelet lets a pod go: its claims are unprepared then.
func (c *Case) Gone(name string) {
	c.Until("pod "+name+" is gone, which the kubelet keeps until its claims are unprepared", func() error {
		_, err := c.Kube.CoreV1().Pods(c.Namespace).Get(c.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("it is still there")
		}
		return err
	})
}

// Stop deletes a pod, and waits until it is gone.
func (c *Case) Stop(name string) {
	c.Delete(name, false)
	c.Gone(name)
}
