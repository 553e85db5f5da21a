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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase of an attachment. It is stored before what it names is begun.
type Phase string

const (
	// Adding says that CNI ADD may have been run, in part or as a whole.
	Adding Phase = "Adding"
	// Added says that CNI ADD succeeded, and its result is stored.
	Added Phase = "Added"
	// Deleting says that CNI DEL has to be run.
	Deleting Phase = "Deleting"
)

// Claim is what the driver knows about a claim that was prepared.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Devices   []*Device `json:"devices"`
	// Reported says that entries in the status of the claim may exist.
	Reported bool `json:"reported,omitempty"`
	// Released says that the claim is not prepared any more. It is kept
	// until its status says so.
	Released bool `json:"released,omitempty"`
}

// Device is one that is allocated to a claim.
type Device struct {
	Pool string `json:"pool"`
	Name string `json:"name"`
	// InterfaceName that was asked for, if any.
	InterfaceName string `json:"interfaceName,omitempty"`
	// Network is the CNI network configuration. The copy makes sure that DEL
	// gets what ADD got.
	Network json.RawMessage `json:"network"`
	// Attachment is nil as long as the interface cannot exist.
	Attachment *Attachment `json:"attachment,omitempty"`
	// Ready is nil as long as there is nothing to report.
	Ready *Ready `json:"ready,omitempty"`
	// Former is what the last pod had that was detached, until the next is attached.
	Former *Former `json:"former,omitempty"`
	// began is when the driver last had something to do for the device, zero if that was before it started.
	began time.Time
}

// Former is what a pod had on an interface. If it gets another sandbox, because the node was rebooted or the
// sandbox failed, then it asks for the same again. Networks whose plugins have the capabilities "ips" and
// "mac" hear of that, see the conventions of the CNI project.
type Former struct {
	PodUID types.UID `json:"podUID"`
	IPs    []string  `json:"ips,omitempty"`
	MAC    string    `json:"mac,omitempty"`
}

// Attachment is the interface of a device in the network namespace of a pod.
type Attachment struct {
	Phase         Phase     `json:"phase"`
	PodNamespace  string    `json:"podNamespace"`
	PodName       string    `json:"podName"`
	PodUID        types.UID `json:"podUID"`
	SandboxID     string    `json:"sandboxID"`
	NetNS         string    `json:"netNS"`
	InterfaceName string    `json:"interfaceName"`
	// Former is what the interface should have again, if anything.
	Former *Former         `json:"former,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Ready is the condition of a device.
type Ready struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
	Since   metav1.Time            `json:"since"`
}

// Store keeps claims over restarts. What Save stored survives a crash.
type Store interface {
	Load() ([]*Claim, error)
	Save(*Claim) error
	Delete(types.UID) error
}

// Dir is a store with one file for each claim.
type Dir string

const suffix = ".json"

// Load reads all files.
func (d Dir) Load() ([]*Claim, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var claims []*Claim
	for _, entry := range entries {
		name := filepath.Join(string(d), entry.Name())
		if !strings.HasSuffix(name, suffix) {
			// The rest of a Save that was interrupted.
			if err := os.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		claim := &Claim{}
		if err := json.Unmarshal(data, claim); err != nil {
			return nil, fmt.Errorf("%s: %w; remove the file if nothing on this node uses the interfaces of the claim", name, err)
		}
		if string(claim.UID)+suffix != entry.Name() {
			return nil, fmt.Errorf("%s: it is about a claim with UID %q; remove the file if nothing on this node uses the interfaces of the claim", name, claim.UID)
		}
		claims = append(claims, claim)
	}
	return claims, nil
}

// Save replaces the file of the claim.
func (d Dir) Save(claim *Claim) error {
	data, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	return writeFile(d.file(claim.UID), data)
}

// Delete removes the file of the claim, if there is one.
func (d Dir) Delete(uid types.UID) error {
	if err := os.Remove(d.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(string(d))
}

func (d Dir) file(uid types.UID) string { return filepath.Join(string(d), string(uid)+suffix) }
