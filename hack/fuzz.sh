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

# Runs each of our fuzz targets in the tree of a release for some time. "go test" writes an input that
# fails into the package of the tree, says how to run it again, and runs it with the other tests from then
# on: make it one of the seeds in the overlay when it is fixed.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

cd "$(dirname "$0")/.."
release=${1:-$(sed -n 's/^default: *"\(.*\)"/\1/p' hack/ledger.yaml)}
time=${2:-2m}
hack/carry.sh tree --release "${release}"
packages=$(grep -rlE '^func Fuzz\w+\(f \*testing\.F\)' pkg staging | xargs -n 1 dirname | sort -u)
cd "_output/${release}/kubernetes"
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -gcflags=all=-dwarf=false"
unset GOWORK
failed=()
for package in ${packages}; do
  # A release may lack it.
  [[ -d "${package}" ]] || continue
  targets=$(go test -list '^Fuzz' "./${package}" | sed '/^Fuzz/!d')
  for target in ${targets}; do
    echo "fuzz ${package} ${target} for ${time}"
    go test -run='^$' -fuzz="^${target}\$" -fuzztime="${time}" "./${package}" || failed+=("${package} ${target}")
  done
done
if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
