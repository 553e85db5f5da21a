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
	"path/filepath"
	"strings"
	"testing"
)

// TestNetworkDriverOfTwo checks that the drivers of two clusters on this machine listen on two ports,
// and that each is asked on its own whether it is ready.
func TestNetworkDriverOfTwo(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]bool{}
	for range 2 {
		c := newCluster(t)
		c.Options.Repo = repo
		manifest, err := c.NetworkDriver()
		if err != nil {
			t.Fatal(err)
		}
		url := c.NetworkDriverURL("")
		urls[url] = true
		address := strings.TrimPrefix(url, "http://")
		if !strings.Contains(manifest, "\n        - --listen="+address+"\n") {
			t.Errorf("the driver does not listen on %s:\n%s", address, manifest)
		}
		host, port, _ := strings.Cut(address, ":")
		if strings.Count(manifest, "httpGet: {host: "+host+", port: "+port+", path: ") != 2 {
			t.Errorf("want two probes of %s:\n%s", address, manifest)
		}
	}
	if len(urls) != 2 {
		t.Errorf("want two ports, got %v", urls)
	}
}
