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

package kind

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tools"
)

// networkDriver installs the network driver of the release and its example as docs/network-driver.md says, and
// uninstalls both.
func (s *subject) networkDriver(version string) {
	s.Helper()
	start := time.Now()
	logf("install the network driver")
	s.run(s.kind, "load", "image-archive", "--name="+clusterName, filepath.Join(s.release, cluster.NetworkDaemonSet+"-linux-"+runtime.GOARCH+".tar"))
	list := strings.Fields(s.run(s.kind, "get", "nodes", "--name="+clusterName))
	for _, node := range list {
		// kind's nodes do not have it.
		s.run("docker", "cp", filepath.Join(tools.Dir(s.repo), "bridge"), node+":/opt/cni/bin/bridge")
	}
	clusterWide := func() string {
		return s.onCluster("get", "resourceslices,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings,namespaces", "--output=name")
	}
	before := clusterWide()
	deploy := filepath.Join(s.repo, "cmd", cluster.NetworkDaemonSet, "deploy-kind")
	s.onCluster("apply", "--kustomize="+deploy)
	s.onCluster("rollout", "status", "daemonset/"+cluster.NetworkDaemonSet, "--namespace="+cluster.NetworkNamespace, "--timeout=5m")
	s.Logf("the network driver was installed after %s", time.Since(start).Round(time.Second))

	example := filepath.Join(s.repo, filepath.FromSlash("examples/network/"+cluster.Manifest("pods", version)))
	s.onCluster("apply", "--filename="+example)
	s.onCluster("rollout", "status", "deployment/storage-network", "--timeout=5m")
	for _, pod := range strings.Fields(s.onCluster("get", "pods", "--selector=app=storage-network", "--output=name")) {
		if out := s.onCluster("exec", pod, "--", "ip", "address", "show", "storage"); !strings.Contains(out, "inet 10.220.0.") {
			s.Errorf("%s has this interface: %s", pod, out)
		}
	}
	const status = `{range .items[*].status.devices[*]}{.driver} {.conditions[0].type}={.conditions[0].status} {.networkData.ips[0]}{"\n"}{end}`
	s.eventually("both devices have their status", func() error {
		got := s.onCluster("get", "resourceclaims", "--output=jsonpath="+status)
		if strings.Count(got, cluster.NetworkDriverName+" Ready=True 10.220.0.") != 2 {
			return errors.New(got)
		}
		return nil
	})

	s.onCluster("delete", "--filename="+example)
	s.onCluster("wait", "pods", "--selector=app=storage-network", "--for=delete", "--timeout=5m")
	s.onCluster("delete", "--kustomize="+deploy)
	s.eventually("nothing is left of the network driver", func() error {
		if after := clusterWide(); after != before {
			return fmt.Errorf("before:\n%safter:\n%s", before, after)
		}
		for _, node := range list {
			find := "find /run/cdi /var/lib/kubelet /var/lib/cni -path '*" + cluster.NetworkDriverName + "*' ! -type d"
			if left := s.run("docker", "exec", node, "sh", "-c", find); left != "" {
				return fmt.Errorf("on node %s: %s", node, left)
			}
		}
		return nil
	})
}
