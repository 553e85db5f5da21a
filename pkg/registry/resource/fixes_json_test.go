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

package resource

import (
	"bytes"
	stdjson "encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/resource"
)

// setData sets a field which was no pointer in 1.32.
func setData[T runtime.RawExtension | *runtime.RawExtension](data *T, raw string) {
	switch data := any(data).(type) {
	case *runtime.RawExtension:
		data.Raw = []byte(raw)
	case **runtime.RawExtension:
		*data = &runtime.RawExtension{Raw: []byte(raw)}
	}
}

func TestCompareFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		// stored is what the other one is compared with.
		stored, other string
		want          difference
		// back is what it is the other way round, if that is something else.
		back difference
	}{
		"nothing":                          {"", "", identical, identical},
		"nothing and null":                 {"", "null", otherMeaning, otherMeaning},
		"same":                             {`{"a":1}`, `{"a":1}`, identical, identical},
		"spaces":                           {" { \"a\" :\r[ 1,\t2 , {} ,[\n] ] } ", `{"a":[1,2,{},[]]}`, sameMeaning, sameMeaning},
		"order of keys":                    {`{"b":1,"a":{"d":true,"c":false,"e":null}}`, `{"a":{"c":false,"d":true,"e":null},"b":1}`, sameMeaning, sameMeaning},
		"escaped":                          {`{"a":"<"}`, `{"a":"\u003c"}`, sameMeaning, sameMeaning},
		"escaped key":                      {`{"\"\\":"\/"}`, `{"\u0022\u005c":"/"}`, sameMeaning, sameMeaning},
		"surrogates":                       {`{"a":"😀"}`, `{"a":"\ud83d\ude00"}`, sameMeaning, sameMeaning},
		"number of another type":           {`{"a":[1.0,1e2,-0.0,2.50,1E-2]}`, `{"a":[1,100,-0,2.5,0.01]}`, sameMeaning, sameMeaning},
		"large numbers, written otherwise": {`{"a":[12345678901234567890,1e20]}`, `{"a":[12345678901234567890.0,100000000000000000000]}`, sameMeaning, sameMeaning},
		"rounded":                          {`{"a":[2.50,12345678901234567890]}`, `{"a":[2.5,12345678901234567000]}`, reformatted, otherMeaning},
		"rounded, with spaces":             {`{"a":12345678901234567890}`, `{ "a": 12345678901234567000 }`, reformatted, otherMeaning},
		"rounded to zero":                  {`{"a":1e-400}`, `{"a":0}`, reformatted, otherMeaning},
		"rounds alike":                     {`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, otherMeaning, otherMeaning},
		"fractions that round alike":       {`{"a":0.1000000000000000055}`, `{"a":0.1000000000000000056}`, otherMeaning, otherMeaning},
		"other large integer":              {`{"a":9007199254740993}`, `{"a":9007199254740992}`, otherMeaning, otherMeaning},
		"too large for the server":         {`{"a":1e400}`, `{"a":10e399}`, sameMeaning, sameMeaning},
		"too large for anything":           {`{"a":1e99999999999}`, `{"a":10e99999999998}`, otherMeaning, otherMeaning},
		"key twice, formatted":             {`{"ip":"a","ip":"b"}`, `{"ip":"b"}`, reformatted, otherMeaning},
		"key twice, other spaces":          {`{"ip":"a","ip":"b"}`, `{"ip":"a", "ip":"b"}`, otherMeaning, otherMeaning},
		"key twice, hidden":                {`{"ip":"b"}`, `{"ip":"a","ip":"b"}`, otherMeaning, reformatted},
		"key twice, other hidden":          {`{"ip":"a","ip":"b"}`, `{"ip":"c","ip":"b"}`, otherMeaning, otherMeaning},
		"key twice, once escaped":          {`{"ip":"a","\u0069p":"b"}`, `{"ip":"b"}`, reformatted, otherMeaning},
		"not UTF-8, formatted":             {"{\"a\":\"\xff\"}", "{\"a\":\"\uFFFD\"}", reformatted, otherMeaning},
		"not UTF-8, other bytes":           {"{\"a\":\"\xff\"}", "{\"a\":\"\xfe\"}", otherMeaning, otherMeaning},
		"not UTF-8, same":                  {"{\"a\":\"\xff\"}", "{\"a\":\"\xff\"}", identical, identical},
		"half a surrogate, other half":     {`{"a":"\ud83d"}`, `{"a":"\ud83e"}`, otherMeaning, otherMeaning},
		"half a surrogate, formatted":      {`{"a":"\ud83d"}`, "{\"a\":\"\uFFFD\"}", reformatted, otherMeaning},
		"other value":                      {`{"a":1}`, `{"a":2}`, otherMeaning, otherMeaning},
		"other sign":                       {`{"a":1}`, `{"a":-1}`, otherMeaning, otherMeaning},
		"other size":                       {`{"a":1}`, `{"a":10}`, otherMeaning, otherMeaning},
		"other type":                       {`{"a":1}`, `{"a":"1"}`, otherMeaning, otherMeaning},
		"list and object":                  {`{"a":[]}`, `{"a":{}}`, otherMeaning, otherMeaning},
		"true and false":                   {`{"a":true}`, `{"a":false}`, otherMeaning, otherMeaning},
		"true and null":                    {`{"a":true}`, `{"a":null}`, otherMeaning, otherMeaning},
		"other key":                        {`{"a":1}`, `{"b":1}`, otherMeaning, otherMeaning},
		"upper case":                       {`{"a":1}`, `{"A":1}`, otherMeaning, otherMeaning},
		"other order of a list":            {`{"a":[1,2]}`, `{"a":[2,1]}`, otherMeaning, otherMeaning},
		"longer list":                      {`{"a":[1,2]}`, `{"a":[1,2,3]}`, otherMeaning, otherMeaning},
		"null and empty":                   {`{"a":null}`, `{"a":[]}`, otherMeaning, otherMeaning},
		"null and no key":                  {`{"a":null}`, `{}`, otherMeaning, otherMeaning},
		"invalid, other":                   {`{"a":`, `{"a":1}`, otherMeaning, otherMeaning},
		"both invalid":                     {`{"a":`, `{"b":`, otherMeaning, otherMeaning},
		"invalid, but unchanged":           {`{"a":`, `{"a":`, identical, identical},
		"two values":                       {`{"a":1}{}`, `{"a":1} {}`, otherMeaning, otherMeaning},
		"nested too deep":                  {strings.Repeat("[", 20000) + strings.Repeat("]", 20000), strings.Repeat("[", 20000) + " " + strings.Repeat("]", 20000), otherMeaning, otherMeaning},
		"nested deep":                      {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat("[", 5000) + " " + strings.Repeat("]", 5000), sameMeaning, sameMeaning},
	} {
		t.Run(name, func(t *testing.T) {
			parameters := func(raw string) *resource.AllocationResult {
				return &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Config: []resource.DeviceAllocationConfiguration{{
					DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{Parameters: runtime.RawExtension{Raw: []byte(raw)}}},
				}}}}
			}
			if got, compared := compareFormat(parameters(tc.other), parameters(tc.stored)); got != tc.want || !compared {
				t.Errorf("want %v, got %v; compared: %v", tc.want, got, compared)
			}
			if got, compared := compareFormat(parameters(tc.stored), parameters(tc.other)); got != tc.back || !compared {
				t.Errorf("the other way round: want %v, got %v; compared: %v", tc.back, got, compared)
			}
		})
	}
	t.Run("other before the JSON", func(t *testing.T) {
		device := resource.AllocatedDeviceStatus{Driver: "driver"}
		setData(&device.Data, `{"a":1}`)
		other := *device.DeepCopy()
		other.Driver = "other"
		if got, compared := compareFormat(other, device); got != otherMeaning || compared {
			t.Errorf("got %v; compared: %v", got, compared)
		}
	})
	t.Run("other after the JSON", func(t *testing.T) {
		device := resource.AllocatedDeviceStatus{Driver: "driver"}
		setData(&device.Data, `{"a":1}`)
		other := *device.DeepCopy()
		other.NetworkData = &resource.NetworkDeviceData{}
		if got, compared := compareFormat(other, device); got != otherMeaning || !compared {
			t.Errorf("got %v; compared: %v", got, compared)
		}
	})
}

// FuzzCompareJSON compares with what the server and encoding/json make of JSON.
func FuzzCompareJSON(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1.0}`, `{"a":1}`}, {`{"a":[1e2,"<"]}`, `{ "a": [100,"\u003c"]}`}, {`{"b":1,"a":null}`, `{"a":null,"b":1}`},
		{`{"a":12345678901234567890}`, `{"a":12345678901234567000}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {"\"\xff\"", "\"\uFFFD\""},
		{`[-0.0,0e5]`, `[0,-0]`}, {`"\ud800"`, `"\ud801"`}, {`1e400`, `10e399`}, {`[]`, `{}`}, {``, ` `}, {`[[],[[]]]`, `[[], [[]]]`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, raw, stored []byte) {
		switch got := compareJSON(raw, stored); got {
		case identical:
			if !bytes.Equal(raw, stored) {
				t.Errorf("%q is not identical to %q", raw, stored)
			}
		case sameMeaning:
			// Then the server makes the same of both, if it can decode them.
			formatted, err := formatJSON(raw)
			formattedStored, errStored := formatJSON(stored)
			if (err == nil) != (errStored == nil) || !sameAfterFormat(formatted, formattedStored) {
				t.Errorf("%q does not mean the same as %q", raw, stored)
			}
		case reformatted:
			formatted, err := formatJSON(stored)
			if err != nil {
				t.Fatalf("%q cannot be formatted: %v", stored, err)
			}
			value, _ := parseJSON(raw, len(raw), len(raw))
			if want, certain := parseJSON(formatted, len(formatted), len(formatted)); !bytes.Equal(raw, formatted) && (!certain || !value.equal(want)) {
				t.Errorf("%q is not what the server makes of %q, which is %q", raw, stored, formatted)
			}
		case otherMeaning:
			if _, certain := parseJSON(raw, len(raw), len(raw)); certain && bytes.Equal(bytes.Trim(raw, " \t\r\n"), bytes.Trim(stored, " \t\r\n")) {
				t.Errorf("%q means the same as %q", raw, stored)
			}
		}
		if _, certain := parseJSON(raw, len(raw), len(raw)); certain && !stdjson.Valid(raw) {
			t.Errorf("%q is not valid", raw)
		}
	})
}

// sameAfterFormat compares what was formatted. -0.0 needs to be formatted twice to become 0.
func sameAfterFormat(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	againA, errA := formatJSON(a)
	againB, errB := formatJSON(b)
	return errA == nil && errB == nil && bytes.Equal(againA, againB)
}
