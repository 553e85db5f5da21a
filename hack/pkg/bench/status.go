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

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// StatusPackage is the directory with the API server for [Bench.StatusWrites]
// in a tree.
const StatusPackage = "test/integration/dra/devicestatus"

const (
	// statusWrites is how often each driver writes in each turn.
	statusWrites = 1
	// goalStatus is for the throughput with authorization in relation to that without.
	goalStatus = 0.9
)

// StatusTable shows the result of [Bench.StatusWrites] in Markdown.
func StatusTable(results []Comparison) string {
	return comparisonTable([3]string{"status of devices, server-side apply", "gate off, writes/s", "gate on, writes/s"}, results)
}

// StatusWrites has drivers write the status of their devices, all at the same time, with and
// without the check whether they may. The two API servers are of the same tree.
func (b *Bench) StatusWrites(ctx context.Context, tree Tree) (Comparison, error) {
	var servers [2]func() (time.Duration, error)
	drivers := 0
	for i, gate := range []string{"off", "on"} {
		s := &statusServer{}
		stop, err := b.serve(ctx, tree, "status-gate-"+gate, service{StatusPackage, "DEVICESTATUS_SERVE", []string{"DEVICESTATUS_SERVE_GATE=" + gate}}, s)
		if err != nil {
			return Comparison{}, fmt.Errorf("gate %s: %w", gate, err)
		}
		defer stop()
		if err := s.prepare(ctx, gate == "on"); err != nil {
			return Comparison{}, fmt.Errorf("gate %s: %w", gate, err)
		}
		servers[i] = func() (time.Duration, error) { return s.write(ctx) }
		drivers = len(s.Drivers)
	}
	return compare(fmt.Sprintf("%d drivers at the same time", drivers), goalStatus, drivers*statusWrites, servers)
}

// statusServer is an API server in which drivers write the status of their devices.
type statusServer struct {
	Host, Version, Namespace string
	Drivers                  []statusDriver
}

// statusDriver is a driver with a device that is allocated in a claim.
type statusDriver struct {
	// Token is that of its service account.
	Name, Token, Claim, Pool, Device string

	client client
	n      int
}

// prepare connects all drivers, and checks that the server is what it should be: whether
// a driver may write what belongs to another one tells.
func (s *statusServer) prepare(ctx context.Context, checks bool) error {
	if len(s.Drivers) < 2 {
		return fmt.Errorf("%d drivers in the API server, want more", len(s.Drivers))
	}
	for i := range s.Drivers {
		s.Drivers[i].client = newClient(s.Host, s.Drivers[i].Token)
	}
	// Not counted: connections, caches, and the first write of each.
	if _, err := s.write(ctx); err != nil {
		return err
	}
	other, want := s.Drivers[1], http.StatusOK
	other.client = s.Drivers[0].client
	if checks {
		want = http.StatusUnprocessableEntity
	}
	if err := s.apply(ctx, &other, "&dryRun=All", want); err != nil {
		return fmt.Errorf("a driver that writes the status of another one's device: %w", err)
	}
	return nil
}

// write has all drivers write at the same time, and returns how long it took.
func (s *statusServer) write(ctx context.Context) (time.Duration, error) {
	errs := make([]error, len(s.Drivers))
	var all sync.WaitGroup
	start := time.Now()
	for i := range s.Drivers {
		all.Go(func() {
			for range statusWrites {
				if errs[i] = s.apply(ctx, &s.Drivers[i], "", http.StatusOK); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start), errors.Join(errs...)
}

// apply writes the status of the driver's device. It is different each time.
func (s *statusServer) apply(ctx context.Context, d *statusDriver, options string, want int) error {
	d.n++
	type object map[string]any
	body, err := json.Marshal(object{
		"apiVersion": "resource.k8s.io/" + s.Version, "kind": "ResourceClaim", "metadata": object{"name": d.Claim},
		"status": object{"devices": []object{{
			"driver": d.Name, "pool": d.Pool, "device": d.Device,
			"conditions": []object{{
				"type": "Ready", "status": "True", "reason": "Attached", "message": fmt.Sprintf("seen %d times", d.n),
				"lastTransitionTime": "2026-01-02T03:04:05Z",
			}},
			"data": object{"cniVersion": "1.1.0", "interfaces": []object{{"name": "net1", "mac": "ea:9f:cb:40:b2:7d", "mtu": 1500, "sandbox": "/run/netns/pod"}}},
			"networkData": object{
				"interfaceName": "net1", "ips": []string{"10.9.8.7/24", "2001:db8::1/64"}, "hardwareAddress": "ea:9f:cb:40:b2:7d",
			},
		}}},
	})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/resource.k8s.io/%s/namespaces/%s/resourceclaims/%s/status?fieldManager=%s&force=true%s", s.Version, s.Namespace, d.Claim, d.Name, options)
	return d.client.send(ctx, http.MethodPatch, path, "application/apply-patch+yaml", string(body), want)
}
