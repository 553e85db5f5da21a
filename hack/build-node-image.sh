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

# Builds a node image for kind from the server tarball that "make release" made:
#
#   hack/build-node-image.sh [--release 1.36] [--arch amd64] [--image name] [--base-image name]
#
# It needs a Docker engine, and either a network or kind's base image; it says
# what is missing.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

exec "$(dirname "${BASH_SOURCE[0]}")/carry.sh" node-image ${RELEASE:+--release "${RELEASE}"} "$@"
