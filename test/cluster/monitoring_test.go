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
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestMonitoring loads the rules into a Prometheus that looks at this cluster.
func TestMonitoring(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus: Debian has it in the package of that name")
	}
	e := newEnv(t)
	address := e.startPrometheus(program)
	query := func(path string, into any) error {
		request, err := http.NewRequestWithContext(e.ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		return json.NewDecoder(response.Body).Decode(into)
	}

	class := e.devices(1, "simulated")
	e.claim("train", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "train"})
	e.job("train", 3, cluster.PodSpec("train", ""), nil)
	e.running("train", 3)
	e.deleteJob("train")
	e.free("train")

	// Of the others nothing is to be seen unless something fails, or they are those of the network driver.
	metrics := []string{
		"up", "apiserver_request_total", "dra:claims",
		"resourceclaim_controller_workload_releases_total", "resourceclaim_controller_workload_reservations_removed_total",
	}
	e.eventually("Prometheus has the metrics", func() error {
		var names struct{ Data []string }
		if err := query("/api/v1/label/__name__/values", &names); err != nil {
			return err
		}
		if missing := slices.DeleteFunc(slices.Clone(metrics), func(name string) bool { return slices.Contains(names.Data, name) }); len(missing) > 0 {
			return fmt.Errorf("there are no %q", missing)
		}
		return nil
	})
	e.eventually("all rules are evaluated", func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, State, Health, LastError string }
				}
			}
		}
		if err := query("/api/v1/rules", &answer); err != nil {
			return err
		}
		if len(answer.Data.Groups) != 1 || len(answer.Data.Groups[0].Rules) < 10 {
			return fatal{fmt.Errorf("want the rules, got %+v", answer)}
		}
		for _, rule := range answer.Data.Groups[0].Rules {
			if rule.Health != "ok" {
				return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
			if rule.State == "firing" {
				return fatal{fmt.Errorf("%s fires, and nothing is wrong", rule.Name)}
			}
		}
		return nil
	})
}

// startPrometheus returns its address. It ends with the test.
func (e *env) startPrometheus(program string) string {
	e.Helper()
	dir := e.TempDir()
	admin, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig())
	if err != nil {
		e.Fatal(err)
	}
	tls := map[string]any{"ca_file": filepath.Join(dir, "ca"), "cert_file": filepath.Join(dir, "cert"), "key_file": filepath.Join(dir, "key")}
	var scrapes []any
	for _, component := range []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
		scrapes = append(scrapes, map[string]any{
			"job_name": component, "scheme": "https", "tls_config": tls,
			"static_configs": []any{map[string]any{"targets": []string{fmt.Sprintf("127.0.0.1:%d", shared.Ports[component])}}},
		})
	}
	config, err := yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(repo, "examples", "monitoring", "rules.yaml")}, "scrape_configs": scrapes,
	})
	if err != nil {
		e.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.yaml": config, "ca": admin.CAData, "cert": admin.CertData, "key": admin.KeyData} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			e.Fatal(err)
		}
	}
	// Nobody else listens on such a port for now.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	var log bytes.Buffer
	command := exec.CommandContext(context.Background(), program, "--config.file="+filepath.Join(dir, "config.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil || e.Failed() {
			e.Logf("Prometheus: %v\n%s", err, strings.TrimSpace(log.String()))
		}
	})
	return address
}
