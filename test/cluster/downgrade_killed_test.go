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
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/downgrade"
	"kubernetes-dra/cmd/kubectl-dra/pkg/trycases"
	"kubernetes-dra/hack/pkg/cluster"
)

// With this variable, this program is "kubectl dra downgrade" with its arguments, and no test. It is the
// address of an API server that asks for no credentials.
const downgradeServer = "DOWNGRADE_SERVER"

// downgradeAlone returns the exit code.
func downgradeAlone(server string, args []string) int {
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig, config.APIServer = ptr.To(os.DevNull), &server
	out, err := trycases.Verb(context.Background(), downgrade.NewCommand, config, args[0], args[1:]...)
	fmt.Print(out)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// TestDowngradeKilled kills "kubectl dra downgrade" as soon as the API server has stored its first write, its
// second one and so on, on the way there and on the way back. The controller hangs meanwhile. Another run finishes.
func TestDowngradeKilled(t *testing.T) {
	t.Cleanup(func() {
		if err := shared.Restart(context.Background(), cluster.Scheduler, nil); err != nil {
			t.Error(err)
		}
	})
	killed := [2]bool{true, true}
	n := 0
	for ; killed[0] || killed[1]; n++ {
		t.Run(fmt.Sprintf("after-write-%d", n+1), func(t *testing.T) {
			e := newEnv(t)
			class := e.devices(2, "simulated")
			scheduler := func(gates map[string]bool) {
				if err := shared.Restart(e.ctx, cluster.Scheduler, gates); err != nil {
					t.Fatal(err)
				}
			}
			scheduler(nil)
			jobs := map[string]cluster.Consumer{}
			for _, name := range []string{"used", "idle"} {
				e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
				jobs[name] = e.job(name, 3, cluster.PodSpec(name, ""), nil)
			}
			for name, consumer := range jobs {
				e.running(name, 3)
				e.reservedFor(name, consumer)
			}
			e.patchJob("idle", `{"spec":{"suspend":true}}`)
			e.running("idle", 0)

			scheduler(map[string]bool{gate: false})
			// It would free the devices, too.
			resume, err := shared.Pause(cluster.ControllerManager)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(resume)
			killed[0] = e.downgradeKilled(n+1, "--apply")
			e.listed("used", 3)
			e.free("idle")

			scheduler(nil)
			killed[1] = e.downgradeKilled(n+1, "--back", "--apply")
			e.reservedFor("used", jobs["used"])
			resume()
			e.patchJob("idle", `{"spec":{"suspend":false}}`)
			e.running("idle", 3)
			e.reservedFor("idle", jobs["idle"])
		})
		if t.Failed() {
			return
		}
	}
	// A release alone takes two: one for the list, and one for the devices.
	if n < 3 {
		t.Errorf("only %d writes were seen", n-1)
	}
}

// downgradeKilled returns true if a run of the command was killed when so many of its writes were stored. The
// next run, which is not, must succeed.
func (e *env) downgradeKilled(writes int, args ...string) (killed bool) {
	e.Helper()
	config, err := shared.Config()
	if err != nil {
		e.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		e.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		e.Fatal(err)
	}
	command := exec.CommandContext(e.ctx, os.Args[0], append([]string{e.namespace}, args...)...)
	var stored atomic.Int32
	started := make(chan struct{})
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport: transport,
		ModifyResponse: func(response *http.Response) error {
			request := response.Request
			if request.Method == http.MethodGet || response.StatusCode >= http.StatusMultipleChoices || !strings.Contains(request.URL.Path, "/resourceclaims/") {
				return nil
			}
			if stored.Add(1) == int32(writes) {
				<-started
				if err := command.Process.Kill(); err != nil {
					return err
				}
				return io.ErrUnexpectedEOF
			}
			return nil
		},
	})
	defer proxy.Close()
	command.Env = append(os.Environ(), downgradeServer+"="+proxy.URL)
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	if err := command.Start(); err != nil {
		e.Fatal(err)
	}
	close(started)
	err = command.Wait()
	status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
	killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if err != nil && !killed {
		e.Fatalf("%v\n%s", err, out.String())
	}
	e.Logf("kubectl dra downgrade %s, %d writes, killed %t\n%s", strings.Join(args, " "), stored.Load(), killed, out.String())
	if out, err := e.downgrade(args...); err != nil {
		e.Fatalf("the run after that: %v\n%s", err, out)
	}
	return killed
}
