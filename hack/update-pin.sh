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

# Pins a release: hack/update-pin.sh 1.36
#
# Writes hack/releases/<release> for the version that the ledger names. The go
# command checks all modules with the checksum database; commit the result.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

exec "$(dirname "${BASH_SOURCE[0]}")/carry.sh" pin --release "${1:?usage: hack/update-pin.sh <release>}"
