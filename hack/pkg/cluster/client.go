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
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const resourceGroup = "resource.k8s.io"

// Client accesses a cluster of any release. Objects of resource.k8s.io are
// unstructured: the published client libraries do not know our fields, and
// their version depends on the release.
type Client struct {
	kubernetes.Interface
	Dynamic dynamic.Interface
	// Version is the newest one of resource.k8s.io which has
	// ResourceClaims.
	Version string
}

// NewClient returns a client of the administrator's.
func (c *Cluster) NewClient(ctx context.Context) (*Client, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return ClientFor(ctx, config)
}

// ClientFor is a client of a cluster that may be another one than those of this package. It changes
// config.
func ClientFor(ctx context.Context, config *rest.Config) (*Client, error) {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// Lists of a thousand pods are much cheaper like that.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var groups *metav1.APIGroupList
	err = poll(ctx, 10*time.Second, "API groups", func(context.Context) error {
		groups, err = client.Discovery().ServerGroups()
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, group := range groups.Groups {
		if group.Name != resourceGroup {
			continue
		}
		// Best first. v1alpha3 has had no ResourceClaims since 1.33.
		for _, version := range group.Versions {
			if slices.Contains([]string{"v1", "v1beta2", "v1beta1"}, version.Version) {
				return &Client{Interface: client, Dynamic: dynamicClient, Version: version.Version}, nil
			}
		}
	}
	return nil, fmt.Errorf("the API server does not serve %s", resourceGroup)
}

// Manifest is the file with a manifest of the examples, for a server whose newest version of
// the API is the given one. A server without v1 has v1beta1.
func Manifest(name, version string) string {
	if version != "v1" {
		name += "-v1beta1"
	}
	return name + ".yaml"
}

// Resource identifies one of resource.k8s.io.
func (c *Client) Resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: resourceGroup, Version: c.Version, Resource: name}
}

// Claims are those of a namespace.
func (c *Client) Claims(namespace string) dynamic.ResourceInterface {
	return c.Dynamic.Resource(c.Resource("resourceclaims")).Namespace(namespace)
}

func (c *Client) object(kind, name string, fields map[string]any) *unstructured.Unstructured {
	object := map[string]any{
		"apiVersion": resourceGroup + "/" + c.Version,
		"kind":       kind,
		"metadata":   map[string]any{"name": name},
	}
	for key, value := range fields {
		object[key] = value
	}
	return &unstructured.Unstructured{Object: object}
}

// DeviceClass returns one for all devices of a driver.
func (c *Client) DeviceClass(name, driver string) *unstructured.Unstructured {
	return c.object("DeviceClass", name, map[string]any{
		"spec": map[string]any{
			"selectors": []any{map[string]any{"cel": map[string]any{"expression": fmt.Sprintf("device.driver == %q", driver)}}},
		},
	})
}

// ResourceSlice returns a pool of devices which can be reached from all nodes
// that have the label, or from all nodes if it is empty.
func (c *Client) ResourceSlice(name, driver string, devices []string, label, value string) *unstructured.Unstructured {
	var list []any
	for _, device := range devices {
		entry := map[string]any{"name": device}
		if c.Version == "v1beta1" {
			entry["basic"] = map[string]any{}
		}
		list = append(list, entry)
	}
	spec := map[string]any{
		"driver":  driver,
		"pool":    map[string]any{"name": name, "generation": int64(1), "resourceSliceCount": int64(1)},
		"devices": list,
	}
	if label == "" {
		spec["allNodes"] = true
	} else {
		spec["nodeSelector"] = map[string]any{"nodeSelectorTerms": []any{map[string]any{
			"matchExpressions": []any{map[string]any{"key": label, "operator": "In", "values": []any{value}}},
		}}}
	}
	return c.object("ResourceSlice", name, map[string]any{"spec": spec})
}

// Consumer is what a claim is reserved for. The UID may be empty.
type Consumer struct {
	APIGroup, Resource, Name string
	UID                      types.UID
}

// Claim returns one for a device, reserved for each of its pods if there is no
// consumer.
func (c *Client) Claim(name, class string, consumer *Consumer) *unstructured.Unstructured {
	spec := c.claimSpec(map[string]any{"deviceClassName": class})
	if consumer != nil {
		ref := map[string]any{"apiGroup": consumer.APIGroup, "resource": consumer.Resource, "name": consumer.Name}
		if consumer.UID != "" {
			ref["uid"] = string(consumer.UID)
		}
		spec["reservedFor"] = ref
	}
	return c.object("ResourceClaim", name, map[string]any{"spec": spec})
}

// AdminClaim returns one with admin access to a device, or to all devices of the class. The
// allocation mode is ExactCount or All.
func (c *Client) AdminClaim(name, class, allocationMode string) *unstructured.Unstructured {
	spec := c.claimSpec(map[string]any{"deviceClassName": class, "adminAccess": true, "allocationMode": allocationMode})
	return c.object("ResourceClaim", name, map[string]any{"spec": spec})
}

// claimSpec has one request with the given fields.
func (c *Client) claimSpec(request map[string]any) map[string]any {
	if c.Version != "v1beta1" {
		request = map[string]any{"exactly": request}
	}
	request["name"] = "device"
	return map[string]any{"devices": map[string]any{"requests": []any{request}}}
}

// ClaimStatus is what matters of a claim.
type ClaimStatus struct {
	UID               types.UID
	Allocated         bool
	ReservedForAnyPod bool
	Devices           []string
	Consumers         []Consumer
	// Size is that of the object as JSON, without the list of managed
	// fields.
	Size int
	// ResourceVersion changes with each write.
	ResourceVersion string
}

// Workloads are the consumers that are not pods.
func (s *ClaimStatus) Workloads() []Consumer {
	return slices.DeleteFunc(slices.Clone(s.Consumers), func(c Consumer) bool { return c.Resource == "pods" && c.APIGroup == "" })
}

// Free is true if nobody has the devices.
func (s *ClaimStatus) Free() bool { return !s.Allocated && len(s.Consumers) == 0 }

// ReadClaim extracts the status of a claim.
func ReadClaim(claim *unstructured.Unstructured) (*ClaimStatus, error) {
	bare := claim.DeepCopy()
	bare.SetManagedFields(nil)
	content, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	var typed struct {
		Status struct {
			ReservedFor []Consumer
			Allocation  *struct {
				ReservedForAnyPod bool
				Devices           struct {
					Results []struct{ Driver, Pool, Device string }
				}
			}
		}
	}
	if err := json.Unmarshal(content, &typed); err != nil {
		return nil, err
	}
	status := &ClaimStatus{
		UID:             claim.GetUID(),
		Consumers:       typed.Status.ReservedFor,
		Size:            len(content),
		ResourceVersion: claim.GetResourceVersion(),
	}
	if allocation := typed.Status.Allocation; allocation != nil {
		status.Allocated = true
		status.ReservedForAnyPod = allocation.ReservedForAnyPod
		for _, result := range allocation.Devices.Results {
			status.Devices = append(status.Devices, result.Driver+"/"+result.Pool+"/"+result.Device)
		}
	}
	return status, nil
}

// GetClaim reads a claim.
func (c *Client) GetClaim(ctx context.Context, namespace, name string) (*ClaimStatus, error) {
	claim, err := c.Claims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return ReadClaim(claim)
}

// Replace creates an object which belongs to no namespace, in place of one that
// may be there.
func (c *Client) Replace(ctx context.Context, resource string, object *unstructured.Unstructured) error {
	objects := c.Dynamic.Resource(c.Resource(resource))
	return poll(ctx, 30*time.Second, "create "+object.GetKind()+" "+object.GetName(), func(ctx context.Context) error {
		_, err := objects.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			if err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			return errors.New("an old one was in the way")
		}
		return err
	})
}

// NewNamespace creates a namespace, with the account that pods need.
func (c *Client) NewNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return poll(ctx, 2*time.Minute, "namespace "+name, func(ctx context.Context) error {
		if _, err := c.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err := c.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// DeleteNamespace deletes a namespace with all that is in it, and waits until
// it is gone.
func (c *Client) DeleteNamespace(ctx context.Context, name string, timeout time.Duration) error {
	return poll(ctx, timeout, "delete namespace "+name, func(ctx context.Context) error {
		err := c.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil && !apierrors.IsConflict(err) {
			return err
		}
		return errors.New("it is still there")
	})
}

// JobLabel has the name of its Job on each pod.
const JobLabel = "dra.example.com/job"

// PodSpec is one that waits, with a claim.
func PodSpec(claim string, command string) corev1.PodSpec {
	if command == "" {
		command = "sleep 1000000"
	}
	grace, account := int64(1), false
	return corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &account,
		Tolerations:                   []corev1.Toleration{{Key: SimulatedAnnotation, Operator: corev1.TolerationOpExists}},
		ResourceClaims:                []corev1.PodResourceClaim{{Name: "shared", ResourceClaimName: &claim}},
		Containers: []corev1.Container{{
			Name:            "main",
			Image:           ShellImage,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Command:         []string{"sh", "-c", command},
			Resources:       corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "shared"}}},
		}},
	}
}

// Job returns one whose pods all run at once.
func Job(name string, pods int32, spec corev1.PodSpec) *batchv1.Job {
	limit := int32(0)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Parallelism:  &pods,
			Completions:  &pods,
			BackoffLimit: &limit,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{JobLabel: name}},
				Spec:       spec,
			},
		},
	}
}

// PodCounts says how far pods are.
type PodCounts struct {
	All, Bound, Running, Ended int
	// OnReal are those that run on the real node.
	OnReal int
	// Waiting is why one of those that do not run does not, Ending how one of those that ended did.
	Waiting, Ending string
}

// ending describes a pod that ended.
func ending(pod *corev1.Pod) string {
	text := fmt.Sprintf("%s on %s: %s %s %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, container := range pod.Status.ContainerStatuses {
		for _, state := range []*corev1.ContainerStateTerminated{container.State.Terminated, container.LastTerminationState.Terminated} {
			if state != nil {
				text += fmt.Sprintf("; %s: exit code %d, %s %s", container.Name, state.ExitCode, state.Reason, state.Message)
			}
		}
	}
	return text
}

// CountPods counts the pods with a label that there are now. The API server has that in its cache, too.
func (c *Client) CountPods(ctx context.Context, namespace, selector string) (PodCounts, error) {
	var n PodCounts
	pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return n, err
	}
	n.All = len(pods.Items)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" {
			n.Bound++
		}
		switch pod.Status.Phase {
		case corev1.PodRunning:
			n.Running++
			if pod.Spec.NodeName == RealNode {
				n.OnReal++
			}
		case corev1.PodSucceeded, corev1.PodFailed:
			n.Ended++
			n.Ending = ending(&pod)
		default:
			n.Waiting = pod.Name + " waits"
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
					n.Waiting = fmt.Sprintf("%s: %s: %s", pod.Name, condition.Reason, condition.Message)
				}
			}
			for _, container := range pod.Status.ContainerStatuses {
				if w := container.State.Waiting; w != nil {
					n.Waiting = fmt.Sprintf("%s: %s: %s", pod.Name, w.Reason, w.Message)
				}
			}
		}
	}
	return n, nil
}
