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

package e2edra

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"kubernetes-dra/hack/pkg/sys"
)

// downloadHost is where upstream's tests ask for the newest version of a release.
const downloadHost = "dl.k8s.io"

// serveDownloads serves a folder of this machine in place of the host, until the listener is closed. It
// writes the certificate that clients have to trust to a file.
func serveDownloads(l net.Listener, dir, certFile string) error {
	cert, key, err := certutil.GenerateSelfSignedCertKey(downloadHost, nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile, cert, 0o644); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           http.FileServer(http.Dir(dir)),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.ServeTLS(l, "", "") }()
	return nil
}

// writeStable writes the file that names the newest version of a release.
func writeStable(dir, release, version string) error {
	// Upstream takes all of it as the version, so it has no end of line.
	return sys.WriteFile(filepath.Join(dir, "release", fmt.Sprintf("stable-%s.txt", release)), []byte(version), 0o644)
}
