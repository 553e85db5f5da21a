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

# Commits the overlay on top of your own git checkout of Kubernetes:
#
#   hack/apply.sh <checkout> [--release 1.36] [--skip-generated]
#
# The checkout has to be at the pinned version of a release that is carried, or at a
# later patch release of it. If something does not fit, nothing is changed there.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

checkout=${1:?usage: hack/apply.sh <checkout> [--release 1.36] [--skip-generated]}
shift
checkout=$(realpath -- "$checkout")
exec "$(dirname "${BASH_SOURCE[0]}")/carry.sh" apply "$checkout" "$@"
