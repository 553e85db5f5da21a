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

package app

import (
	"context"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// initResourceClaimController creates the controller. In this release, it also
// starts to run.
func initResourceClaimController(ctx context.Context, t *testing.T, controllerCtx ControllerContext) {
	t.Helper()
	_, enabled, err := startResourceClaimController(ctx, controllerCtx, names.ResourceClaimController)
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
	if !enabled {
		t.Fatal("expected a controller, got none")
	}
}
