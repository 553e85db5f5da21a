#!/bin/sh

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

# Stands in for systemd-run and systemctl when upstream's node suite starts, stops and restarts a kubelet.
# Each unit is a folder in NODE_UNITS: the script that runs it, and the number of its process.

set -o errexit
set -o nounset

units=${NODE_UNITS:?}

start() {
  rm -f "${units}/$1/pid"
  setsid sh "${units}/$1/run" </dev/null >/dev/null 2>&1 &
  while [ ! -s "${units}/$1/pid" ]; do sleep 0.1; done
}

running() {
  kill -0 "$(cat "${units}/$1/pid")" 2>/dev/null
}

# quoted is an argument for a shell. The suite doubled what systemd would expand.
quoted() {
  printf " '%s'" "$(printf '%s' "$1" | sed -e 's/\$\$/$/g' -e 's/%%/%/g' -e "s/'/'\\\\''/g")"
}

if [ "${0##*/}" = systemd-run ]; then
  log=/dev/null
  while [ $# -gt 0 ]; do
    case $1 in
    --version) echo "systemd 252" && exit ;;
    -p)
      case $2 in StandardError=*) log=${2#*:} ;; esac
      shift
      ;;
    --unit=*) unit=${1#*=} ;;
    -*) ;;
    *) break ;;
    esac
    shift
  done
  mkdir -p "${units}/${unit:?}"
  {
    echo "echo \$\$ >'${units}/${unit}/pid'"
    printf exec
    for arg; do quoted "${arg}"; done
    echo " >>'${log}' 2>&1"
  } >"${units}/${unit}/run"
  start "${unit}"
  exit
fi

operation=$1
unit=${2%.service}.service
case ${operation} in
list-units)
  for dir in "${units}"/*; do
    [ -d "${dir}" ] || continue
    state="failed failed"
    if running "${dir##*/}"; then state="active running"; fi
    case "$* ${state}" in
    *--state=running*failed) ;;
    *) echo "  ${dir##*/} loaded ${state}" ;;
    esac
  done
  ;;
kill) kill "$(cat "${units}/${unit}/pid")" ;;
stop | restart)
  kill "$(cat "${units}/${unit}/pid")" 2>/dev/null || true
  while running "${unit}"; do sleep 0.1; done
  if [ "${operation}" = restart ]; then start "${unit}"; fi
  ;;
reset-failed) ;;
*)
  echo "$0 $*: not known here" >&2
  exit 1
  ;;
esac
