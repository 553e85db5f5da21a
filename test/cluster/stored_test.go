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

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"kubernetes-dra/hack/pkg/cluster"
)

const (
	// storedPrefix is in front of all objects that kube-apiserver stores as protobuf.
	storedPrefix = "k8s\x00"
	// carryField is the number of each field of ours: that of the KEP.
	carryField protowire.Number = 5194
)

// storedClaim is a claim as etcd has it.
type storedClaim struct {
	apiVersion string
	// upstream are the bytes of spec and status without our fields, reservedFor and anyPod those of
	// our fields.
	upstream, reservedFor, anyPod string
}

// stored reads the claims of the namespace from etcd. kube-apiserver might hide what it does not know.
func (w *workloads) stored() map[string]storedClaim {
	w.Helper()
	prefix := "/registry/resourceclaims/" + w.namespace + "/"
	end := []byte(prefix)
	end[len(end)-1]++
	// JSON has bytes as base64, as etcd wants them.
	request, err := json.Marshal(map[string][]byte{"key": []byte(prefix), "range_end": end})
	if err != nil {
		w.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/v3/kv/range", shared.Ports[cluster.Etcd])
	response, err := http.Post(url, "application/json", bytes.NewReader(request))
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Kvs []struct{ Key, Value []byte }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s says %s, %v", url, response.Status, err)
	}
	claims := map[string]storedClaim{}
	for _, kv := range answer.Kvs {
		claim, err := parseStored(kv.Value)
		if err != nil {
			w.Fatalf("%s in etcd: %v", kv.Key, err)
		}
		claims[strings.TrimPrefix(string(kv.Key), prefix)] = claim
	}
	if len(claims) == 0 {
		w.Fatalf("etcd has no claims below %s", prefix)
	}
	return claims
}

// parseStored takes a claim apart. The numbers of its fields are the same in all versions.
func parseStored(value []byte) (claim storedClaim, err error) {
	content, ok := bytes.CutPrefix(value, []byte(storedPrefix))
	if !ok {
		return claim, fmt.Errorf("%.20q is not protobuf", value)
	}
	// take removes a field from a message, and returns its value.
	take := func(message *[]byte, field protowire.Number) []byte {
		if err != nil {
			return nil
		}
		var taken []byte
		*message, taken, err = without(*message, field)
		return taken
	}
	typeMeta, object := take(&content, 1), take(&content, 2)
	claim.apiVersion = string(take(&typeMeta, 1))
	spec, status := take(&object, 2), take(&object, 3)
	allocation := take(&status, 1)
	claim.reservedFor, claim.anyPod = string(take(&spec, carryField)), string(take(&allocation, carryField))
	claim.upstream = fmt.Sprintf("%x/%x/%x", spec, status, allocation)
	return claim, err
}

// without returns a message without one of its fields, and the value of that.
func without(message []byte, field protowire.Number) (rest, value []byte, err error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, nil, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return nil, nil, protowire.ParseError(size)
		}
		switch found := message[tag : tag+size]; {
		case number != field:
			rest = append(rest, message[:tag+size]...)
		case kind == protowire.BytesType:
			value, _ = protowire.ConsumeBytes(found)
		default:
			value = found
		}
		message = message[tag+size:]
	}
	return rest, value, nil
}

// rewrite lets kube-apiserver write each claim, and compares what etcd had before with what it has
// now. A server without patches drops our fields, and nothing else.
func (w *workloads) rewrite(before map[string]storedClaim) {
	w.Helper()
	for name := range before {
		w.touch(name)
	}
	after := w.stored()
	for name, claim := range before {
		now := after[name]
		if now.apiVersion == claim.apiVersion && now.upstream != claim.upstream {
			w.Errorf("claim %s was %s in etcd, and is now %s", name, claim.upstream, now.upstream)
		}
		reservedFor, anyPod := claim.reservedFor, claim.anyPod
		if !shared.Patched() {
			reservedFor, anyPod = "", ""
		}
		if now.reservedFor != reservedFor || now.anyPod != anyPod {
			w.Errorf("our fields of claim %s were %q and %q in etcd, and are now %q and %q, not %q and %q",
				name, claim.reservedFor, claim.anyPod, now.reservedFor, now.anyPod, reservedFor, anyPod)
		}
	}
	w.Logf("etcd has the same %d claims, of version %s before and %s now", len(after), versionsOf(before), versionsOf(after))
}

// versionsOf are the versions of the API in which claims are stored.
func versionsOf(claims map[string]storedClaim) string {
	versions := map[string]int{}
	for _, claim := range claims {
		versions[claim.apiVersion]++
	}
	return fmt.Sprint(versions)
}

func TestParseStored(t *testing.T) {
	field := func(message []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(message, number, protowire.BytesType), value)
	}
	spec := field(field(nil, 1, "devices"), carryField, "job")
	allocation := protowire.AppendVarint(protowire.AppendTag(field(nil, 1, "results"), carryField, protowire.VarintType), 1)
	object := field(field(field(nil, 1, "metadata"), 2, string(spec)), 3, string(field(field(nil, 1, string(allocation)), 2, "consumer")))
	value := append([]byte(storedPrefix), field(field(nil, 1, string(field(nil, 1, "resource.k8s.io/v1"))), 2, string(object))...)

	claim, err := parseStored(value)
	want := storedClaim{
		apiVersion:  "resource.k8s.io/v1",
		upstream:    fmt.Sprintf("%x/%x/%x", field(nil, 1, "devices"), field(nil, 2, "consumer"), field(nil, 1, "results")),
		reservedFor: "job",
		anyPod:      "\x01",
	}
	if err != nil || claim != want {
		t.Errorf("got %+v, %v, want %+v", claim, err, want)
	}
	for _, broken := range []string{"{}", string(value[len(storedPrefix):]), storedPrefix + "\x0a\x7f", storedPrefix + "\x0a", storedPrefix + "\xff"} {
		if claim, err := parseStored([]byte(broken)); err == nil {
			t.Errorf("%q is %+v", broken, claim)
		}
	}
}
