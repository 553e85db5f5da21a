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

package driver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// ErrStatusDropped says that the API server does not store what drivers report.
var ErrStatusDropped = errors.New("the API server drops status.devices: enable the feature gate DRAResourceClaimDeviceStatus in kube-apiserver")

// StatusWriter writes the status of claims.
type StatusWriter interface {
	// Apply makes the devices those that the driver reports for the claim,
	// all of them at once. Errors are those of the API, or ErrStatusDropped.
	Apply(ctx context.Context, namespace, name string, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) error
}

// versions of the API, best first. status.devices is the same in all of them.
var versions = []string{"v1", "v1beta2", "v1beta1"}

// Applier writes by server-side apply, and gets claims, in whatever version of the API the server has.
//
// One field manager that applied device by device would lose all but the last:
// what a manager does not repeat is removed. So each apply has all of them.
type Applier struct {
	client  kubernetes.Interface
	driver  string
	manager string

	mutex   sync.Mutex
	version string // served by the API server, "" if not known yet
}

// NewApplier returns a writer for the driver on the given node.
func NewApplier(client kubernetes.Interface, driver, nodeName string) *Applier {
	return &Applier{client: client, driver: driver, manager: fieldManager(driver, nodeName)}
}

// fieldManager has the node's name: otherwise a node that cleans up late would
// remove what the next node has written for the same claim.
func fieldManager(driver, nodeName string) string {
	const limit = 128 // of the API
	manager := driver + "/" + nodeName
	if len(manager) > limit {
		manager = fmt.Sprintf("%.100s-%.8x", manager, sha256.Sum256([]byte(manager)))
	}
	return manager
}

// Apply implements [StatusWriter.Apply].
func (a *Applier) Apply(ctx context.Context, namespace, name string, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) error {
	version, err := a.apiVersion("")
	if err != nil {
		return err
	}
	stored, err := a.apply(ctx, version, namespace, name, uid, devices)
	if apierrors.IsNotFound(err) && !isGone(err, "resourceclaims", name) {
		// It is not the claim that is gone, but perhaps the version: after an
		// upgrade of the API server.
		current, discoverErr := a.apiVersion(version)
		if discoverErr != nil {
			return discoverErr
		}
		if current != version {
			stored, err = a.apply(ctx, current, namespace, name, uid, devices)
		}
	}
	if err != nil {
		return err
	}
	for _, device := range devices {
		if !slices.ContainsFunc(stored, func(s resourceapi.AllocatedDeviceStatus) bool {
			return s.Driver == device.Driver && s.Pool == device.Pool && s.Device == device.Device
		}) {
			return ErrStatusDropped
		}
	}
	return nil
}

// Get gets a claim. Its spec may be incomplete, because some of it differs between versions of the API.
// The error is one for which isGone is true only if that very claim does not exist.
func (a *Applier) Get(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	version, err := a.apiVersion("")
	if err != nil {
		return nil, err
	}
	claim, err := a.get(ctx, version, namespace, name)
	if apierrors.IsNotFound(err) && !isGone(err, "resourceclaims", name) {
		current, discoverErr := a.apiVersion(version)
		if discoverErr != nil {
			return nil, discoverErr
		}
		if current != version {
			claim, err = a.get(ctx, current, namespace, name)
		}
	}
	return claim, err
}

func (a *Applier) get(ctx context.Context, version, namespace, name string) (*resourceapi.ResourceClaim, error) {
	var stored runtime.Object
	var err error
	switch version {
	case "v1":
		return a.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	case "v1beta2":
		stored, err = a.client.ResourceV1beta2().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	default:
		stored, err = a.client.ResourceV1beta1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	claim := &resourceapi.ResourceClaim{}
	return claim, json.Unmarshal(encoded, claim)
}

// apiVersion returns the best version that is served. It asks the server if it
// does not know, or if the one it knows is in doubt.
func (a *Applier) apiVersion(inDoubt string) (string, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.version != inDoubt {
		return a.version, nil
	}
	groups, err := a.client.Discovery().ServerGroups()
	if err != nil {
		return "", fmt.Errorf("cannot find out which versions of %s the API server has: %w", resourceapi.GroupName, err)
	}
	var served []string
	for _, group := range groups.Groups {
		if group.Name == resourceapi.GroupName {
			for _, version := range group.Versions {
				served = append(served, version.Version)
			}
		}
	}
	for _, version := range versions {
		if slices.Contains(served, version) {
			a.version = version
			return version, nil
		}
	}
	return "", fmt.Errorf("the API server has none of the versions %v of %s that this driver knows, but %v", versions, resourceapi.GroupName, served)
}

func (a *Applier) apply(ctx context.Context, version, namespace, name string, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) ([]resourceapi.AllocatedDeviceStatus, error) {
	if devices == nil {
		devices = []resourceapi.AllocatedDeviceStatus{}
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": resourceapi.GroupName + "/" + version,
		"kind":       "ResourceClaim",
		"metadata": map[string]any{
			"namespace": namespace,
			"name":      name,
			"uid":       uid, // of another claim with this name, nothing is changed
		},
		"status": map[string]any{"devices": devices},
	})
	if err != nil {
		return nil, err
	}
	// The entries belong to this driver, whoever wrote them: a former version
	// of it, or somebody who repaired something by hand.
	force := true
	options := metav1.PatchOptions{FieldManager: a.manager, Force: &force}
	var claim runtime.Object
	switch version {
	case "v1":
		claim, err = a.client.ResourceV1().ResourceClaims(namespace).Patch(ctx, name, types.ApplyPatchType, patch, options, "status")
	case "v1beta2":
		claim, err = a.client.ResourceV1beta2().ResourceClaims(namespace).Patch(ctx, name, types.ApplyPatchType, patch, options, "status")
	default:
		claim, err = a.client.ResourceV1beta1().ResourceClaims(namespace).Patch(ctx, name, types.ApplyPatchType, patch, options, "status")
	}
	if err != nil {
		return nil, err
	}
	// Each version has a type of its own for the same thing.
	encoded, err := json.Marshal(claim)
	if err != nil {
		return nil, err
	}
	var stored struct {
		Status struct {
			Devices []resourceapi.AllocatedDeviceStatus `json:"devices"`
		} `json:"status"`
	}
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return nil, err
	}
	return stored.Status.Devices, nil
}
