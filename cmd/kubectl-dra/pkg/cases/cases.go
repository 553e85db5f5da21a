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

// Package cases reads the test cases of kubectl dra: objects, and the cause that has to be found first. The same
// cases run against an API server that only knows these objects, and against a real cluster.
package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	drav1beta1 "k8s.io/dynamic-resource-allocation/api/v1beta1"
	drav1beta2 "k8s.io/dynamic-resource-allocation/api/v1beta2"
	"sigs.k8s.io/yaml"
)

// Case is a file.
type Case struct {
	// ID is the name of the file. CASE stands for it everywhere in it.
	ID string `json:"-"`
	// Cause is the id that has to come first.
	Cause string `json:"cause"`
	// About is what "kubectl dra why" is asked.
	About string `json:"about"`
	// Common are names of objects in common.yaml, which come before the others.
	Common []string `json:"common,omitempty"`
	// Objects are created one after the other. One that is there already is changed. "deleted: true" deletes it.
	Objects []map[string]any `json:"objects,omitempty"`
	// Faked is what components would do to the objects, where there are none. In a real cluster they do.
	Faked []map[string]any `json:"faked,omitempty"`
	// Real are objects that only a real cluster needs.
	Real []map[string]any `json:"real,omitempty"`
	// Skip says why the case cannot be seeded in a real cluster.
	Skip string `json:"skip,omitempty"`
	// Carry is true if the case is about fields of the carry.
	Carry bool `json:"carry,omitempty"`
	// Since is the oldest release whose API server keeps all fields with its default gates, and where
	// they are a fault.
	Since string `json:"since,omitempty"`

	common map[string]map[string]any
}

// Load reads a folder of cases. The files common.yaml and cluster.yaml are for all of them.
func Load(dir string) ([]*Case, error) {
	common := map[string]map[string]any{}
	if err := Read(filepath.Join(dir, "common.yaml"), "CASE", &common); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "cases", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var list []*Case
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".yaml")
		c := &Case{ID: id}
		if err := Read(file, id, c); err != nil {
			return nil, err
		}
		if c.Cause == "" || c.About == "" {
			return nil, fmt.Errorf("%s: cause and about are needed", file)
		}
		c.common = map[string]map[string]any{}
		if err := Read(filepath.Join(dir, "common.yaml"), id, &c.common); err != nil {
			return nil, err
		}
		for _, name := range c.Common {
			if c.common[name] == nil {
				return nil, fmt.Errorf("%s: common.yaml has no %q", file, name)
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// Read reads a file in which CASE stands for the id. It is a template, too, because some claims have 256 consumers.
func Read(file, id string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := template.New(file).Funcs(template.FuncMap{
		"words": strings.Fields,
		"ago": func(text string) (string, error) {
			d, err := time.ParseDuration(text)
			return strconv.Quote(time.Now().Add(-d).UTC().Format(time.RFC3339)), err
		},
	}).Parse(strings.ReplaceAll(string(data), "CASE", id))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, nil); err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text.Bytes(), into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Object is one step of a case.
type Object struct {
	*unstructured.Unstructured
	// Deleted is true if it gets deleted.
	Deleted bool
}

// clusterScoped are the kinds in cases that have no namespace. Where there is an API server, Cluster.Client asks it.
var clusterScoped = sets.New("Node", "Namespace", "DeviceClass", "ResourceSlice", "DeviceTaintRule", "ClusterRole", "ClusterRoleBinding")

// Steps returns the objects in a namespace, for an API server with components or for one without. The version is
// that of resource.k8s.io. Each call makes new ones.
func (c *Case) Steps(namespace, version string, real bool) ([]Object, error) {
	var raw []map[string]any
	for _, name := range c.Common {
		raw = append(raw, c.common[name])
	}
	raw = append(raw, c.Objects...)
	if real {
		raw = append(raw, c.Real...)
	} else {
		raw = append(raw, c.Faked...)
	}
	var steps []Object
	for i, o := range raw {
		step, err := newStep(o, namespace, version, real)
		if err != nil {
			return nil, fmt.Errorf("case %s, object %d: %w", c.ID, i, err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func newStep(raw map[string]any, namespace, version string, real bool) (Object, error) {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(toJSON(raw))}
	deleted, _, err := unstructured.NestedBool(o.Object, "deleted")
	if err != nil {
		return Object{}, err
	}
	delete(o.Object, "deleted")
	if o.GetKind() == "Namespace" {
		o.SetName(namespace)
	}
	if !clusterScoped.Has(o.GetKind()) && o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	if o.GetKind() == "Pod" {
		completePod(o)
	}
	if o.GetKind() == "Event" {
		if err := unstructured.SetNestedField(o.Object, namespace, "involvedObject", "namespace"); err != nil {
			return Object{}, err
		}
	}
	if real && o.GetKind() == "Pod" {
		// Others say how it is.
		delete(o.Object, "status")
	}
	if !real {
		setDefaults(o)
	}
	o, err = Convert(o, version)
	return Object{o, deleted}, err
}

// toJSON has the numbers that unstructured objects have.
func toJSON(raw map[string]any) map[string]any {
	data, err := json.Marshal(raw)
	if err != nil {
		// It was YAML.
		panic(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return raw
	}
	return u.Object
}

// completePod adds what all pods of cases have, so that cases show what they are about.
func completePod(o *unstructured.Unstructured) {
	spec, _ := o.Object["spec"].(map[string]any)
	if spec == nil {
		return
	}
	if spec["containers"] == nil {
		spec["containers"] = []any{map[string]any{"name": "main", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent", "command": []any{"sleep", "1000000"}}}
	}
	if spec["tolerations"] == nil {
		spec["tolerations"] = []any{map[string]any{"key": "kwok.x-k8s.io/node", "operator": "Exists"}}
	}
	spec["terminationGracePeriodSeconds"], spec["automountServiceAccountToken"] = int64(1), false
}

// setDefaults sets those of the API server that matter.
func setDefaults(o *unstructured.Unstructured) {
	path := []string{"spec", "devices", "requests"}
	switch o.GetKind() {
	case "ResourceClaim":
	case "ResourceClaimTemplate":
		path = append([]string{"spec"}, path...)
	default:
		return
	}
	requests, _, _ := unstructured.NestedSlice(o.Object, path...)
	for _, r := range requests {
		request, _ := r.(map[string]any)
		list, _ := request["firstAvailable"].([]any)
		for _, r := range append(list, request["exactly"]) {
			if exactly, ok := r.(map[string]any); ok && exactly["allocationMode"] == nil {
				exactly["allocationMode"], exactly["count"] = "ExactCount", int64(1)
			}
		}
	}
	if requests != nil {
		// It fails only if something on the path is no map.
		_ = unstructured.SetNestedSlice(o.Object, requests, path...)
	}
}

var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{resourcev1.AddToScheme, drav1beta1.AddToScheme, drav1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
}

// CarryFields are those that upstream's API does not have.
var CarryFields = [][]string{{"spec", "reservedFor"}, {"spec", "spec", "reservedFor"}, {"status", "allocation", "reservedForAnyPod"}}

// Convert returns an object of resource.k8s.io/v1 in another version. The fields of the carry, which upstream's
// types lack, are taken over.
func Convert(o *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	gvk := o.GroupVersionKind()
	if gvk.Group != resourcev1.GroupName || gvk.Version != "v1" || version == "v1" {
		return o, nil
	}
	from, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, from); err != nil {
		return nil, err
	}
	to, err := newObject(gvk.Kind, version)
	if err != nil {
		return nil, err
	}
	if err := scheme.Convert(from, to, nil); err != nil {
		return nil, err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(to)
	if err != nil {
		return nil, err
	}
	for _, path := range CarryFields {
		if value, found, _ := unstructured.NestedFieldCopy(o.Object, path...); found {
			if err := unstructured.SetNestedField(object, value, path...); err != nil {
				return nil, err
			}
		}
	}
	if o.Object["spec"] == nil {
		delete(object, "spec")
	}
	if o.Object["status"] == nil {
		delete(object, "status")
	}
	result := &unstructured.Unstructured{Object: object}
	result.SetGroupVersionKind(schema.GroupVersionKind{Group: gvk.Group, Version: version, Kind: gvk.Kind})
	return result, nil
}

func newObject(kind, version string) (runtime.Object, error) {
	objects := map[string]runtime.Object{
		"v1beta1/ResourceClaim": &resourcev1beta1.ResourceClaim{}, "v1beta1/ResourceClaimTemplate": &resourcev1beta1.ResourceClaimTemplate{},
		"v1beta1/DeviceClass": &resourcev1beta1.DeviceClass{}, "v1beta1/ResourceSlice": &resourcev1beta1.ResourceSlice{},
		"v1beta2/ResourceClaim": &resourcev1beta2.ResourceClaim{}, "v1beta2/ResourceClaimTemplate": &resourcev1beta2.ResourceClaimTemplate{},
		"v1beta2/DeviceClass": &resourcev1beta2.DeviceClass{}, "v1beta2/ResourceSlice": &resourcev1beta2.ResourceSlice{},
		"v1beta1/DeviceTaintRule": &resourcev1beta2.DeviceTaintRule{}, "v1beta2/DeviceTaintRule": &resourcev1beta2.DeviceTaintRule{},
	}
	if o := objects[version+"/"+kind]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("there is no %s in %s", kind, version)
}

// uidOf stands for the UID of an object that was created before: UID(pod/train).
var uidOf = regexp.MustCompile(`UID\(([a-z.]+/[^)]+)\)`)

// ResolveUIDs replaces those in an object.
func ResolveUIDs(o *unstructured.Unstructured, uid func(object string) (string, error)) error {
	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	var failed error
	text := uidOf.ReplaceAllStringFunc(string(data), func(match string) string {
		value, err := uid(uidOf.FindStringSubmatch(match)[1])
		if err != nil {
			failed = err
		}
		return value
	})
	if failed != nil {
		return failed
	}
	return o.UnmarshalJSON([]byte(text))
}
