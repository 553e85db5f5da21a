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

package downgrade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/openapi"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const namespace = "training"

var (
	claims    = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}
	templates = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaimtemplates"}

	job   = reference{APIGroup: "batch", Resource: "jobs", Name: "train", UID: "train-uid"}
	vm    = reference{APIGroup: "kubevirt.io", Resource: "virtualmachines", Name: "vm", UID: "vm-uid"}
	group = reference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: "group-uid"}
)

// newClaim is allocated for any pod of the job.
func newClaim(name string, change ...func(c *claim)) *claim {
	c := &claim{stored: stored{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}}}
	c.Spec.ReservedFor = &reference{APIGroup: job.APIGroup, Resource: job.Resource, Name: job.Name}
	c.Status.Allocation = &struct {
		ReservedForAnyPod *bool `json:"reservedForAnyPod,omitempty"`
	}{ReservedForAnyPod: ptr.To(true)}
	c.Status.ReservedFor = []reference{job}
	for _, change := range change {
		change(c)
	}
	return manage(c, "kube-scheduler")
}

// manage notes who wrote that of which nothing says so yet.
func manage(c *claim, manager string) *claim {
	c.managers = carryManagers
	if c.writers == nil {
		c.writers = writers{}
	}
	if c.writers[manager] == nil {
		c.writers[manager] = fieldpath.NewSet()
	}
	paths := []fieldpath.Path{allocationPath}
	for _, ref := range c.Status.ReservedFor {
		paths = append(paths, entryPath(ref))
	}
	for _, path := range paths {
		if len(c.writers.of(path)) == 0 {
			c.writers[manager].Insert(path)
		}
	}
	return c
}

// writtenBy is for what was changed before.
func writtenBy(manager string) func(c *claim) {
	return func(c *claim) { manage(c, manager) }
}

// dropped is what an API server of upstream makes of the claim.
func dropped(c *claim) {
	c.Spec.ReservedFor = nil
	if c.Status.Allocation != nil {
		c.Status.Allocation.ReservedForAnyPod = nil
	}
}

func deleted(c *claim) {
	c.DeletionTimestamp = ptr.To(metav1.Now())
}

// listed adds references to status.reservedFor.
func listed(refs ...reference) func(c *claim) {
	return func(c *claim) { c.Status.ReservedFor = append(c.Status.ReservedFor, refs...) }
}

func withRecord(refs ...reference) func(c *claim) {
	return func(c *claim) {
		text, _ := json.Marshal(refs)
		c.Annotations = map[string]string{recordAnnotation: string(text)}
	}
}

// noWorkload removes the job from status.reservedFor.
func noWorkload(c *claim) {
	c.Status.ReservedFor = nil
}

// ofJob turns the claim into one that was generated for the pods of the job.
func ofJob(c *claim) {
	c.Annotations = map[string]string{generatedForAnnotation: "jobs.batch/train/train-uid/template"}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}}
}

func podRef(i int) reference {
	return reference{Resource: "pods", Name: fmt.Sprintf("pod-%03d", i), UID: types.UID(fmt.Sprintf("pod-%03d-uid", i))}
}

func podRefs(n int) []reference {
	var refs []reference
	for i := range n {
		refs = append(refs, podRef(i))
	}
	return refs
}

func newPod(ref reference, claim string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name, UID: ref.UID},
		Spec:       corev1.PodSpec{NodeName: "node", ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}},
	}
}

func newPods(n int, claim string) []corev1.Pod {
	var pods []corev1.Pod
	for i := range n {
		pods = append(pods, newPod(podRef(i), claim))
	}
	return pods
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		claim       *claim
		pods        []corev1.Pod
		wantAction  action
		wantWhy     string
		add, remove []reference
	}{
		"pods fit":        {claim: newClaim("c"), pods: newPods(256, "c"), wantAction: actionList, wantWhy: "256 pods are added to its list, jobs.batch/train is removed", add: podRefs(256), remove: []reference{job}},
		"one pod":         {claim: newClaim("c"), pods: newPods(1, "c"), wantAction: actionList, wantWhy: "one pod is added", add: podRefs(1), remove: []reference{job}},
		"one too many":    {claim: newClaim("c"), pods: newPods(257, "c"), wantAction: actionStop, wantWhy: "at most 256 pods can be listed: end one pod, for instance by scaling jobs.batch/train down"},
		"many too many":   {claim: newClaim("c"), pods: newPods(300, "c"), wantAction: actionStop, wantWhy: "end 44 pods"},
		"no pods":         {claim: newClaim("c"), pods: newPods(3, "other"), wantAction: actionRelease, wantWhy: "no pod uses it: jobs.batch/train is removed", remove: []reference{job}},
		"generated":       {claim: newClaim("c", ofJob), pods: newPods(2, "c"), wantAction: actionList, wantWhy: "it was generated for several pods: upstream's kubelet does not start them again", add: podRefs(2), remove: []reference{job}},
		"generated, idle": {claim: newClaim("c", ofJob), wantAction: actionRelease, wantWhy: "no pod uses it: jobs.batch/train is removed, and the devices become free", remove: []reference{job}},
		"some are listed": {claim: newClaim("c", listed(podRefs(2)...)), pods: newPods(3, "c"), wantAction: actionList, add: []reference{podRef(2)}, remove: []reference{job}},
		// They count until the controller has removed them.
		"listed pods are gone":             {claim: newClaim("c", listed(podRefs(255)...)), wantAction: actionList, wantWhy: "0 pods are added", remove: []reference{job}},
		"listed pods are gone, no room":    {claim: newClaim("c", listed(podRefs(250)...)), pods: newPods(300, "c")[250:257], wantAction: actionStop, wantWhy: "end one pod"},
		"done before":                      {claim: newClaim("c", noWorkload, listed(podRefs(2)...), withRecord(job)), pods: newPods(2, "c"), wantAction: actionNone, wantWhy: "upstream drops the fields"},
		"listed again":                     {claim: newClaim("c", withRecord(job)), pods: newPods(1, "c"), wantAction: actionList, add: podRefs(1), remove: []reference{job}},
		"for any pod, no workload":         {claim: newClaim("c", noWorkload), pods: newPods(1, "c"), wantAction: actionList, wantWhy: "one pod is added to its list", add: podRefs(1)},
		"not allocated":                    {claim: newClaim("c", noWorkload, func(c *claim) { c.Status.Allocation = nil }), wantAction: actionNone},
		"allocated per pod":                {claim: newClaim("c", noWorkload, listed(podRefs(1)...), func(c *claim) { c.Status.Allocation.ReservedForAnyPod = nil }), pods: newPods(2, "c"), wantAction: actionNone},
		"being released":                   {claim: newClaim("c", noWorkload), wantAction: actionRelease, wantWhy: "no pod uses it: the devices become free"},
		"left behind":                      {claim: newClaim("c", dropped, noWorkload, withRecord(job)), wantAction: actionRelease, wantWhy: "no pod uses it: the devices become free"},
		"fields are dropped, no pods":      {claim: newClaim("c", dropped), wantAction: actionRelease, remove: []reference{job}},
		"fields are dropped already":       {claim: newClaim("c", dropped), pods: newPods(2, "c"), wantAction: actionList, add: podRefs(2), remove: []reference{job}},
		"group of pods stays":              {claim: newClaim("c", listed(group)), pods: newPods(1, "c"), wantAction: actionList, add: podRefs(1), remove: []reference{job}},
		"group of pods counts":             {claim: newClaim("c", listed(group)), pods: newPods(256, "c"), wantAction: actionStop, wantWhy: "end one pod"},
		"group of pods alone, with fields": {claim: newClaim("c", noWorkload, listed(group)), wantAction: actionNone},
		"foreign":                          {claim: newClaim("c", dropped, writtenBy("virt-controller")), wantAction: actionLeave, wantWhy: "jobs.batch/train was listed by virt-controller, not by the carry: it stays"},
		"foreign, with pods":               {claim: newClaim("c", dropped, writtenBy("virt-controller")), pods: newPods(2, "c"), wantAction: actionLeave, wantWhy: "was listed by virt-controller"},
		"foreign, with fields":             {claim: newClaim("c", writtenBy("virt-controller")), pods: newPods(1, "c"), wantAction: actionList, wantWhy: "one pod is added to its list; jobs.batch/train was listed by virt-controller", add: podRefs(1)},
		"foreign beside ours":              {claim: newClaim("c", writtenBy("kube-scheduler"), listed(vm), writtenBy("virt-controller")), wantAction: actionList, wantWhy: "0 pods are added to its list, jobs.batch/train is removed; virtualmachines.kubevirt.io/vm was listed by virt-controller", remove: []reference{job}},
		"nobody wrote it":                  {claim: newClaim("c", dropped, writtenBy("")), wantAction: actionLeave},
		"foreign allocation":               {claim: newClaim("c", noWorkload, writtenBy("other-scheduler")), wantAction: actionLeave, wantWhy: "it was allocated by other-scheduler, who has to free it"},
		"foreign allocation, forged":       {claim: newClaim("c", dropped, noWorkload, withRecord(job), writtenBy("other-scheduler")), wantAction: actionLeave, wantWhy: "it was allocated by other-scheduler, who has to free it"},
		"deleted, with pods":               {claim: newClaim("c", deleted), pods: newPods(2, "c"), wantAction: actionStop, wantWhy: "it is being deleted, and 2 of its pods cannot be listed anymore: end all of them"},
		"deleted, without pods":            {claim: newClaim("c", deleted), wantAction: actionRelease, remove: []reference{job}},
		"several workloads":                {claim: newClaim("c", listed(reference{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "web-uid"})), wantAction: actionRelease, wantWhy: "jobs.batch/train, deployments.apps/web is removed", remove: []reference{job, {APIGroup: "apps", Resource: "deployments", Name: "web", UID: "web-uid"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := decide(tc.claim, tc.pods)
			if s.action != tc.wantAction || !strings.Contains(s.why, tc.wantWhy) {
				t.Errorf("%s, %q", s.action, s.why)
			}
			if !apiequality.Semantic.DeepEqual(s.add, tc.add) || !apiequality.Semantic.DeepEqual(s.remove, tc.remove) {
				t.Errorf("add %v, remove %v", s.add, s.remove)
			}
		})
	}
}

// TestUsers covers which pods need the claim.
func TestUsers(t *testing.T) {
	c := newClaim("c")
	generated := newClaim("generated", func(c *claim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod-000", UID: "pod-000-uid", Controller: ptr.To(true)}}
	})
	forSeveral := newClaim("generated", ofJob)
	ofTemplate := func(ref reference) corev1.Pod {
		pod := newPod(ref, "")
		pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "device", ResourceClaimTemplateName: ptr.To("template")}
		pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "device", ResourceClaimName: ptr.To("generated")}}
		return pod
	}
	change := func(pod corev1.Pod, change func(pod *corev1.Pod)) corev1.Pod {
		change(&pod)
		return pod
	}
	for name, tc := range map[string]struct {
		claim *claim
		pod   corev1.Pod
		want  bool
	}{
		"running":           {claim: c, pod: newPod(podRef(0), "c"), want: true},
		"other claim":       {claim: c, pod: newPod(podRef(0), "d")},
		"other namespace":   {claim: c, pod: change(newPod(podRef(0), "c"), func(pod *corev1.Pod) { pod.Namespace = "other" })},
		"not on a node":     {claim: c, pod: change(newPod(podRef(0), "c"), func(pod *corev1.Pod) { pod.Spec.NodeName = "" })},
		"succeeded":         {claim: c, pod: change(newPod(podRef(0), "c"), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })},
		"failed":            {claim: c, pod: change(newPod(podRef(0), "c"), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })},
		"terminating":       {claim: c, pod: change(newPod(podRef(0), "c"), func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }), want: true},
		"generated":         {claim: generated, pod: ofTemplate(podRef(0)), want: true},
		"forged reference":  {claim: generated, pod: ofTemplate(podRef(1))},
		"for several":       {claim: forSeveral, pod: ofTemplate(podRef(1)), want: true},
		"not yet generated": {claim: generated, pod: change(ofTemplate(podRef(0)), func(pod *corev1.Pod) { pod.Status.ResourceClaimStatuses = nil })},
	} {
		if users := tc.claim.users([]corev1.Pod{tc.pod}); len(users) == 1 != tc.want {
			t.Errorf("%s: %v", name, users)
		}
	}
}

func TestDecideBack(t *testing.T) {
	after := []func(c *claim){noWorkload, listed(podRefs(2)...), withRecord(job)}
	for name, tc := range map[string]struct {
		claim       *claim
		pods        []corev1.Pod
		wantAction  action
		wantWhy     string
		add, remove []reference
	}{
		"nothing was done": {claim: newClaim("c"), wantAction: actionNone},
		"restored":         {claim: newClaim("c", after...), wantAction: actionRestore, wantWhy: "jobs.batch/train is listed again, and stands for its pods", add: []reference{job}, remove: podRefs(2)},
		"interrupted":      {claim: newClaim("c", withRecord(job)), wantAction: actionRestore},
		"full":             {claim: newClaim("c", noWorkload, listed(podRefs(256)...), withRecord(job)), wantAction: actionRestore, add: []reference{job}, remove: podRefs(256)},
		"group of pods":    {claim: newClaim("c", noWorkload, listed(group), withRecord(job)), wantAction: actionRestore, add: []reference{job}},
		"dropped":          {claim: newClaim("c", append(slices.Clone(after), dropped)...), wantAction: actionForget, wantWhy: "To reserve it for its workload again, create it anew"},
		"reallocated by upstream": {claim: newClaim("c", append(slices.Clone(after), func(c *claim) { c.Status.Allocation.ReservedForAnyPod = nil })...),
			wantAction: actionForget, wantWhy: "until the claim gets allocated again"},
		"not allocated":  {claim: newClaim("c", noWorkload, withRecord(job), func(c *claim) { c.Status.Allocation = nil }), wantAction: actionForget},
		"deleted":        {claim: newClaim("c", append(slices.Clone(after), deleted)...), wantAction: actionForget},
		"forged":         {claim: newClaim("c", noWorkload, listed(podRefs(2)...), withRecord(vm)), wantAction: actionForget, wantWhy: "the annotation does not tell which workload was listed"},
		"forged beside":  {claim: newClaim("c", noWorkload, listed(podRefs(2)...), withRecord(vm, job, podRef(7))), wantAction: actionRestore, add: []reference{job}, remove: podRefs(2)},
		"broken":         {claim: newClaim("c", noWorkload, listed(podRefs(2)...), func(c *claim) { c.Annotations = map[string]string{recordAnnotation: "x"} }), wantAction: actionForget},
		"foreign pods":   {claim: newClaim("c", noWorkload, listed(podRefs(2)...), withRecord(job), writtenBy("somebody")), wantAction: actionRestore, add: []reference{job}},
		"left":           {claim: newClaim("c", dropped, noWorkload, withRecord(job)), wantAction: actionRelease, wantWhy: "the workload cannot be listed again: the devices become free"},
		"left, in use":   {claim: newClaim("c", dropped, noWorkload, withRecord(job)), pods: newPods(1, "c"), wantAction: actionForget},
		"left, foreign":  {claim: newClaim("c", dropped, noWorkload, withRecord(job), writtenBy("other-scheduler")), wantAction: actionForget},
		"left, broken":   {claim: newClaim("c", noWorkload, func(c *claim) { c.Annotations = map[string]string{recordAnnotation: "x"} }), wantAction: actionRelease},
		"left, restored": {claim: newClaim("c", noWorkload, withRecord(job)), wantAction: actionRestore, add: []reference{job}},
	} {
		t.Run(name, func(t *testing.T) {
			s := decideBack(tc.claim, tc.pods)
			if s.action != tc.wantAction || !strings.Contains(s.why, tc.wantWhy) {
				t.Errorf("%s, %q", s.action, s.why)
			}
			if !apiequality.Semantic.DeepEqual(s.add, tc.add) || !apiequality.Semantic.DeepEqual(s.remove, tc.remove) {
				t.Errorf("add %v, remove %v", s.add, s.remove)
			}
		})
	}
}

// fakeCluster answers as an API server does.
type fakeCluster struct {
	*run
	client *dynamicfake.FakeDynamicClient
	// fail gets called before each write.
	fail func(name, subresource string) error
	// controller is true while a controller of the carry runs.
	controller bool
	version    int
	writes     []string
	dryRuns    int
	t          *testing.T
	mutex      sync.Mutex
}

func newCluster(t *testing.T, pods []corev1.Pod, claimsBefore ...*claim) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, controller: true, client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{claims: "ResourceClaimList", templates: "ResourceClaimTemplateList"})}
	for _, c := range claimsBefore {
		f.set(t, c)
	}
	kube := fake.NewClientset()
	for i := range pods {
		if err := kube.Tracker().Add(&pods[i]); err != nil {
			t.Fatal(err)
		}
	}
	f.client.PrependReactor("patch", "resourceclaims", f.patch)
	f.run = &run{kube: kube, dynamic: f.client, resource: claims, apply: true, managers: carryManagers}
	// The controller frees what nobody has.
	f.client.PrependReactor("get", "resourceclaims", func(action cgotesting.Action) (bool, runtime.Object, error) {
		name := action.(cgotesting.GetAction).GetName()
		if _, err := f.client.Tracker().Get(claims, namespace, name); err != nil || !f.controller {
			return false, nil, nil
		}
		if c := f.get(t, name); c.isForAnyPod() && len(c.Status.ReservedFor) == 0 {
			f.change(t, name, func(c *claim) { c.Status.Allocation = nil })
		}
		return false, nil, nil
	})
	return f
}

// set stores a claim with a new ResourceVersion.
func (f *fakeCluster) set(t *testing.T, c *claim) {
	t.Helper()
	manage(c, "kube-scheduler")
	c.ManagedFields = nil
	for manager, fields := range c.writers {
		raw, err := fields.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw}})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.stored)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: content}
	obj.SetAPIVersion("resource.k8s.io/v1")
	obj.SetKind("ResourceClaim")
	f.version++
	obj.SetResourceVersion(fmt.Sprint(f.version))
	err = f.client.Tracker().Update(claims, obj, obj.GetNamespace())
	if apierrors.IsNotFound(err) {
		err = f.client.Tracker().Create(claims, obj, obj.GetNamespace())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fakeCluster) get(t *testing.T, name string) *claim {
	t.Helper()
	obj, err := f.client.Tracker().Get(claims, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseClaim(obj.(*unstructured.Unstructured), carryManagers)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// change is what somebody else does to a claim.
func (f *fakeCluster) change(t *testing.T, name string, change func(c *claim)) {
	t.Helper()
	c := f.get(t, name)
	change(c)
	f.set(t, c)
}

func (f *fakeCluster) patch(action cgotesting.Action) (bool, runtime.Object, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	patch := action.(cgotesting.PatchAction)
	f.writes = append(f.writes, strings.TrimSuffix(patch.GetName()+"/"+patch.GetSubresource(), "/"))
	if f.fail != nil {
		if err := f.fail(patch.GetName(), patch.GetSubresource()); err != nil {
			return true, nil, err
		}
	}
	stored, err := f.client.Tracker().Get(claims, patch.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	before := stored.(*unstructured.Unstructured)
	var want unstructured.Unstructured
	if err := json.Unmarshal(patch.GetPatch(), &want.Object); err != nil {
		return true, nil, err
	}
	if want.GetResourceVersion() != before.GetResourceVersion() || want.GetUID() != before.GetUID() {
		return true, nil, apierrors.NewConflict(claims.GroupResource(), patch.GetName(), errors.New("it was modified"))
	}
	data, err := before.MarshalJSON()
	if err != nil {
		return true, nil, err
	}
	// Of the type, only the merge keys matter. A merge patch is the same where there are no lists.
	if data, err = strategicpatch.StrategicMergePatch(data, patch.GetPatch(), &resourceapi.ResourceClaim{}); err != nil {
		return true, nil, err
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(data); err != nil {
		return true, nil, err
	}
	c, err := parseClaim(after, carryManagers)
	if err != nil {
		return true, nil, err
	}
	if len(c.Status.ReservedFor) > maxReservedFor {
		return true, nil, errors.New("too many entries")
	}
	if len(patch.(cgotesting.PatchActionImpl).PatchOptions.DryRun) > 0 {
		f.dryRuns++
		return true, after, nil
	}
	manage(c, fieldManager)
	f.set(f.t, c)
	latest, err := f.client.Tracker().Get(claims, patch.GetNamespace(), patch.GetName())
	return true, latest, err
}

func (f *fakeCluster) mustDo(t *testing.T) []step {
	t.Helper()
	steps, err := f.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// isDone returns true if upstream understands the claim, and knows all its pods.
func isDone(c *claim, pods int) bool {
	ours, foreign := c.workloads()
	return len(ours)+len(foreign) == 0 && len(c.Status.ReservedFor) == pods
}

func TestRun(t *testing.T) {
	pods := append(newPods(3, "used"), newPods(300, "large")[3:]...)
	before := []*claim{newClaim("used"), newClaim("idle"), newClaim("large"), newClaim("plain", dropped, noWorkload, listed(podRefs(1)...))}
	f := newCluster(t, pods, before...)

	f.apply = false
	preview := f.mustDo(t)
	if len(f.writes) > 0 {
		t.Errorf("writes without --apply: %v", f.writes)
	}
	f.apply = true
	steps := f.mustDo(t)
	if !apiequality.Semantic.DeepEqual(summary(preview), summary(steps)) {
		t.Errorf("said %v, did %v", summary(preview), summary(steps))
	}
	if want := []string{"idle release 0", "large stop 297", "used list 3"}; !slices.Equal(summary(steps), want) {
		t.Errorf("%v", summary(steps))
	}
	if !isDone(f.get(t, "used"), 3) || !isDone(f.get(t, "idle"), 0) {
		t.Errorf("%+v\n%+v", f.get(t, "used"), f.get(t, "idle"))
	}
	if c := f.get(t, "large"); !apiequality.Semantic.DeepEqual(c.Status, before[2].Status) || c.Annotations != nil {
		t.Errorf("a claim was changed whose pods do not fit: %+v", c)
	}

	f.writes = nil
	f.mustDo(t)
	if len(f.writes) > 0 {
		t.Errorf("writes in the second run: %v", f.writes)
	}

	f.back = true
	if got, want := summary(f.mustDo(t)), []string{"idle forget 0", "used restore 3"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := f.get(t, "used"); !slices.Equal(got.Status.ReservedFor, []reference{job}) {
		t.Errorf("%+v", got)
	}
	if got := f.mustDo(t); len(got) > 0 {
		t.Errorf("%v", summary(got))
	}
}

// TestReleased covers claims that nobody uses: their devices must be free at the end.
func TestReleased(t *testing.T) {
	f := newCluster(t, nil, newClaim("of-the-carry"), newClaim("of-upstream", dropped), newClaim("left", dropped, noWorkload, withRecord(job)), newClaim("plain", dropped, noWorkload))
	f.mustDo(t)
	for _, name := range []string{"of-the-carry", "of-upstream", "left"} {
		if c := f.get(t, name); c.Status.Allocation != nil || len(c.Status.ReservedFor) > 0 {
			t.Errorf("%+v", c)
		}
	}
	// A driver may have allocated it.
	if c := f.get(t, "plain"); c.Status.Allocation == nil {
		t.Errorf("%+v", c)
	}

	// Nobody else has to do it.
	f = newCluster(t, nil, newClaim("c"))
	f.controller = false
	f.mustDo(t)
	if c := f.get(t, "c"); c.Status.Allocation != nil {
		t.Errorf("%+v", c)
	}
}

func summary(steps []step) []string {
	var lines []string
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("%s %s %d", s.name, s.action, s.users))
	}
	return lines
}

// TestInterrupted ends a run before each of its writes, and runs again.
func TestInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		claim  *claim
		pods   int
		back   bool
		isDone func(c *claim) bool
	}{
		"list":     {claim: newClaim("c"), pods: 2, isDone: func(c *claim) bool { return c.isRecorded() && isDone(c, 2) }},
		"release":  {claim: newClaim("c"), isDone: isFree},
		"no entry": {claim: newClaim("c", noWorkload), isDone: isFree},
		"upstream": {claim: newClaim("c", dropped), isDone: isFree},
		"restore":  {claim: newClaim("c", noWorkload, listed(podRefs(2)...), withRecord(job)), pods: 2, back: true, isDone: func(c *claim) bool { return !c.isRecorded() && slices.Contains(c.Status.ReservedFor, job) }},
		"forget":   {claim: newClaim("c", dropped, noWorkload, listed(podRefs(2)...), withRecord(job)), pods: 2, back: true, isDone: func(c *claim) bool { return !c.isRecorded() }},
		"left":     {claim: newClaim("c", dropped, noWorkload, withRecord(job)), back: true, isDone: isFree},
	} {
		for last := range 4 {
			// The controller is down, or one of upstream. It would hide what this leaves.
			f := newCluster(t, newPods(tc.pods, "c"), tc.claim)
			f.controller, f.back = false, tc.back
			writes := 0
			f.fail = func(string, string) error {
				if writes++; writes > last {
					return errors.New("connection lost")
				}
				return nil
			}
			if _, err := f.do(t.Context()); writes > last && (err == nil || !strings.Contains(err.Error(), "ResourceClaim training/c: connection lost")) {
				t.Errorf("%s: after %d writes: %v", name, last, err)
			}
			// What was stored is also found after the server has become one of upstream.
			for _, upstream := range []bool{false, true} {
				if upstream && last == 0 && name == "no entry" {
					// Nothing tells that it was the carry which left it.
					continue
				}
				stored := f.get(t, "c")
				again := newCluster(t, newPods(tc.pods, "c"), stored)
				again.controller, again.back = false, tc.back
				if upstream {
					again.change(t, "c", dropped)
				}
				again.mustDo(t)
				c := again.get(t, "c")
				if !tc.isDone(c) && (!upstream || c.Status.Allocation != nil && len(c.Status.ReservedFor) == 0) {
					t.Errorf("%s, interrupted after %d writes, upstream %v: %+v", name, last, upstream, c)
				}
			}
		}
	}
}

// isFree returns true if nobody has the devices.
func isFree(c *claim) bool {
	return c.Status.Allocation == nil && len(c.Status.ReservedFor) == 0
}

// TestTogether has two runs at the same time.
func TestTogether(t *testing.T) {
	var all []*claim
	for i := range 20 {
		all = append(all, newClaim(fmt.Sprintf("idle-%d", i)), newClaim(fmt.Sprintf("used-%d", i)))
	}
	var pods []corev1.Pod
	for i := range 20 {
		pods = append(pods, newPod(podRef(i), fmt.Sprintf("used-%d", i)))
	}
	f := newCluster(t, pods, all...)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := f.do(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		if c := f.get(t, fmt.Sprintf("idle-%d", i)); !isFree(c) {
			t.Errorf("%+v", c)
		}
		if c := f.get(t, fmt.Sprintf("used-%d", i)); !isDone(c, 1) || c.Status.Allocation == nil {
			t.Errorf("%+v", c)
		}
	}
}

// TestPodComesLate covers a pod that starts to use a claim while its devices get freed.
func TestPodComesLate(t *testing.T) {
	f := newCluster(t, nil, newClaim("c"))
	started := false
	f.fail = func(_, subresource string) error {
		if subresource == "status" && !started {
			started = true
			pod := newPod(podRef(0), "c")
			return f.kube.(*fake.Clientset).Tracker().Add(&pod)
		}
		return nil
	}
	f.controller = false
	_, err := f.do(t.Context())
	if c := f.get(t, "c"); c.Status.Allocation == nil || !isDone(c, 1) {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestListedAgain covers a scheduler with the feature, which lists the workload again.
func TestListedAgain(t *testing.T) {
	f := newCluster(t, newPods(2, "c"), newClaim("c"))
	done := false
	f.client.PrependReactor("list", "resourceclaims", func(cgotesting.Action) (bool, runtime.Object, error) {
		if c := f.get(t, "c"); !done && isDone(c, 2) {
			done = true
			listed(job)(c)
			f.set(t, c)
		}
		return false, nil, nil
	})
	if _, err := f.do(t.Context()); err == nil || !strings.Contains(err.Error(), "training/c: somebody changed it again") || !strings.Contains(err.Error(), "DRAReservedForWorkloads") {
		t.Errorf("%v", err)
	}
}

// TestDryRun asks the API server about the same changes.
func TestDryRun(t *testing.T) {
	f := newCluster(t, newPods(2, "used"), newClaim("used"), newClaim("idle"))
	before := []*claim{f.get(t, "used"), f.get(t, "idle")}
	f.dryRun = true
	steps := f.mustDo(t)
	if after := []*claim{f.get(t, "used"), f.get(t, "idle")}; f.dryRuns != 4 || !apiequality.Semantic.DeepEqual(summaryOf(before), summaryOf(after)) {
		t.Errorf("%d requests, %v", f.dryRuns, summaryOf(after))
	}
	f.dryRun = false
	if done := f.mustDo(t); !apiequality.Semantic.DeepEqual(summary(steps), summary(done)) || steps[0].why != done[0].why || steps[1].why != done[1].why {
		t.Errorf("said %v, did %v", steps, done)
	}
}

func summaryOf(claims []*claim) []string {
	var lines []string
	for _, c := range claims {
		lines = append(lines, fmt.Sprint(c.Name, c.ResourceVersion, c.Status.ReservedFor, c.Annotations, c.Status.Allocation != nil))
	}
	return lines
}

// TestConflict changes claims while they get changed.
func TestConflict(t *testing.T) {
	f := newCluster(t, newPods(2, "c"), newClaim("c"), newClaim("gone"), newClaim("forbidden"))
	changed := false
	f.fail = func(name, subresource string) error {
		switch {
		case name == "forbidden":
			return apierrors.NewForbidden(claims.GroupResource(), name, errors.New("no role"))
		case name == "gone":
			return f.client.Tracker().Delete(claims, namespace, name)
		case subresource == "status" && !changed:
			changed = true
			f.change(t, "c", listed(podRef(0)))
		}
		return nil
	}
	steps, err := f.do(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ResourceClaim training/forbidden: ") {
		t.Errorf("%v", err)
	}
	if got, want := summary(steps), []string{"c list 2", "gone none 0"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if c := f.get(t, "c"); !isDone(c, 2) {
		t.Errorf("%+v", c)
	}
}

// TestTemplates covers which templates are something else without the carry.
func TestTemplates(t *testing.T) {
	f := newCluster(t, nil)
	for name, reservedFor := range map[string]map[string]any{
		"one": {"apiGroup": "batch", "resource": "jobs"}, "another": {"resource": "pods"}, "plain": nil,
	} {
		spec := map[string]any{"devices": map[string]any{}}
		if reservedFor != nil {
			spec["reservedFor"] = reservedFor
		}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": map[string]any{"namespace": namespace, "name": name},
			"spec": map[string]any{"spec": spec},
		}}
		if err := f.client.Tracker().Create(templates, obj, namespace); err != nil {
			t.Fatal(err)
		}
	}
	found, err := f.run.listTemplates(t.Context())
	want := []template{{namespace, "another", "pods"}, {namespace, "one", "jobs.batch"}}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestPrint(t *testing.T) {
	steps := []step{
		{namespace: "a", name: "first", holds: []string{"jobs.batch/train"}, users: 300, action: actionStop, why: "end 44 pods"},
		{namespace: "b", name: "second", holds: []string{"jobs.batch/train"}, users: 2, action: actionList, why: "2 pods are added to its list"},
	}
	const rows = `NAMESPACE   CLAIM    RESERVED FOR       PODS   ACTION   WHY
a           first    jobs.batch/train   300    stop     end 44 pods
b           second   jobs.batch/train   2      list     2 pods are added to its list
`
	for name, tc := range map[string]struct {
		options   options
		steps     []step
		templates []template
		want      string
	}{
		"table":   {steps: steps, want: rows + "\nNothing was changed. Use --apply to do this.\n"},
		"applied": {options: options{apply: true}, steps: steps, want: rows},
		"nothing": {want: "No ResourceClaim has anything that a release of upstream does not know.\n"},
		"templates": {templates: []template{{"a", "imex", "jobs.batch"}}, want: "No ResourceClaim has anything that a release of upstream does not know.\n\n" +
			"A release of upstream generates a claim for each pod from these ResourceClaimTemplates, and needs devices for each. Replace or delete them:\n  a/imex: one claim for each of jobs.batch\n"},
		"upstream": {options: options{refused: true}, steps: steps, want: rows},
		"dry run":  {options: options{apply: true, dryRun: "server"}, steps: steps, want: rows + "\nNothing was changed. The API server accepts this.\n"},
		"hostile": {options: options{apply: true}, steps: []step{{namespace: "a", name: "first", holds: []string{"jobs/\u202e\x1b[2J"}, action: actionLeave, why: "\u2066"}}, want: `NAMESPACE   CLAIM   RESERVED FOR     PODS   ACTION   WHY
a           first   jobs/��[2J       0      leave    �
`},
		"json": {options: options{output: "json"}, steps: steps[1:], want: "\"action\": \"list\""},
		"yaml": {options: options{output: "yaml"}, steps: steps[1:], want: "- action: list\n  name: second\n  namespace: b\n"},
	} {
		var out bytes.Buffer
		tc.options.streams = genericiooptions.IOStreams{Out: &out}
		if err := tc.options.print(tc.steps, tc.templates); err != nil || tc.options.output == "" && out.String() != tc.want || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s, %v:\n%s", name, err, out.String())
		}
	}
	o := options{refused: true}
	if err := o.unfinished(steps, nil); err == nil || !strings.Contains(err.Error(), "the API server is one of upstream") || !strings.Contains(err.Error(), "--on-upstream") {
		t.Errorf("%v", err)
	}
	o.refused = false
	if err := o.unfinished(steps, nil); err == nil || !strings.HasPrefix(err.Error(), "one claim has pods that cannot be listed: ") {
		t.Errorf("%v", err)
	}
	if err := o.unfinished(steps[1:], nil); err != nil {
		t.Error(err)
	}
}

// TestUnfinished covers what the user has to do after a run. Upstream would do none of it.
func TestUnfinished(t *testing.T) {
	const kept, oneTemplate = "one claim keeps what somebody else wrote", "one ResourceClaimTemplate has spec.spec.reservedFor: replace or delete it"
	applied := options{apply: true, dryRun: "none"}
	unwritten := newClaim("c", dropped)
	unwritten.writers = writers{}
	beside := newClaim("c", writtenBy("kube-scheduler"), listed(vm), writtenBy("virt-controller"))
	for name, tc := range map[string]struct {
		options   options
		claim     *claim
		pods      []corev1.Pod
		templates []template
		want      []string
	}{
		"all is done":            {options: applied, claim: newClaim("c"), pods: newPods(2, "c")},
		"foreign beside ours":    {options: applied, claim: beside, want: []string{kept}},
		"foreign, with fields":   {options: applied, claim: newClaim("c", writtenBy("virt-controller")), pods: newPods(1, "c"), want: []string{kept}},
		"foreign, workload":      {options: applied, claim: newClaim("c", func(c *claim) { c.Status.Allocation.ReservedForAnyPod = nil }, writtenBy("virt-controller")), want: []string{kept}},
		"foreign, for any pod":   {options: applied, claim: newClaim("c", func(c *claim) { c.Spec.ReservedFor = nil }, writtenBy("virt-controller")), want: []string{kept}},
		"foreign, next run":      {options: applied, claim: newClaim("c", dropped, withRecord(job), writtenBy("virt-controller")), want: []string{kept}},
		"foreign, generated":     {options: applied, claim: newClaim("c", dropped, ofJob, writtenBy("virt-controller")), want: []string{kept}},
		"foreign, nobody's":      {options: applied, claim: unwritten, want: []string{kept}},
		"foreign allocation":     {options: applied, claim: newClaim("c", noWorkload, writtenBy("other-scheduler")), want: []string{kept}},
		"not of the carry":       {options: applied, claim: newClaim("c", dropped, writtenBy("virt-controller"))},
		"template":               {options: applied, claim: newClaim("c"), templates: []template{{namespace, "one", "jobs.batch"}}, want: []string{oneTemplate}},
		"templates":              {options: applied, claim: newClaim("c"), templates: make([]template, 2), want: []string{"2 ResourceClaimTemplates have spec.spec.reservedFor: replace or delete them"}},
		"stop, and a template":   {options: applied, claim: newClaim("c", listed(vm), writtenBy("virt-controller")), pods: newPods(257, "c"), templates: make([]template, 1), want: []string{"one claim has pods that cannot be listed", oneTemplate}},
		"only reported":          {options: options{dryRun: "none"}, claim: beside, templates: make([]template, 1)},
		"only asked the server":  {options: options{apply: true, dryRun: "server"}, claim: beside, templates: make([]template, 1)},
		"only reported, to stop": {options: options{dryRun: "none"}, claim: newClaim("c"), pods: newPods(257, "c"), want: []string{"one claim has pods that cannot be listed"}},
	} {
		err := tc.options.unfinished([]step{decide(tc.claim, tc.pods)}, tc.templates)
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: want %q, got %v", name, tc.want, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
	}
}

// A server that cannot be reached is told apart from one without the API.
func TestConnect(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/apis" {
			_, _ = io.WriteString(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
			return
		}
		_, _ = io.WriteString(w, `{"kind": "APIVersions", "versions": []}`)
	}))
	defer empty.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for host, want := range map[string]string{empty.URL: "serves no ResourceClaims", gone.URL: "cannot reach"} {
		config := genericclioptions.NewConfigFlags(false)
		cache := t.TempDir()
		config.APIServer, config.CacheDir = &host, &cache
		o := &options{config: config}
		if _, err := o.connect(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", host, err, want)
		}
	}
}

// fakeSchema is what an API server publishes about one version of an API.
type fakeSchema map[string]string

func (f fakeSchema) Paths() (map[string]openapi.GroupVersion, error) {
	paths := map[string]openapi.GroupVersion{}
	for name, text := range f {
		paths[name] = schemaText(text)
	}
	return paths, nil
}

type schemaText string

func (s schemaText) Schema(string) ([]byte, error) { return []byte(s), nil }
func (s schemaText) ServerRelativeURL() string     { return "" }

func TestHasCarry(t *testing.T) {
	const name = "apis/resource.k8s.io/v1beta1"
	schemaOf := func(fields string) string {
		return `{"components": {"schemas": {"io.k8s.api.resource.v1beta1.ResourceClaim": {}, "io.k8s.api.resource.v1beta1.ResourceClaimSpec": {"properties": {` + fields + `}}}}}`
	}
	for what, tc := range map[string]struct {
		schema fakeSchema
		want   bool
		err    string
	}{
		"carry":     {schema: fakeSchema{name: schemaOf(`"devices": {}, "reservedFor": {}`)}, want: true},
		"upstream":  {schema: fakeSchema{name: schemaOf(`"devices": {}`)}},
		"no schema": {schema: fakeSchema{}, err: "it publishes no schema of " + name},
		"no type":   {schema: fakeSchema{name: "{}"}, err: "has no ResourceClaimSpec"},
		"no JSON":   {schema: fakeSchema{name: "<"}, err: "schema of " + name},
	} {
		got, err := HasCarry(tc.schema, schema.GroupVersion{Group: "resource.k8s.io", Version: "v1beta1"})
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}
