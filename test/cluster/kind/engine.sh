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

# A Docker engine for one test: engine.sh <folder> <flag of dockerd>... All its files are in the folder. When
# it is told to end, it removes what it made: files, interfaces, rules of iptables, control groups. It also
# removes what is left of an engine in that folder that could not do so.

set -o errexit
set -o nounset
set -o pipefail

dir=$1
shift
# The control group of all containers. Another engine has another one.
group=kubernetes-dra-docker
forward=/proc/sys/net/ipv4/ip_forward

bridges() {
  ip -oneline link show type bridge | awk -F ': ' '{ print $2 }'
}

restore() {
  set +o errexit
  for bridge in $(bridges); do
    grep --quiet --line-regexp --fixed-strings "${bridge}" "${dir}/bridges" || ip link delete "${bridge}"
  done
  iptables-restore <"${dir}/rules"
  cat "${dir}/forward" >"${forward}"
  awk -v dir="${dir}/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort --reverse | xargs --no-run-if-empty umount --lazy
  find /sys/fs/cgroup -depth -type d -path "*/${group}*" -exec rmdir {} \;
  rm -rf "${dir}"
}

# The first one cleans up itself, unless it was killed.
for file in script pid; do
  if [[ -s "${dir}/${file}" ]]; then
    left=$(cat "${dir}/${file}")
    for ((i = 0; i < 300; i++)); do
      grep --quiet --fixed-strings "${dir}" "/proc/${left}/cmdline" 2>/dev/null || break
      ((i > 0)) || kill "${left}"
      sleep 0.2
    done
  fi
done
[[ ! -e "${dir}/script" ]] || restore
mkdir -p "${dir}"
bridges >"${dir}/bridges"
# The tables that dockerd writes to, also if there are none yet.
{ iptables-save --table=filter && iptables-save --table=nat; } >"${dir}/rules"
cat "${forward}" >"${dir}/forward"
echo $$ >"${dir}/script"

trap : TERM INT HUP
dockerd --host="unix://${dir}/docker.sock" --log-level=warn --ip6tables=false \
  --cgroup-parent="/${group}" --exec-opt=native.cgroupdriver=cgroupfs \
  --data-root="${dir}/data" --exec-root="${dir}/exec" --pidfile="${dir}/pid" "$@" &
engine=$!
status=0
# A signal ends the first one.
wait "${engine}" || status=$?
kill "${engine}" 2>/dev/null || true
wait "${engine}" 2>/dev/null || true
restore
exit "${status}"
