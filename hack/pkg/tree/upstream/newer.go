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

package upstream

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// absent is what the go command says about a version that a module proxy does not have.
var absent = regexp.MustCompile(`404 Not Found|410 Gone|version is not available|unknown revision|no such file`)

// Newer returns the newest patch release of Kubernetes after a version like v1.37.2, nothing if there is none.
// It asks for each, since lists of module proxies have gaps. Upstream may leave out one number.
func Newer(ctx context.Context, dir, version string) (string, error) {
	dot := strings.LastIndex(version, ".")
	patch, err := strconv.Atoi(version[dot+1:])
	if err != nil {
		return "", fmt.Errorf("version %s: what comes after the last point is no number", version)
	}
	newest := ""
	for next := patch + 1; next <= patch+2; next++ {
		candidate := fmt.Sprintf("%s.%d", version[:dot], next)
		_, err := sys.Output(ctx, sys.Command(ctx, dir, sys.GoEnviron("GOWORK=off"), "go", "list", "-m", "k8s.io/kubernetes@"+candidate))
		switch {
		case err == nil:
			newest, patch = candidate, next
		case !absent.MatchString(err.Error()):
			return "", fmt.Errorf("is there a Kubernetes %s? %w", candidate, err)
		}
	}
	return newest, nil
}
