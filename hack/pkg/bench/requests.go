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
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// Goals for the throughput of the patched API server in relation to the unpatched one.
const (
	goalWithoutFlag = 0.98
	goalWithFlag    = 0.8
	// goalStatus is for the gate on in relation to off.
	goalStatus = 0.9
)

// newClaims is how many are created of each kind in each tree.
const newClaims = 1000

// Claims compares an API server of each tree: how fast claims get created, without and with admin access.
func (b *Bench) Claims(ctx context.Context) ([]Comparison, error) {
	var servers [2]*server
	for i, tree := range []Tree{b.Unpatched, b.Patched} {
		binary, err := b.compile(ctx, tree, ClaimsPackage)
		if err != nil {
			return nil, err
		}
		s, stop, err := b.serve(ctx, program{tree: tree, pkg: ClaimsPackage, binary: binary, log: fmt.Sprintf("claims-%d", i), variable: "ADMINACCESS_SERVE"})
		if err != nil {
			return nil, err
		}
		defer stop()
		if err := s.prepare(ctx); err != nil {
			return nil, err
		}
		servers[i] = s
	}
	var results []Comparison
	for i, what := range []string{"claims created without admin access", "claims created with admin access"} {
		b.Log("%s", what)
		const n = newClaims / rounds / 2
		goal := []float64{goalWithoutFlag, goalWithFlag}[i]
		result, err := compare(what, goal, n, func(s int) error { return servers[s].createClaims(ctx, i == 1, n) })
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// prepare makes a namespace, and does what is not counted: connections, caches.
func (s *server) prepare(ctx context.Context) error {
	// This key counts without our changes, too, where the namespace is checked.
	labels := object{"resource.kubernetes.io/admin-access": "true"}
	if err := s.send(ctx, http.MethodPost, "/api/v1/namespaces", "application/json", object{"metadata": object{"name": "bench", "labels": labels}}, http.StatusCreated); err != nil {
		return err
	}
	return errors.Join(s.createClaims(ctx, false, newClaims/10), s.createClaims(ctx, true, newClaims/10))
}

// createClaims creates claims one after the other.
func (s *server) createClaims(ctx context.Context, flag bool, n int) error {
	for range n {
		s.n++
		request := object{"deviceClassName": "class"}
		if flag {
			request["adminAccess"] = true
		}
		if s.Version == "v1" || s.Version == "v1beta2" {
			request = object{"exactly": request}
		}
		request["name"] = "r"
		claim := object{"metadata": object{"name": fmt.Sprintf("claim-%d", s.n)}, "spec": object{"devices": object{"requests": []object{request}}}}
		if err := s.send(ctx, http.MethodPost, s.claims("bench"), "application/json", claim, http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

// StatusWrites has drivers write the status of their devices, all at the same time, without and
// with the check whether they may. The two API servers are of the patched tree.
func (b *Bench) StatusWrites(ctx context.Context) (Comparison, error) {
	binary, err := b.compile(ctx, b.Patched, StatusPackage)
	if err != nil {
		return Comparison{}, err
	}
	var servers [2]*server
	for i, gate := range []string{"off", "on"} {
		s, stop, err := b.serve(ctx, program{tree: b.Patched, pkg: StatusPackage, binary: binary, log: "status-gate-" + gate,
			variable: "DEVICESTATUS_SERVE", env: []string{"DEVICESTATUS_SERVE_GATE=" + gate}})
		if err != nil {
			return Comparison{}, err
		}
		defer stop()
		if err := s.prepareDrivers(ctx, gate == "on"); err != nil {
			return Comparison{}, fmt.Errorf("gate %s: %w", gate, err)
		}
		servers[i] = s
	}
	drivers := len(servers[0].Drivers)
	what := fmt.Sprintf("%d drivers write the status of their devices, gate off and on", drivers)
	b.Log("%s", what)
	return compare(what, goalStatus, drivers, func(i int) error { return servers[i].writeAll(ctx) })
}

// prepareDrivers connects all drivers, and checks that the server is what it should be: whether
// a driver may write what belongs to another one tells.
func (s *server) prepareDrivers(ctx context.Context, checks bool) error {
	if len(s.Drivers) < 2 {
		return fmt.Errorf("%d drivers in the API server, want more", len(s.Drivers))
	}
	for i := range s.Drivers {
		d := &s.Drivers[i]
		d.as = server{Host: s.Host}
		d.as.login(d.Token)
	}
	// Not counted: connections, caches, and the first write of each.
	if err := s.writeAll(ctx); err != nil {
		return err
	}
	foreign, want := s.Drivers[1], http.StatusOK
	foreign.as = s.Drivers[0].as
	if checks {
		want = http.StatusUnprocessableEntity
	}
	if err := s.apply(ctx, &foreign, "&dryRun=All", want); err != nil {
		return fmt.Errorf("a driver that writes the status of another one's device: %w", err)
	}
	return nil
}

// writeAll has all drivers write at the same time.
func (s *server) writeAll(ctx context.Context) error {
	errs := make([]error, len(s.Drivers))
	var all sync.WaitGroup
	for i := range s.Drivers {
		all.Go(func() { errs[i] = s.apply(ctx, &s.Drivers[i], "", http.StatusOK) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// apply writes the status of the driver's device. It is different each time.
func (s *server) apply(ctx context.Context, d *driver, options string, want int) error {
	d.n++
	body := object{
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
	}
	path := fmt.Sprintf("%s/%s/status?fieldManager=%s&force=true%s", s.claims(s.Namespace), d.Claim, d.Name, options)
	return d.as.send(ctx, http.MethodPatch, path, "application/apply-patch+yaml", body, want)
}

// Throttled compares how fast pods are bound without and with DRASharedClaims when the scheduler may send
// few requests, or the API server does not answer as it should. The test does that, and knows the goals.
func (b *Bench) Throttled(ctx context.Context) (results []Comparison, err error) {
	binary, err := b.compile(ctx, b.Patched, ThrottledPackage)
	if err != nil {
		return nil, err
	}
	b.Log("pods of a throttled scheduler, which takes most of an hour")
	running, err := b.start(ctx, program{tree: b.Patched, pkg: ThrottledPackage, binary: binary, log: "throttled",
		variable: "RESERVEDFOR_THROTTLED_REPORT", args: []string{"-test.run=^TestThrottled$", "-test.timeout=0", "-test.v"}})
	if err != nil {
		return nil, err
	}
	defer running.stop(0)
	return results, running.wait(ctx, &results)
}
