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

package thirdparty

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/tools"
)

// controller is a program of others. It runs on this machine, as the service account that its manifests
// have for it, and the API server calls its webhooks there.
type controller struct {
	// name is the folder in hack/tools that pins it, and the program.
	name string
	// module has the manifests, in config/default if folder is empty.
	module, folder string
	// namespace and account are those of its service account.
	namespace, account string
	// args are its arguments besides that for its configuration. HEALTH in them stands for the address at
	// which it says that it is ready: its manifests may have no configuration.
	args []string
	// ready is where it says so if it cannot be told: it has a port of its own for that.
	ready string
	// env is more of its environment.
	env []string
	// certificates is a folder of the machine where it wants a certificate for its metrics, whatever is
	// configured. It gets an /etc of its own with that.
	certificates string
}

// ownEtc runs a program where /etc has nothing but a folder with the certificate of another one.
const ownEtc = `mount -t tmpfs tmpfs /etc && mkdir -p "$0" && cp "$1"/tls.* "$0" && shift && exec "$@"`

// configFile is the key of its configuration in its ConfigMap.
const configFile = "controller_manager_config.yaml"

// install applies the manifests of a controller and starts it. Both end with the test.
func (e *env) install(c controller) {
	e.Helper()
	if err := e.tryInstall(c); err != nil {
		e.Fatalf("%s: %v", c.name, err)
	}
}

func (e *env) tryInstall(c controller) error {
	if err := tools.Build(e.ctx, repo, []string{c.name}, logf); err != nil {
		return err
	}
	objects, err := e.manifests(c)
	if err != nil {
		return err
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	webhooks, err := freeAddress()
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	var defaults string
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		callHere(o.Object, "https://"+webhooks.String(), cert)
		if o.GetKind() == "ConfigMap" {
			defaults, _, _ = unstructured.NestedString(o.Object, "data", configFile)
		}
		// It runs without them.
		return slices.Contains([]string{"Deployment", "APIService"}, o.GetKind())
	})
	if err := e.applyAll(objects); err != nil {
		return err
	}
	// Some end when they are not served yet.
	e.eventually("all kinds are served", func() error {
		_, err := e.tryKubectl("", "wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=1m")
		return err
	})
	kubeconfig, err := e.kubeconfig(c)
	if err != nil {
		return err
	}
	dir := e.TempDir()
	files := map[string][]byte{"tls.crt": cert, "tls.key": key, "kubeconfig": kubeconfig}
	if defaults != "" {
		const name = "config.yaml"
		if files[name], err = c.config(defaults, dir, webhooks.Port, health.String()); err != nil {
			return err
		}
		c.args = append([]string{"--config=" + filepath.Join(dir, name)}, c.args...)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return e.start(c, dir, health.String())
}

// manifests are those of the version that is pinned, from the module cache.
func (e *env) manifests(c controller) ([]*unstructured.Unstructured, error) {
	list := exec.CommandContext(e.ctx, "go", "list", "-m", "-f", "{{.Dir}}", c.module)
	list.Dir = filepath.Join(repo, "hack", "tools", c.name)
	list.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("where is module %s: %w", c.module, err)
	}
	folder := cmp.Or(c.folder, "config/default")
	kustomize := exec.CommandContext(e.ctx, shared.Kubectl(), "kustomize", folder)
	// A path with an @ would be the address of a repository.
	kustomize.Dir = strings.TrimSpace(string(dir))
	out, err := kustomize.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize %s in %s: %w", folder, kustomize.Dir, err)
	}
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("manifests in %s: %w", kustomize.Dir, err)
		}
		objects = append(objects, &object)
	}
}

// callHere has the API server call webhooks at a URL and not through a Service.
func callHere(value any, url string, ca []byte) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			callHere(element, url, ca)
		}
	case map[string]any:
		if path, found, _ := unstructured.NestedString(value, "clientConfig", "service", "path"); found {
			value["clientConfig"] = map[string]any{"url": url + path, "caBundle": base64.StdEncoding.EncodeToString(ca)}
			return
		}
		for _, element := range value {
			callHere(element, url, ca)
		}
	}
}

// applyAll applies manifests, and deletes them after the test. Some are too large for kubectl's annotation.
func (e *env) applyAll(objects []*unstructured.Unstructured) error {
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		return err
	}
	kubectl := func(args ...string) error {
		cmd := shared.KubectlCommand(context.WithoutCancel(e.ctx), append(args, "--filename=-")...)
		cmd.Stdin = bytes.NewReader(list)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	e.Cleanup(func() {
		if err := kubectl("delete", "--ignore-not-found"); err != nil {
			e.Error(err)
		}
	})
	return kubectl("apply", "--server-side")
}

// kubeconfig has the identity of a controller's service account.
func (e *env) kubeconfig(c controller) ([]byte, error) {
	admin, err := shared.Config()
	if err != nil {
		return nil, err
	}
	token, err := e.CoreV1().ServiceAccounts(c.namespace).CreateToken(e.ctx, c.account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of its service account: %w", err)
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"it": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it"}},
		CurrentContext: "it",
	})
}

// config is the configuration of a controller for this machine, made from the one that it comes with. A
// folder has its certificate.
func (c controller) config(defaults, dir string, webhooks int, health string) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(defaults), &config); err != nil {
		return nil, fmt.Errorf("%s in its ConfigMap: %w", configFile, err)
	}
	maps.Copy(config, map[string]any{
		"leaderElection":         map[string]any{"leaderElect": false},
		"internalCertManagement": map[string]any{"enable": false},
		"metrics":                map[string]any{"bindAddress": "0"},
		"health":                 map[string]any{"healthProbeBindAddress": health},
		"webhook":                map[string]any{"host": "127.0.0.1", "port": webhooks, "certDir": dir},
	})
	return yaml.Marshal(config)
}

// start runs the program with what is in a folder, and waits until it is ready. It ends with the test.
func (e *env) start(c controller, dir, health string) error {
	log, err := os.Create(filepath.Join(shared.Options.Dir, "logs", c.name+".log"))
	if err != nil {
		return err
	}
	args := []string{filepath.Join(tools.Dir(repo), c.name)}
	for _, arg := range c.args {
		args = append(args, strings.ReplaceAll(arg, "HEALTH", health))
	}
	if c.certificates != "" {
		args = append([]string{"unshare", "--mount", "sh", "-c", ownEtc, c.certificates, dir}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), []string{"KUBECONFIG=" + filepath.Join(dir, "kubeconfig")}, c.env)
	cmd.Stdout, cmd.Stderr = log, log
	// Also if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended, end := context.WithCancelCause(context.Background())
	go func() { end(cmd.Wait()) }()
	e.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended.Done()
		_ = log.Close()
	})
	e.eventually(c.name+" is ready, see "+log.Name(), func() error {
		if ended.Err() != nil {
			e.Fatalf("%s ended, see %s: %v", c.name, log.Name(), context.Cause(ended))
		}
		response, err := http.Get(cmp.Or(c.ready, "http://"+health+"/readyz"))
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	return nil
}

// freeAddress is an address of this machine that nobody uses.
func freeAddress() (*net.TCPAddr, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return l.Addr().(*net.TCPAddr), l.Close()
}
