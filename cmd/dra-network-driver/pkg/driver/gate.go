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
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Gate keeps containers from being created as long as the devices of their claims
// are not connected. It holds also while the driver is not there.
type Gate interface {
	// ID is what a container needs that uses the device.
	ID(claim types.UID, device string) string
	// Set makes those IDs of a claim exist whose devices are attached, and no
	// others.
	Set(claim *Claim) error
	// Retain removes everything that is of none of the claims.
	Retain(claims []types.UID) error
}

// CDIGate is a [Gate] of files in the format of the Container Device Interface. The
// kubelet asks the container runtime for the device of a claim, and the runtime does
// not create a container with a device that no file describes.
//
// What a file adds to a container is a mount of the pod's network namespace. That ties
// it to the sandbox for which it was written: when the sandbox is replaced, the runtime
// removes its namespace, and what is gone cannot be mounted. A container that has its
// own namespace there can do nothing with it that it could not do with /proc/self/ns/net.
//
// The device belongs to the claim. It does not keep a second pod of the claim from starting: that is what the
// driver refuses while it is connected with the container runtime.
type CDIGate struct {
	// Dir is where the container runtime looks for files.
	Dir string
	// Driver is the name of the driver.
	Driver string
}

const (
	cdiVersion = "0.5.0"
	cdiClass   = "interface"
	// cdiMounts is the folder in containers with the namespace for each interface.
	cdiMounts = "/run/dra-network"
)

// cdiSpec is the part of a CDI specification that is needed here.
type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name           string   `json:"name"`
	ContainerEdits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Mounts []cdiMount `json:"mounts"`
}

type cdiMount struct {
	HostPath      string   `json:"hostPath"`
	ContainerPath string   `json:"containerPath"`
	Options       []string `json:"options"`
}

func (g CDIGate) kind() string { return g.Driver + "/" + cdiClass }

func (g CDIGate) name(claim types.UID, device string) string { return string(claim) + "_" + device }

// prefix is what the names of all files begin with.
func (g CDIGate) prefix() string { return g.Driver + "-" + cdiClass + "-" }

func (g CDIGate) file(claim types.UID) string {
	return filepath.Join(g.Dir, g.prefix()+string(claim)+".json")
}

// ID implements [Gate.ID].
func (g CDIGate) ID(claim types.UID, device string) string {
	return g.kind() + "=" + g.name(claim, device)
}

// Set implements [Gate.Set].
func (g CDIGate) Set(claim *Claim) error {
	spec := cdiSpec{Version: cdiVersion, Kind: g.kind()}
	for _, device := range claim.Devices {
		a := device.Attachment
		if a == nil || a.Phase != Added {
			continue
		}
		spec.Devices = append(spec.Devices, cdiDevice{
			Name: g.name(claim.UID, device.Name),
			ContainerEdits: cdiEdits{Mounts: []cdiMount{{
				HostPath:      a.NetNS,
				ContainerPath: cdiMounts + "/" + a.InterfaceName,
				Options:       []string{"bind", "ro", "nosuid", "nodev", "noexec"},
			}}},
		})
	}
	if len(spec.Devices) == 0 {
		if err := os.Remove(g.file(claim.UID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return writeFile(g.file(claim.UID), data)
}

// Retain implements [Gate.Retain].
func (g CDIGate) Retain(claims []types.UID) error {
	entries, err := os.ReadDir(g.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), g.prefix())
		if !ours {
			continue
		}
		uid, complete := strings.CutSuffix(rest, suffix)
		if !complete || !slices.Contains(claims, types.UID(uid)) {
			errs = append(errs, os.Remove(filepath.Join(g.Dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// writeFile replaces a file. Nobody sees a part of it, and after a crash it is either
// the former or the new one.
func writeFile(name string, data []byte) (err error) {
	dir, base := filepath.Split(name)
	f, err := os.CreateTemp(dir, strings.TrimSuffix(base, filepath.Ext(base))+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names of files durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("%s cannot be made durable: %w", dir, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
