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

# Installs what "make verify" needs from the distribution and is not there, or with
# the argument "docker" what "make test-kind" needs, or with "generators" what code
# generators need, when they run. It needs root; for anybody else it names the
# packages and goes on.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

missing=()
case "${1:-}" in
docker)
  docker version >/dev/null 2>&1 || command -v dockerd >/dev/null || missing+=(docker.io)
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  pkg-config --exists libseccomp 2>/dev/null || missing+=(pkg-config libseccomp-dev)
  ;;
generators)
  command -v protoc >/dev/null || missing+=(protobuf-compiler)
  ;;
*)
  command -v shellcheck >/dev/null || missing+=(shellcheck)
  ;;
esac

if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
if [[ "$(id -u)" -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "not installed: ${missing[*]}; on Debian and Ubuntu: sudo apt-get install ${missing[*]}" >&2
  exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --quiet --no-install-recommends "${missing[@]}")
log=$(mktemp)
trap 'rm -f "${log}"' EXIT
# An image without package lists needs them first.
if ! "${install[@]}" >"${log}" 2>&1 && ! { apt-get update --quiet && "${install[@]}"; } >"${log}" 2>&1; then
  tail -20 "${log}" >&2
  exit 1
fi
