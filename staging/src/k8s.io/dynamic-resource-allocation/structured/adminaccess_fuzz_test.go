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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// What is in here checks, for any devices and any claims that somebody may come up with:
//   - no allocator panics, because that ends the scheduler;
//   - no device goes to two claims without admin access, no capacity or counter to more
//     of them than there is;
//   - admin access takes nothing from others: they get the same with it and without it;
//   - nobody's objects change: they belong to the caches of the informers.
//
// Not all of the input would get past the validation of the API server. What it
// refuses today was perhaps stored before, and must not end the scheduler either.

// draws turns the input of the fuzzer into decisions.
type draws struct{ data []byte }

// below returns a number below n. When there is no input left, it is 0: what 0 stands
// for should be simple.
func (d *draws) below(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := int(d.data[0])
	d.data = d.data[1:]
	return b % n
}

// oneIn returns true once in n times.
func (d *draws) oneIn(n int) bool { return d.below(n) == n-1 }

// pick returns one of the choices.
func pick[T any](d *draws, choices ...T) T { return choices[d.below(len(choices))] }

const (
	fuzzDriver      = "a.example.com"
	fuzzOtherDriver = "b.example.com"
)

var fuzzNode = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"zone": "z"}}}

// fuzzSelectors are good and bad.
var fuzzSelectors = []string{
	`true`,
	`device.driver == "a.example.com"`,
	`"model" in device.attributes["a.example.com"]`,
	`device.attributes["a.example.com"].model == "x"`, // Fails for devices without it.
	`device.attributes["b.example.com"].index > 0`,
	`"memory" in device.capacity["a.example.com"]`,
	`device.capacity["a.example.com"].memory.compareTo(quantity("2")) >= 0`,
	`device.attributes["none"].model == "x"`,
	`device.attributes["a.example.com"].index == "x"`, // Not comparable.
	`1`,
	`)`,
	``,
	`[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, [1,2,3,4,5,6,7,8].all(c, [1,2,3,4,5,6,7,8].all(d, a+b+c+d > 0))))`,
}

// fuzzClasses is a lister of classes, one of which cannot be used.
type fuzzClasses struct{}

func (f fuzzClasses) List() ([]*resourceapi.DeviceClass, error) {
	return nil, errors.New("not needed for an allocation")
}

func (f fuzzClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	switch name {
	case "class":
	case "memory":
		class.Spec.Selectors = []resourceapi.DeviceSelector{newFuzzSelector(`"memory" in device.capacity[device.driver]`)}
		class.Spec.Config = []resourceapi.DeviceClassConfiguration{{}, {}}
	case "broken":
		class.Spec.Selectors = []resourceapi.DeviceSelector{newFuzzSelector(`device.attributes["none"].model == "x"`)}
	default:
		return nil, fmt.Errorf("class %q not found", name)
	}
	return class, nil
}

func newFuzzSelector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

// fuzzRequirements draws what requests and subrequests have in common.
func fuzzRequirements(d *draws) (class string, selectors []resourceapi.DeviceSelector, mode resourceapi.DeviceAllocationMode, count int64) {
	class = "class"
	if d.oneIn(4) {
		class = pick(d, "memory", "memory", "memory", "broken", "missing", "")
	}
	if d.oneIn(3) {
		// Nearly always one that works.
		expression := fuzzSelectors[d.below(4)]
		if d.oneIn(6) {
			expression = pick(d, fuzzSelectors...)
		}
		selectors = append(selectors, newFuzzSelector(expression))
	}
	if d.oneIn(50) {
		selectors = append(selectors, resourceapi.DeviceSelector{})
	}
	mode, count = resourceapi.DeviceAllocationModeExactCount, int64(1+d.below(3))
	switch d.below(20) {
	case 15, 16, 17, 18:
		mode, count = resourceapi.DeviceAllocationModeAll, 0
	case 19:
		count = pick(d, fuzzCounts...)
	case 14:
		if d.oneIn(6) {
			mode = "Some"
		}
	}
	return class, selectors, mode, count
}

// fuzzClaim draws a claim. Either all of its requests are for admin access, or none.
func fuzzClaim(d *draws, name string, admin bool) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var names []string
	for i := range 1 + d.below(3) {
		request := fuzzRequest(d, fmt.Sprintf("r-%d", i), admin)
		names = append(names, fuzzRequestNames(request)...)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, request)
	}
	names = append(names, "unknown")
	some := func() []string {
		if d.oneIn(2) {
			return nil
		}
		return []string{pick(d, names...), pick(d, names...)}
	}
	for d.oneIn(5) {
		claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, fuzzConstraint(d, some()))
	}
	for d.oneIn(10) {
		claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{Requests: some()})
	}
	return claim
}

func fuzzAttributeName(d *draws) *resourceapi.FullyQualifiedName {
	return ptr.To(pick[resourceapi.FullyQualifiedName](d, fuzzDriver+"/model", fuzzDriver+"/index", fuzzOtherDriver+"/model", "example.com/version", "model", "/", ""))
}

// fuzzAttributes draws some of a device.
func fuzzAttributes(d *draws) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	if d.below(4) < 3 {
		attributes["model"] = resourceapi.DeviceAttribute{StringValue: ptr.To(pick(d, "x", "x", "y"))}
	}
	if d.oneIn(2) {
		attributes["index"] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(d.below(3)))}
	}
	switch d.below(6) {
	case 3:
		attributes["example.com/version"] = resourceapi.DeviceAttribute{VersionValue: ptr.To(pick(d, "1.0.0", "2.0.0", "no version"))}
	case 4:
		attributes["example.com/version"] = resourceapi.DeviceAttribute{BoolValue: ptr.To(d.oneIn(2))}
	case 5:
		attributes["model"] = resourceapi.DeviceAttribute{} // Of a kind that is not known.
	}
	return attributes
}

// fuzzPool draws all slices of a pool.
func fuzzPool(d *draws, index int, driver, name string) []*resourceapi.ResourceSlice {
	var pool []*resourceapi.ResourceSlice
	numSlices, numDevices := 1+d.below(3), 0
	generation := int64(1)
	for i := range numSlices {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%d-%d", index, i)}}
		slice.Spec.Driver = driver
		slice.Spec.Pool = resourceapi.ResourcePool{Name: name, Generation: generation, ResourceSliceCount: int64(numSlices)}
		devices := d.below(4)
		if d.oneIn(30) {
			devices = resourceapi.AllocationResultsMaxSize + d.below(2)
		}
		for range devices {
			numDevices++
			if d.oneIn(40) {
				numDevices = 1 // The name is taken.
			}
			slice.Spec.Devices = append(slice.Spec.Devices, fuzzDevice(d, fmt.Sprintf("device-%d", numDevices)))
		}
		switch d.below(20) {
		case 18:
			slice.Spec.Pool.ResourceSliceCount += int64(d.below(3) - 1)
		case 19:
			generation++
			slice.Spec.Pool.Generation = generation
			slice.Spec.Pool.ResourceSliceCount = int64(numSlices - i)
		}
		pool = append(pool, slice)
	}
	return fuzzPlace(d, pool)
}

// fuzzNodeSelector draws one of all shapes.
func fuzzNodeSelector(d *draws) *v1.NodeSelector {
	requirement := v1.NodeSelectorRequirement{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"z"}}
	switch d.below(8) {
	case 3:
		requirement.Operator = "Unknown"
	case 4:
		requirement.Values = []string{"other"}
	case 5:
		return &v1.NodeSelector{}
	case 6:
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}, {MatchExpressions: []v1.NodeSelectorRequirement{requirement}}}}
	case 7:
		requirement.Key = "metadata.name"
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{requirement}}}}
	}
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{requirement}}}}
}

// fuzzRun is an input and what has become of it.
type fuzzRun struct {
	*testing.T
	allocator fuzzAllocator
	// ordered says that which pool comes first depends on its name. Otherwise it
	// depends on chance.
	ordered bool
	pools   int
	slices  []*resourceapi.ResourceSlice
	// tried are all claims so far.
	tried []*resourceapi.ResourceClaim
	// held are all results so far.
	held []resourceapi.DeviceRequestAllocationResult
}

// errBudget ends an allocation which takes too long.
var errBudget = errors.New("too many steps")

// budget is a context which ends after some number of steps. That is the same number each
// time, a time-out is not.
type budget struct {
	context.Context
	steps int
}

func (b *budget) Err() error {
	if b.steps--; b.steps < 0 {
		return errBudget
	}
	return nil
}

// copies returns objects which do not change together with others.
func copies[T interface{ DeepCopy() T }](objects []T) []T {
	var all []T
	for _, object := range objects {
		all = append(all, object.DeepCopy())
	}
	return all
}

func (r *fuzzRun) allocate(claims ...*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	b := &budget{Context: context.Background(), steps: 2000}
	slicesBefore, claimsBefore := copies(r.slices), copies(claims)
	results, err := r.allocator(b, r.held, r.slices, claims)
	if !equality.Semantic.DeepEqual(slicesBefore, r.slices) || !equality.Semantic.DeepEqual(claimsBefore, claims) {
		r.Fatal("the allocator changed slices or claims, which belong to the caches of the informers")
	}
	if b.steps < 0 {
		return nil, errBudget
	}
	if err == nil && len(results) != 0 && len(results) != len(claims) {
		r.Fatalf("%d results for %d claims", len(results), len(claims))
	}
	return results, err
}

// explain logs what has failed.
func (r *fuzzRun) explain() {
	log := func(what string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			r.Errorf("encode %s: %v", what, err)
		}
		r.Logf("%s: %s", what, text)
	}
	for _, slice := range r.slices {
		log("slice "+slice.Name, slice.Spec)
	}
	for i, claim := range r.tried {
		log(fmt.Sprintf("claim %s, number %d", claim.Name, i), claim.Spec)
	}
	log("allocated", r.held)
}

// schedule allocates the claims of a pod, with a claim for admin access among them and
// without.
func (r *fuzzRun) schedule(d *draws, claims []*resourceapi.ResourceClaim, admin *resourceapi.ResourceClaim) {
	r.tried = append(append(r.tried, claims...), admin)
	others, err := r.allocate(claims...)
	adminOnly, adminErr := r.allocate(admin)
	place := d.below(len(claims) + 1)
	together, togetherErr := r.allocate(slices.Insert(slices.Clone(claims), place, admin)...)

	chosen := others
	switch {
	case err != nil || adminErr != nil:
		// The claims, the devices or the search are too odd to say anything.
	case !r.ordered && r.pools > 1:
		// What is found first depends on chance, and so does whether that is an error.
	case errors.Is(togetherErr, errBudget):
	case togetherErr != nil && (len(others) == 0 || len(adminOnly) == 0):
		// The search went on to a device which a selector cannot be applied to.
	case togetherErr != nil:
		r.Errorf("with a claim for admin access, others fail: %v", togetherErr)
	case (len(others) > 0 && len(adminOnly) > 0) != (len(together) > 0):
		r.Errorf("alone, claims are allocated: %t; with admin access: %t; both together: %t", len(others) > 0, len(adminOnly) > 0, len(together) > 0)
	case len(together) > 0:
		without := slices.Delete(slices.Clone(together), place, place+1)
		if got, want := describeResults(without), describeResults(others); got != want {
			r.Errorf("with a claim for admin access, others got %q instead of %q", got, want)
		}
	}
	if len(together) > 0 {
		chosen = together
	}
	for i, result := range chosen {
		r.checkClaim(i, result)
		r.held = append(r.held, result.Devices.Results...)
	}
	r.checkHeld()
}

// checkClaim looks at what one claim got.
func (r *fuzzRun) checkClaim(i int, result resourceapi.AllocationResult) {
	if len(result.Devices.Results) > resourceapi.AllocationResultsMaxSize {
		r.Errorf("claim %d got %d devices, more than can be stored", i, len(result.Devices.Results))
	}
}

// checkHeld looks at what all claims got together.
func (r *fuzzRun) checkHeld() {
	holders := map[DeviceID]int{}
	for _, result := range r.held {
		if ptr.Deref(result.AdminAccess, false) || isFuzzShare(result) {
			continue
		}
		id := MakeDeviceID(result.Driver, result.Pool, result.Device)
		if holders[id]++; holders[id] == 2 {
			r.Errorf("device %s was allocated twice", id)
		}
	}
	checkFuzzSums(r.T, r.slices, r.held)
}

// fuzzAllocate runs one input.
func fuzzAllocate(t *testing.T, newAllocator func(d *draws) fuzzAllocator, ordered bool, data []byte) {
	d := &draws{data}
	r := &fuzzRun{T: t, allocator: newAllocator(d), ordered: ordered, pools: 1 + d.below(3)}
	for i := range r.pools {
		// Different drivers use the same names.
		r.slices = append(r.slices, fuzzPool(d, i, pick(d, fuzzDriver, fuzzDriver, fuzzOtherDriver), pick(d, "pool", "node", fmt.Sprintf("pool-%d", i)))...)
	}
	for pod := range 1 + d.below(4) {
		var claims []*resourceapi.ResourceClaim
		for i := range 1 + d.below(2) {
			claims = append(claims, fuzzClaim(d, fmt.Sprintf("pod-%d-claim-%d", pod, i), false))
		}
		r.schedule(d, claims, fuzzClaim(d, fmt.Sprintf("pod-%d-admin", pod), true))
		if t.Failed() {
			r.explain()
			return
		}
	}
}

// addFuzzSeeds adds where to start: the inputs that found something, and
// some by chance, which already reach most of the code.
func addFuzzSeeds(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add([]byte(seed))
	}
	for i := range uint64(100) {
		chance := rand.New(rand.NewPCG(i, 0))
		data := make([]byte, 300)
		for j := range data {
			data[j] = byte(chance.Uint32())
		}
		f.Add(data)
	}
}

// fuzzSeeds found something.
var fuzzSeeds = []string{}
