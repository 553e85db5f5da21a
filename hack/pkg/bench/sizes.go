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
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// largestWrites is how often the largest status is written in each tree.
	largestWrites = 1000
	// goalLargest is for the throughput in relation to that of the unpatched API server.
	goalLargest = 0.95
	// goalHostile is for the requests in a second of CPU: it may use a tenth more.
	goalHostile = 0.909
	// largestBody is what an API server reads, but for what is around the devices.
	largestBody = 3<<20 - 64<<10
)

// The limits of a status, and a message with which all of it fits into etcd.
const (
	sizeDevices, sizeConditions, sizeIPs = 32, 8, 16
	sizeData, sizeReason, sizeMessage    = 10 << 10, 1 << 10, 2 << 10
)

// SizesTables shows the results of [Bench.StatusSizes] in Markdown.
func SizesTables(largest, hostile []Comparison) string {
	return comparisonTable([3]string{"largest status, update", "unpatched, writes/s", "patched, writes/s"}, largest) + "\n" +
		comparisonTable([3]string{"largest body that is refused", "unpatched, requests/s of CPU", "patched, requests/s of CPU"}, hostile)
}

// StatusSizes writes the largest status that there can be, and has the largest ones refused that cannot be,
// in an API server of each tree. The servers are those of [Bench.Claims].
func (b *Bench) StatusSizes(ctx context.Context, patched, unpatched Tree) (largest, hostile []Comparison, err error) {
	var servers [2]*sizesServer
	for i, name := range []string{"unpatched", "patched"} {
		server := &sizesServer{}
		stop, pid, err := b.serveProcess(ctx, []Tree{unpatched, patched}[i], "sizes-"+name, service{pkg: ClaimsPackage, variable: "ADMINACCESS_SERVE"}, &server.claimServer)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		defer stop()
		server.pid, server.client = pid, newClient(server.Host, server.Token)
		if err := server.prepare(ctx); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		servers[i] = server
	}
	const n = largestWrites / rounds / 2
	result, err := compare(fmt.Sprintf("%d devices with all that they may have, %d times", sizeDevices, largestWrites), goalLargest, n, [2]func() (time.Duration, error){
		func() (time.Duration, error) { return servers[0].write(ctx, n) },
		func() (time.Duration, error) { return servers[1].write(ctx, n) },
	})
	if err != nil {
		return nil, nil, err
	}
	largest = append(largest, result)
	for _, server := range servers {
		if err := server.put(ctx, hostileDevices(sizeData), http.StatusOK); err != nil {
			return nil, nil, err
		}
	}
	for _, body := range []struct {
		what    string
		devices []object
	}{{"many entries for one device", manyEntries()}, {"much data for each device", hostileDevices(largestBody / sizeDevices)}} {
		result, err := compare(body.what, goalHostile, 1, [2]func() (time.Duration, error){
			func() (time.Duration, error) { return servers[0].refused(ctx, body.devices) },
			func() (time.Duration, error) { return servers[1].refused(ctx, body.devices) },
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", body.what, err)
		}
		hostile = append(hostile, result)
	}
	return largest, hostile, nil
}

// object is what a user would write in JSON.
type object = map[string]any

// sizesServer is an API server with a claim in which everything is as large as it may be.
type sizesServer struct {
	claimServer
	pid int
	// claim has all but the devices of its status.
	claim object
}

const sizesPath = "/apis/resource.k8s.io/%s/namespaces/bench/resourceclaims%s"

// prepare makes the claim.
func (s *sizesServer) prepare(ctx context.Context) error {
	if err := s.post(ctx, "/api/v1/namespaces", `{"metadata":{"name":"bench"}}`); err != nil {
		return err
	}
	request := object{"deviceClassName": "class"}
	if s.Version == "v1" || s.Version == "v1beta2" {
		request = object{"exactly": request}
	}
	request["name"] = "r"
	s.claim = object{"metadata": object{"name": "claim"}, "spec": object{"devices": object{"requests": []object{request}}}}
	body, err := json.Marshal(s.claim)
	if err != nil {
		return err
	}
	if err := s.post(ctx, fmt.Sprintf(sizesPath, s.Version, ""), string(body)); err != nil {
		return err
	}
	var results []object
	for i := range sizeDevices {
		result := sizeDevice(i)
		result["request"] = "r"
		results = append(results, result)
	}
	s.claim["status"] = object{"allocation": object{"devices": object{"results": results}}}
	if err := s.put(ctx, nil, http.StatusOK); err != nil {
		return err
	}
	// Not counted: connections, caches.
	_, err = s.write(ctx, 2)
	return err
}

// put replaces the devices in the status.
func (s *sizesServer) put(ctx context.Context, devices []object, want int) error {
	s.claim["status"].(object)["devices"] = devices
	body, err := json.Marshal(s.claim)
	if err != nil {
		return err
	}
	return s.client.send(ctx, http.MethodPut, fmt.Sprintf(sizesPath, s.Version, "/claim/status"), "application/json", string(body), want)
}

// write writes all devices n times, each time with other reasons.
func (s *sizesServer) write(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		s.n++
		if err := s.put(ctx, largestDevices(s.n), http.StatusOK); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// refused makes a request that must be refused, and returns how long CPUs were busy with that.
func (s *sizesServer) refused(ctx context.Context, devices []object) (time.Duration, error) {
	before, err := readCPU(s.pid)
	if err != nil {
		return 0, err
	}
	if err := s.put(ctx, devices, http.StatusUnprocessableEntity); err != nil {
		return 0, err
	}
	after, err := readCPU(s.pid)
	if err == nil && after <= before {
		err = errors.New("the API server did nothing for it")
	}
	return after - before, err
}

// readCPU is [cpuTime] but in tests.
var readCPU = cpuTime

// cpuTime is how long a process has been running on all CPUs.
func cpuTime(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		name := fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name())
		content, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			// A thread that ended.
			continue
		} else if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(content), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

func sizeDevice(i int) object {
	return object{"driver": "driver.example.com", "pool": "pool", "device": fmt.Sprintf("device-%d", i)}
}

// fillTo makes a text longer.
func fillTo(text string, size int) string { return text + strings.Repeat("x", size-len(text)) }

// sizeDeviceData is as much as a device may have, in the order and with the spaces of somebody who does not
// write as the API server does.
func sizeDeviceData(i int) json.RawMessage {
	data := fmt.Sprintf(`{"text": "", "device": %d}`, i)
	return json.RawMessage(strings.Replace(data, `""`, `"`+strings.Repeat("x", sizeData-len(data))+`"`, 1))
}

// largestDevices are those of a valid status.
func largestDevices(n int) []object {
	var devices []object
	for i := range sizeDevices {
		var conditions []object
		for j := range sizeConditions {
			conditions = append(conditions, object{
				"type": fmt.Sprintf("Type%d", j), "status": "True", "reason": fillTo(fmt.Sprintf("Reason_%d_", n), sizeReason),
				"message": strings.Repeat("m", sizeMessage), "lastTransitionTime": "2026-01-02T03:04:05Z",
			})
		}
		var ips []string
		for j := range sizeIPs {
			ips = append(ips, fmt.Sprintf("2001:db8:1111:2222:3333:4444:%x:%x/128", 0x1000+i, 0x1000+j))
		}
		device := sizeDevice(i)
		device["conditions"], device["data"] = conditions, sizeDeviceData(i)
		device["networkData"] = object{"interfaceName": fillTo("net", 256), "ips": ips, "hardwareAddress": fillTo("ea:9f", 128)}
		devices = append(devices, device)
	}
	return devices
}

// manyEntries are as many as upstream refuses within the time of a request: it compares each
// entry with all others. All are for one device, which has data to compare.
func manyEntries() []object {
	entry := sizeDevice(0)
	entry["data"] = json.RawMessage(`{}`)
	const entries = 1000
	devices := make([]object, entries)
	for i := range devices {
		devices[i] = entry
	}
	return devices
}

// hostileDevices are all devices with so much data and nothing else, which are the most
// expensive ones to compare: many values, of which it is not known whether the server would round them.
func hostileDevices(size int) []object {
	var devices []object
	for i := range sizeDevices {
		const value, around = "1e0,", 128
		device := sizeDevice(i)
		device["data"] = json.RawMessage(`{"values":[` + strings.Repeat(value, (size-around)/len(value)) + `1]}`)
		devices = append(devices, device)
	}
	return devices
}
