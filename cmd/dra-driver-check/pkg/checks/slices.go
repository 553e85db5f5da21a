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

package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

// publishedWithin is how long a driver may be without its slices. The helper of upstream waits for half
// a minute before it looks, and believes for a minute that a new slice is there.
const publishedWithin = 90 * time.Second

var sliceChecks = []check.Check{
	{
		ID:   "slices",
		Asks: "Is each pool of the driver complete, of one generation, with each device once? The scheduler ignores others.",
		Do:   "Count all slices of a pool in resourceSliceCount, raise the generation with each change, and delete old slices. The helper of k8s.io/dynamic-resource-allocation does that.",
		Run: func(c *check.Case) {
			c.Within(publishedWithin, "all pools are complete", func() error {
				nodes, err := c.Kube.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
				if err != nil {
					return err
				}
				names := sets.New[string]()
				for _, node := range nodes.Items {
					names.Insert(node.Name)
				}
				if problems := poolProblems(c.Slices(), names); len(problems) > 0 {
					return errors.New(strings.Join(problems, "; "))
				}
				return nil
			})
		},
	},
	{
		ID:    "slices-deleted",
		Asks:  "Does the driver publish its slices again within 90 seconds when somebody deletes them?",
		Do:    "Watch your own ResourceSlices, and publish what is missing. The helper of k8s.io/dynamic-resource-allocation does that.",
		Needs: []check.Need{needsPool},
		Run: func(c *check.Case) {
			pools, start := completePools(localSlices(c)), time.Now()
			published(c, pools, deleteSlices(c, localSlices(c)))
			c.Note("published again after %s", check.Seconds(time.Since(start)))
			runOnce(c, "after", check.Pod{})
		},
	},
}

// needsPool is for what is done to the slices of one node.
func needsPool(c *check.Case) string {
	if len(completePools(localSlices(c))) > 0 {
		return ""
	}
	return "the driver has no complete pool for node " + c.Node() + " alone"
}

// localSlices are those of the driver for the node.
func localSlices(c *check.Case) []resourceapi.ResourceSlice {
	return slices.DeleteFunc(c.Slices(), func(s resourceapi.ResourceSlice) bool { return !onNode(s, c.Node()) })
}

// deleteSlices deletes some of those, and returns which they were.
func deleteSlices(c *check.Case, list []resourceapi.ResourceSlice) sets.Set[types.UID] {
	old := sets.New[types.UID]()
	for _, slice := range list {
		old.Insert(slice.UID)
		if err := c.Resource("resourceslices", "").Delete(c.Context(), slice.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			c.Must(err)
		}
	}
	return old
}

// published waits until pools are complete, without the old slices.
func published(c *check.Case, pools sets.Set[string], old sets.Set[types.UID]) {
	c.Within(publishedWithin, "slices are published again", func() error {
		now := slices.DeleteFunc(localSlices(c), func(s resourceapi.ResourceSlice) bool { return old.Has(s.UID) })
		if missing := pools.Difference(completePools(now)); missing.Len() > 0 {
			return fmt.Errorf("pools %q are not complete", sets.List(missing))
		}
		return nil
	})
}

// newest is the newest generation of each pool.
func newest(list []resourceapi.ResourceSlice) map[string]int64 {
	generations := map[string]int64{}
	for _, slice := range list {
		generations[slice.Spec.Pool.Name] = max(generations[slice.Spec.Pool.Name], slice.Spec.Pool.Generation)
	}
	return generations
}

// completePools are those whose newest generation has all its slices.
func completePools(list []resourceapi.ResourceSlice) sets.Set[string] {
	generations, count, complete := newest(list), map[string]int64{}, sets.New[string]()
	for _, slice := range list {
		if pool := slice.Spec.Pool; pool.Generation == generations[pool.Name] {
			count[pool.Name]++
			complete.Delete(pool.Name)
			if count[pool.Name] == pool.ResourceSliceCount {
				complete.Insert(pool.Name)
			}
		}
	}
	return complete
}

// poolProblems says what is wrong with the pools of a driver.
func poolProblems(list []resourceapi.ResourceSlice, nodes sets.Set[string]) []string {
	generations, complete := newest(list), completePools(list)
	problems, devices := sets.New[string](), sets.New[string]()
	for _, slice := range list {
		pool := slice.Spec.Pool
		if newest := generations[pool.Name]; pool.Generation < newest {
			problems.Insert(fmt.Sprintf("slice %s of pool %s is of generation %d, and there is %d", slice.Name, pool.Name, pool.Generation, newest))
			continue
		}
		if !complete.Has(pool.Name) {
			problems.Insert(fmt.Sprintf("pool %s does not have as many slices of generation %d as its resourceSliceCount says", pool.Name, pool.Generation))
		}
		if name := slice.Spec.NodeName; name != nil && !nodes.Has(*name) {
			problems.Insert(fmt.Sprintf("slice %s is for node %s, which does not exist", slice.Name, *name))
		}
		for _, d := range slice.Spec.Devices {
			if name := pool.Name + "/" + d.Name; devices.Has(name) {
				problems.Insert("device " + name + " is there twice")
			} else {
				devices.Insert(name)
			}
		}
	}
	return sets.List(problems)
}
