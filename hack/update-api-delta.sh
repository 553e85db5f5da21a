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

# Writes the difference between the API of our tree and upstream's (OpenAPI v3
# and discovery) to api/<release>. It is meant to be read before it is committed.
# Usage: hack/update-api-delta.sh [<release>...]

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# No argument means the default release of the ledger.
if (( $# == 0 )); then
  set -- ""
fi
for release; do
  hack/carry.sh api-delta --update --release "${release}"
done
