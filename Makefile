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
# UNTESTED=1 lets "make release" go on when the tree is not the tested one.
UNTESTED ?=
# KUBELET is the older release of the kubelet in "make test-e2e-upstream".
KUBELET ?=
# VARIANT is the one part of "make test-e2e-upstream" or "make test-conformance" to run, patched for
# example. It is compared with what the others found before.
VARIANT ?=
# UPGRADE are the releases that "make test-upgrade" goes through, "1.36 upstream-1.37" for example.
# "off-1.37" is a release without its feature gates.
UPGRADE ?=
# OTHERS=short makes "make test" also test other releases whose tree is the tested one.
# OTHERS=long adds our integration tests of the other releases.
OTHERS ?= changed
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
build: ## Build the tree and its binaries into _output/<release>/bin. The default. DBG=1 keeps symbols.
	@$(CARRY) build --release "$(RELEASE)"

.PHONY: tree
tree: ## Build the Kubernetes tree _output/<release>/kubernetes.
	@$(CARRY) tree --release "$(RELEASE)"

.PHONY: patches
patches: ## Write the tree's commits as a series for git am into _output/<release>/patches.
	@$(CARRY) patches --release "$(RELEASE)"

.PHONY: release
release: ## Server tarballs, images, checksums, SBOM into _output/<release>/release, if the tree is tested. ARCH=amd64,arm64 UNTESTED=1
	@$(CARRY) release --release "$(RELEASE)" $(if $(ARCH),--arch $(ARCH)) $(if $(MIRROR),--mirror $(MIRROR)) $(if $(PROXY_BASE),--proxy-base $(PROXY_BASE)) $(if $(UNTESTED),--untested)

##@ Run

.PHONY: up
up: ## Start a cluster on this machine. hack/local-up-cluster.sh has its variables.
	@hack/local-up-cluster.sh

.PHONY: down
down: ## Stop the cluster, and leave nothing behind.
	@$(CARRY) down --release "$(RELEASE)"

.PHONY: demo
demo: ## Tell the shared-claim story on a cluster; start one if none runs.
	@$(CARRY) demo --release "$(RELEASE)"

.PHONY: demo-network
demo-network: ## Give two pods an additional interface, and show its status.
	@$(CARRY) demo --network --release "$(RELEASE)"

##@ Test

.PHONY: test
test: deps ## Everything that a contributor must pass, and shortly for other releases that changed. With RELEASE=x: everything for x alone.
	@$(CARRY) test --release "$(RELEASE)" $(if $(filter file,$(origin RELEASE)),--others $(OTHERS))

.PHONY: test-unit
test-unit: ## Unit tests of all packages that we touch, ours and upstream's.
	@$(CARRY) test --release "$(RELEASE)" --unit

.PHONY: test-integration
test-integration: ## Tests with a real API server and etcd.
	@$(CARRY) test --release "$(RELEASE)" --integration

.PHONY: test-e2e
test-e2e: ## Tests of the binaries in real clusters.
	@$(CARRY) test --release "$(RELEASE)" --e2e

.PHONY: test-kubeadm
test-kubeadm: ## A release taken home: kubeadm init, the shared-claim story, kubeadm reset. Not part of test: it needs fixed ports.
	@$(CARRY) test --release "$(RELEASE)" --kubeadm

.PHONY: test-kind
test-kind: ## A release as a node image of kind: two nodes, the shared-claim story, our specs. Not part of test: it needs a Docker engine.
	@hack/install-deps.sh docker
	@$(CARRY) test --release "$(RELEASE)" --kind

.PHONY: test-faults
test-faults: ## Components that are killed, hang, or are cut off, and ten minutes at full speed. Not part of test.
	@STEP_CLOCK="$(STEP_CLOCK)" $(CARRY) test --release "$(RELEASE)" --faults

.PHONY: test-upgrade
test-upgrade: ## A cluster that runs goes from patched to unpatched binaries and back, or through UPGRADE. Not part of test.
	@$(CARRY) test --release "$(RELEASE)" --upgrade --through "$(UPGRADE)"

.PHONY: test-e2e-upstream
test-e2e-upstream: deps ## Upstream's DRA specs on a cluster, patched beside unpatched. Not part of test: it takes half an hour.
	@$(CARRY) e2e --release "$(RELEASE)" $(if $(KUBELET),--kubelet "$(KUBELET)") $(if $(VARIANT),--variant "$(VARIANT)")

.PHONY: test-e2e-dra
test-e2e-dra: ## Upstream's tests that upgrade a cluster, go back, and toggle gates: patched at both ends, at one, at none. Not part of test.
	@$(CARRY) test --release "$(RELEASE)" --e2e-dra

.PHONY: test-e2e-node
test-e2e-node: ## Upstream's node specs about DRA, patched beside unpatched. Not part of test: it takes half an hour.
	@$(CARRY) test --release "$(RELEASE)" --e2e-node

.PHONY: test-conformance
test-conformance: deps ## Upstream's conformance specs on a cluster: patched with gates off, with gates on, unpatched. Not part of test: it takes hours.
	@$(CARRY) e2e --conformance --release "$(RELEASE)" $(if $(VARIANT),--variant "$(VARIANT)")

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME (2m). Not part of test, which runs their seeds.
	@$(CARRY) fuzz --release "$(RELEASE)" $(if $(FUZZTIME),--time $(FUZZTIME))

.PHONY: test-drop
test-drop: ## Compile all releases without each of the features. Not part of test: it takes long.
	@$(CARRY) drop $(if $(filter-out file,$(origin RELEASE)),--release "$(RELEASE)") $(if $(FEATURE),--feature $(FEATURE))

.PHONY: verify
verify: deps ## Check ledger, seams, formatting, generated API delta, orphan files; all releases.
	@$(CARRY) verify

.PHONY: lint
lint: deps ## Lint the overlay as Kubernetes does, our other Go code, and shell scripts.
	@$(CARRY) lint --release "$(RELEASE)"

.PHONY: bench
bench: ## Benchmarks, patched beside unpatched. QUICK=1 is done in five minutes. AGAINST=<checkout> compares with another fork. SAVE=1 is for the documents.
	@$(CARRY) bench --release "$(RELEASE)" $(if $(QUICK),--quick) $(if $(AGAINST),--against "$(AGAINST)") $(if $(SAVE),--save)

##@ Develop

.PHONY: save
save: ## Take edits made inside the tree back into the overlay. FEATURE=<slug> for upstream files without a seam.
	@$(CARRY) save --release "$(RELEASE)" $(if $(FEATURE),--feature $(FEATURE))

.PHONY: update
update: ## Write what is derived: generated code, API delta, tables and files in documents, canonical seams, gofmt.
	@$(CARRY) verify --update

.PHONY: port
port: ## Bring the overlay to another release: git cherry-pick, then seams for it. FROM=1.36 TO=1.37
	@$(CARRY) port $(if $(FROM),--from $(FROM)) $(if $(TO),--to $(TO))

.PHONY: pin
pin: ## Pin the version that the ledger has for RELEASE.
	@$(CARRY) pin --release "$(RELEASE)"

.PHONY: pin-images
pin-images: ## Pin the newest Debian packages for images: kube-proxy's, and that of conformance tests.
	@$(CARRY) pin-images $(if $(MIRROR),--mirror $(MIRROR))

.PHONY: deps
deps: # What verify needs from the distribution.
	@hack/install-deps.sh

.PHONY: clean
clean: down ## Remove everything that was built.
	rm -rf _output

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## "; print "make <target> [RELEASE=x]" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
