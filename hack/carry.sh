#!/usr/bin/env bash
# Copyright The Kubernetes Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# Runs the tool: hack/carry.sh <command> [flags]. The Makefile and all scripts call
# it. The go command brings the tool up to date first; that takes no time if it is.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
want=$(sed -n 's/^go //p' go.mod)
if ! command -v go >/dev/null; then
  echo "carry: there is no go command in PATH: install Go ${want} or later" >&2
  exit 1
fi
# A go command that knows toolchains downloads a newer one here, unless GOTOOLCHAIN forbids it.
found=$(go version 2>&1) || true
have=$(sed -n 's/^go version .*go\([0-9][0-9.]*\).*/\1/p' <<<"${found}")
if [[ -z "${have}" || "$(printf '%s\n' "${want}" "${have}" | sort --version-sort | head -1)" != "${want}" ]]; then
  echo "carry: Go ${want} or later is needed, but $(command -v go) says: ${found}" >&2
  exit 1
fi

# For programs in images, which have no C library, and for one build cache of all. Debug
# information would take a sixth of that (see hack/pkg/sys/goenv.go).
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:+$GOFLAGS }-gcflags=all=-dwarf=false"
GOWORK=off go build -o _output/bin/carry ./hack/carry
exec _output/bin/carry "$@"
