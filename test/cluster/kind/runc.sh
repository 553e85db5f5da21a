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

# Stands before runc, and leaves out the capabilities in LACKING, separated by "|". Up to version 20, a Docker
# engine gives a privileged container all capabilities of the kernel. Some virtual machines have fewer of
# them, for root too, and runc fails.

spec=''
previous=''
for arg; do
  case ${previous} in
  --bundle) spec=${arg}/config.json ;;
  --process) spec=${arg} ;;
  esac
  case ${arg} in
  --bundle=*) spec=${arg#*=}/config.json ;;
  --process=*) spec=${arg#*=} ;;
  esac
  previous=${arg}
done
if [ -n "${spec}" ]; then
  sed -i -E -e "s/\"(${LACKING:?})\",//g" -e "s/,?\"(${LACKING})\"//g" "${spec}"
fi
exec runc "$@"
