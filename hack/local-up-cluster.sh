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

# Starts a cluster on this machine: etcd, control plane, simulated nodes and, as
# root, one node with containerd and a kubelet. The gates of all features that
# are carried for the release are on. It builds what is not up to date.
#
#   hack/local-up-cluster.sh [-O]
#
#   -O                    take the programs in _output/<release>/bin as they are
#
#   RELEASE=1.36          release of Kubernetes
#   NODES=100             number of simulated nodes
#   CONTROL_PLANES=1      3 or 5: as many members of etcd and API servers, with
#                         leader election; the kubeconfig of the second API server
#                         is admin-2.kubeconfig beside that of the first
#   REAL_NODE=false       no node with a kubelet; with true it is an error if there
#                         cannot be one, otherwise there is one where it can be
#   FEATURE_GATES=A=true,B=false
#                         more feature gates, or other values
#   RUNTIME_CONFIG=...    the API server's --runtime-config
#   LOG_LEVEL=2           verbosity of all components
#   API_PORT=6443         port of the API server; API_SECURE_PORT is the same
#   ETCD_PORT=2379        port of etcd
#   POD_SUBNET=10.200     first two numbers of the addresses of pods and Services
#
# hack/local-down-cluster.sh takes it down.

set -o errexit
set -o nounset
set -o pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '16,/^$/s/^# \{0,1\}//p' "$0"
  exit
fi

args=()
case "${1:-}" in
"") ;;
-O) args+=(--no-build) ;;
*)
  echo "usage: $0 [-O]; $0 --help describes its variables" >&2
  exit 2
  ;;
esac

# Whatever has no value here gets the default of "carry up".
option() {
  if [[ -n "$2" ]]; then
    args+=("--$1=$2")
  fi
}
option release "${RELEASE:-}"
option nodes "${NODES:-}"
option control-planes "${CONTROL_PLANES:-}"
option feature-gates "${FEATURE_GATES:-}"
option runtime-config "${RUNTIME_CONFIG:-}"
option log-level "${LOG_LEVEL:-}"
option api-port "${API_PORT:-${API_SECURE_PORT:-}}"
option etcd-port "${ETCD_PORT:-}"
option pod-subnet "${POD_SUBNET:-}"
case "${REAL_NODE:-}" in
"") ;;
true) args+=(--real-node) ;;
false) args+=(--no-real-node) ;;
*)
  echo "REAL_NODE is true, false or nothing, not ${REAL_NODE}" >&2
  exit 2
  ;;
esac

exec "$(dirname "${BASH_SOURCE[0]}")/carry.sh" up "${args[@]}"
