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

# The targets are names for what hack/carry does; "make help" lists them.

SHELL := bash
.DEFAULT_GOAL := build

# RELEASE is the Kubernetes release: one of those that hack/ledger.yaml has as
# carried. Without it, the default of that file.
RELEASE ?=
export RELEASE
# FEATURE is the slug of the feature to which "make save" attributes edits of
# upstream files.
FEATURE ?=
# FUZZTIME is how long "make fuzz" runs each target, for instance 30s.
FUZZTIME ?=
# ARCH are the architectures of "make release".
ARCH ?=
# MIRROR is the address of Debian's archive for "make release" and "make pin-images",
# if it is not the one of this machine's apt. PROXY_BASE is an image with a digest that
# "make release" uses instead of Debian's packages.
MIRROR ?=
PROXY_BASE ?=
# UNTESTED=1 lets "make release" go on while a test of the release is owed.
UNTESTED ?=
# KUBELET is the older release of the kubelet in "make test-e2e-upstream".
KUBELET ?=
# VARIANT is the one part of "make test-e2e-upstream" or "make test-conformance" to run, patched for
# example. It is compared with what the others found before.
VARIANT ?=
# UPGRADE are the releases that "make test-upgrade" goes through, "1.36 upstream-1.37" for example.
# "off-1.37" is a release without its feature gates.
UPGRADE ?=
# ONLY is the one package for "make test", ./pkg/controller/resourceclaim for example.
ONLY ?=
# BUDGET are the minutes that "make test" may take with what is owed of other releases.
BUDGET ?=
# STEP_CLOCK=1 lets "make test-faults" set the clock of this machine, ten minutes forward and back.
STEP_CLOCK ?=
# QUICK=1 makes "make bench" short.
QUICK ?=
# AGAINST is a checkout of Kubernetes for "make bench" to compare with. SAVE=1 makes it
# write docs/benchmark.json.
AGAINST ?=
SAVE ?=

CARRY := hack/carry.sh

##@ Build

.PHONY: build
build: ## The binaries in _output/<release>/bin. The default. DBG=1
	@$(CARRY) build --release "$(RELEASE)"

.PHONY: tree
tree: ## The Kubernetes tree in _output/<release>/kubernetes.
	@$(CARRY) tree --release "$(RELEASE)"

.PHONY: patches
patches: ## A series for git am in _output/<release>/patches.
	@$(CARRY) patches --release "$(RELEASE)"

.PHONY: modules
modules: ## Go modules with our fields, for programs of yours.
	@$(CARRY) modules --release "$(RELEASE)"

.PHONY: release
release: ## Tarballs, images, SBOM of a tested tree. ARCH= UNTESTED=1
	@$(CARRY) release --release "$(RELEASE)" $(if $(ARCH),--arch $(ARCH)) $(if $(MIRROR),--mirror $(MIRROR)) $(if $(PROXY_BASE),--proxy-base $(PROXY_BASE)) $(if $(UNTESTED),--untested)

##@ Run

.PHONY: up
up: ## Start a cluster. hack/local-up-cluster.sh --help says more.
	@hack/local-up-cluster.sh

.PHONY: down
down: ## Stop the cluster, and leave nothing behind.
	@$(CARRY) down --release "$(RELEASE)"

.PHONY: demo
demo: ## 1,000 pods share one claim. Starts a cluster if none runs.
	@$(CARRY) demo --release "$(RELEASE)"

.PHONY: demo-network
demo-network: need-root ## Two pods get an additional interface, and its status.
	@$(CARRY) demo --network --release "$(RELEASE)"

##@ Test

.PHONY: test
test: deps ## All of ours, then what is owed. ONLY=./pkg/x BUDGET=minutes
	@$(CARRY) test --release "$(RELEASE)" $(if $(ONLY),--only "$(ONLY)") $(if $(BUDGET),--budget $(BUDGET)m)

.PHONY: test-owed
test-owed: deps ## What no recorded result covers, of all releases. BUDGET=
	@$(CARRY) test --owed $(if $(filter-out file,$(origin RELEASE)),--release "$(RELEASE)") $(if $(BUDGET),--budget $(BUDGET)m)

.PHONY: test-all
test-all: deps ## Run everything, whatever was recorded. It takes hours.
	@$(CARRY) test --all $(if $(filter-out file,$(origin RELEASE)),--release "$(RELEASE)")

.PHONY: record
record: ## Move new results from _output to hack/releases.
	@$(CARRY) record

.PHONY: test-unit
test-unit: ## Unit tests of the packages that we touch.
	@$(CARRY) test --release "$(RELEASE)" --mode vet,unit,race,gates-on

.PHONY: test-integration
test-integration: ## Tests with a real API server and etcd.
	@$(CARRY) test --release "$(RELEASE)" --mode integration,integration-gates-on

.PHONY: test-e2e
test-e2e: ## Tests of the binaries in real clusters.
	@$(CARRY) test --release "$(RELEASE)" --mode cluster

.PHONY: verify
verify: deps ## Check seams, documents, generated code; all releases.
	@$(CARRY) verify

.PHONY: lint
lint: deps ## Lint the overlay, our other Go code, scripts, workflows.
	@$(CARRY) lint --release "$(RELEASE)"

##@ Test more (no part of make test)

.PHONY: test-kubeadm
test-kubeadm: need-root ## A release with kubeadm. It needs fixed ports.
	@$(CARRY) test --release "$(RELEASE)" --kubeadm

.PHONY: test-kind
test-kind: check-release ## A release as a node image of kind. It needs Docker.
	@hack/install-deps.sh docker
	@$(CARRY) test --release "$(RELEASE)" --kind

.PHONY: test-modules
test-modules: ## A Go program with the modules of make modules.
	@$(CARRY) test --release "$(RELEASE)" --modules

.PHONY: test-drivers
test-drivers: need-root ## dra-driver-check against four drivers.
	@$(CARRY) test --release "$(RELEASE)" --drivers

.PHONY: test-kubectl-dra
test-kubectl-dra: ## The cases of kubectl dra on unpatched programs.
	@$(CARRY) test --release "$(RELEASE)" --kubectl-dra

.PHONY: test-faults
test-faults: need-root ## Components that are killed, hang or leak. STEP_CLOCK=1
	@STEP_CLOCK="$(STEP_CLOCK)" $(CARRY) test --release "$(RELEASE)" --faults

.PHONY: test-thirdparty
test-thirdparty: ## Controllers of others, JobSet for one, beside a cluster.
	@$(CARRY) build --release "$(RELEASE)"
	@cd test/thirdparty && GOWORK=off go test -count=1 -timeout=60m -v ./...

.PHONY: test-upgrade
test-upgrade: ## Patched binaries, unpatched, and back. UPGRADE="1.36 1.37"
	@$(CARRY) test --release "$(RELEASE)" --upgrade --through "$(UPGRADE)"

.PHONY: test-control-planes
test-control-planes: ## Three control planes: killed, hanging, replaced.
	@$(CARRY) test --release "$(RELEASE)" --control-planes

.PHONY: test-e2e-upstream
test-e2e-upstream: need-root deps ## Upstream's DRA specs, also unpatched. KUBELET= VARIANT=
	@$(CARRY) e2e --release "$(RELEASE)" $(if $(KUBELET),--kubelet "$(KUBELET)") $(if $(VARIANT),--variant "$(VARIANT)")

.PHONY: test-e2e-dra
test-e2e-dra: need-root ## Upstream's tests of upgrades and of gates, also unpatched.
	@$(CARRY) test --release "$(RELEASE)" --e2e-dra

.PHONY: test-e2e-node
test-e2e-node: need-root ## Upstream's node specs about DRA, also unpatched.
	@$(CARRY) test --release "$(RELEASE)" --e2e-node

.PHONY: test-conformance
test-conformance: need-root deps ## Conformance: gates off, gates on, unpatched. VARIANT=
	@$(CARRY) e2e --conformance --release "$(RELEASE)" $(if $(VARIANT),--variant "$(VARIANT)")

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME (2m).
	@hack/fuzz.sh "$(RELEASE)" "$(FUZZTIME)"

.PHONY: test-drop
test-drop: ## Compile without each of the features. FEATURE=
	@$(CARRY) drop $(if $(filter-out file,$(origin RELEASE)),--release "$(RELEASE)") $(if $(FEATURE),--feature $(FEATURE))

.PHONY: bench
bench: ## Patched beside unpatched. QUICK=1 AGAINST=checkout SAVE=1
	@$(CARRY) bench --release "$(RELEASE)" $(if $(QUICK),--quick) $(if $(AGAINST),--against "$(AGAINST)") $(if $(SAVE),--save)

##@ Develop

.PHONY: save
save: ## Take edits in the tree back into the overlay. FEATURE=slug
	@$(CARRY) save --release "$(RELEASE)" $(if $(FEATURE),--feature $(FEATURE))

.PHONY: update
update: ## Write what is derived, as make verify wants it.
	@$(CARRY) verify --update

.PHONY: port
port: ## The overlay for another release. FROM=1.36 TO=1.37
	@$(CARRY) port $(if $(FROM),--from $(FROM)) $(if $(TO),--to $(TO))

.PHONY: pin
pin: ## Pin the version that the ledger has for RELEASE.
	@$(CARRY) pin --release "$(RELEASE)"

.PHONY: newer
newer: ## Patch releases of Kubernetes that are not pinned yet.
	@$(CARRY) newer

.PHONY: pin-images
pin-images: ## Pin the newest Debian packages for images. MIRROR=
	@$(CARRY) pin-images $(if $(MIRROR),--mirror $(MIRROR))

.PHONY: check-release
check-release: # Refuses a name of a release before anything is installed or built.
	@$(CARRY) releases --release "$(RELEASE)" >/dev/null

.PHONY: need-root
need-root: check-release # Refuses before hours are spent on what only root can do.
	@[[ $$(id -u) -eq 0 ]] || { echo "make $(MAKECMDGOALS): it starts containerd and a kubelet, which takes root" >&2; exit 1; }

.PHONY: deps
deps: check-release # What verify needs from the distribution.
	@hack/install-deps.sh

.PHONY: clean
clean: ## Stop clusters of all releases; remove what was built.
	@$(CARRY) down --all
	rm -rf _output

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## "; print "make <target> [RELEASE=x]" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
