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

package structured

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/internal"
)

// gatherer is GatherPools of one of the allocators. It returns the pools by their IDs.
type gatherer func(slices []*resourceapi.ResourceSlice, node *v1.Node) (pools map[string]any, err error)

// newGatherer makes one of GatherPools. The features of the allocator are of another type in each release.
func newGatherer[P fmt.Stringer, F any](gather func(context.Context, []*resourceapi.ResourceSlice, *v1.Node, F) ([]P, error), features F) gatherer {
	return func(slices []*resourceapi.ResourceSlice, node *v1.Node) (map[string]any, error) {
		pools, err := gather(context.Background(), slices, node, features)
		all := make(map[string]any, len(pools))
		for _, pool := range pools {
			all[pool.String()] = pool
		}
		return all, err
	}
}

var numberedNodes = []*v1.Node{
	{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{"zone": "z"}}},
	{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
	{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}},
}

// randomNodeSlices returns some pools with slices of all kinds, complete or not, for some nodes.
func randomNodeSlices(t testing.TB, r *rand.Rand) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	onNode := func() string { return fmt.Sprintf(`"nodeName": "node-%d",`, r.IntN(len(numberedNodes))) }
	for pool := range 1 + r.IntN(4) {
		home, count := onNode(), 1+r.IntN(3)
		for i := range count {
			place, devices := home, fmt.Sprintf(`"devices": [{"name": "device-%d", %s "basic": {%s}}]`, i-r.IntN(5)/4, onNode(), strings.TrimSuffix(onNode(), ","))
			switch r.IntN(12) {
			case 0, 1:
				place = onNode()
			case 2:
				place = `"allNodes": true,`
			case 3:
				place = `"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]},`
			case 4:
				place = `"perDeviceNodeSelection": true,`
			case 5:
				devices = oneCounter
			case 6:
				place = ""
			}
			all = append(all, newNodeSlice(t, `{"metadata": {"name": "slice-%d-%d"}, "spec": {"driver": "driver-%d", %s
				"pool": {"name": "pool-%d", "generation": %d, "resourceSliceCount": %d}, %s}}`,
				pool, i, pool%2, place, pool/2, 1+r.IntN(5)/4, count+r.IntN(5)/4, devices))
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// isElsewhere returns true if the pool has slices for one other node only.
func isElsewhere(all []*resourceapi.ResourceSlice, pool string, node *v1.Node) bool {
	nodes := sets.New[string]()
	for _, slice := range all {
		if slice.Spec.Driver+"/"+slice.Spec.Pool.Name == pool {
			nodes.Insert(fmt.Sprint(reflect.Indirect(reflect.ValueOf(slice.Spec.NodeName))))
		}
	}
	return len(nodes) == 1 && !nodes.HasAny(node.Name, "", "<invalid reflect.Value>")
}

// TestNodeSlices compares what is found with and without the slices that are left out. Before 1.37, pools of
// other nodes were found, too, if they have counters. Nothing can be allocated from them.
func TestNodeSlices(t *testing.T) {
	fewer := 0
	for seed := range uint64(10000) {
		all := randomNodeSlices(t, rand.New(rand.NewPCG(seed, 0)))
		var nodeSlices internal.NodeSlices
		for _, node := range numberedNodes {
			some := nodeSlices.For(all, node)
			if len(some) < len(all) {
				fewer++
			}
			if !slices.IsSortedFunc(some, func(a, b *resourceapi.ResourceSlice) int {
				return cmp.Compare(slices.Index(all, a), slices.Index(all, b))
			}) {
				t.Errorf("seed %d: slices are in another order", seed)
			}
			for name, gather := range gatherers() {
				want, wantErr := gather(all, node)
				maps.DeleteFunc(want, func(pool string, _ any) bool { return isElsewhere(all, pool, node) })
				got, err := gather(some, node)
				if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, %s, %s: got %+v, %v, want %+v, %v", seed, name, node.Name, got, err, want, wantErr)
				}
			}
		}
	}
	if fewer < 10000 {
		t.Errorf("slices were left out for %d of 30,000 nodes", fewer)
	}
}

// TestNodeSlicesUsed checks that the allocators leave out slices.
func TestNodeSlicesUsed(t *testing.T) {
	all := slicesOfNodes(t, 1000, oneCounter)
	var nodeSlices internal.NodeSlices
	for _, node := range []*v1.Node{nil, {}, {ObjectMeta: metav1.ObjectMeta{Name: "node-1000"}}} {
		if some := nodeSlices.For(all, node); len(some) != 0 {
			t.Errorf("got %d slices for %v", len(some), node)
		}
	}
	if some := nodeSlices.For(all, numberedNodes[1]); len(some) != 1 || some[0] != all[1] {
		t.Errorf("got %v for node-1", some)
	}
	for name, allocator := range allocatorsForNode(t, all, numberedNodes[1]) {
		field := reflect.Indirect(reflect.ValueOf(allocator)).FieldByName("nodeSlices")
		if !field.IsValid() || field.FieldByName("last").Len() != 1000 {
			t.Errorf("%s: the allocator does not know which slices are on the 1,000 nodes", name)
		}
	}
}

const (
	oneDevice  = `"devices": [{"name": "device", "basic": {}}]`
	oneCounter = `"sharedCounters": [{"name": "set", "counters": {"memory": {"value": "8"}}}]`
)

// slicesOfNodes returns one slice for each node, with devices or counters.
func slicesOfNodes(t testing.TB, nodes int, content string) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for i := range nodes {
		all = append(all, newNodeSlice(t, `{"metadata": {"name": "slice-%d"}, "spec": {"driver": "driver", "nodeName": "node-%d",
			"pool": {"name": "node-%d", "generation": 1, "resourceSliceCount": 2}, %s}}`, i, i, i, content))
	}
	return all
}

func newNodeSlice(t testing.TB, format string, args ...any) *resourceapi.ResourceSlice {
	slice, data := &resourceapi.ResourceSlice{}, fmt.Sprintf(format, args...)
	if err := json.Unmarshal([]byte(data), slice); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return slice
}

// BenchmarkNodeSlices is what the allocators do first for some of 5,000 nodes, with all slices and with those of the node.
func BenchmarkNodeSlices(b *testing.B) {
	for what, content := range map[string]string{"devices": oneDevice, "counters": oneCounter} {
		all, nodes := slicesOfNodes(b, 5000, content), 500
		if content == oneCounter {
			nodes = 10
		}
		for name, gather := range gatherers() {
			run := func(variant string, slicesFor func(*internal.NodeSlices, *v1.Node) []*resourceapi.ResourceSlice) {
				b.Run(name+"/"+what+"/"+variant, func(b *testing.B) {
					for range b.N {
						var nodeSlices internal.NodeSlices
						for i := range nodes {
							node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
							if _, err := gather(slicesFor(&nodeSlices, node), node); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
			run("all", func(*internal.NodeSlices, *v1.Node) []*resourceapi.ResourceSlice { return all })
			run("of-node", func(s *internal.NodeSlices, node *v1.Node) []*resourceapi.ResourceSlice { return s.For(all, node) })
		}
	}
}
