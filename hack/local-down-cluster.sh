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

# Takes down the cluster that hack/local-up-cluster.sh started, and removes all
# of it but the logs. RELEASE is that of the cluster.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

if (( $# > 0 )); then
  echo "unknown argument $1: $0 takes none; RELEASE=1.36 $0 takes down the cluster of that release" >&2
  exit 2
fi
exec "$(dirname "${BASH_SOURCE[0]}")/carry.sh" down ${RELEASE:+--release="${RELEASE}"}
