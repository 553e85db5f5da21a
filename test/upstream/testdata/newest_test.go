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
	"io"
	"net/http"
	"os"
	"strings"
)

// Upstream's tests of upgrades ask which version of the release before is the newest. With this file in
// their package, it is the one that was built here.
func init() { http.DefaultClient.Transport = newestRelease{} }

type newestRelease struct{}

func (newestRelease) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.String() != os.Getenv("NEWEST_URL") {
		return http.DefaultTransport.RoundTrip(req)
	}
	// All of it is the version, so it has no end of line.
	body := io.NopCloser(strings.NewReader(os.Getenv("NEWEST_VERSION")))
	return &http.Response{Request: req, StatusCode: http.StatusOK, Status: "200 OK", ProtoMajor: 1, ProtoMinor: 1, Body: body}, nil
}
