# make help lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT      ?= $(shell git rev-parse --short HEAD 2>/dev/null)
LDFLAGS     := -s -w -X main.version=$(VERSION) -X github.com/coredns/coredns/coremain.GitCommit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CONTROLLER_GEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
HELM        := helm.sh/helm/v3/cmd/helm@v3.22.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# The database of known vulnerabilities, as a module: vuln.go.dev may be out of reach.
VULNDB      ?= v0.0.0-20261105234957-e22db6528018
GOLINES     := github.com/golangci/golines@v0.16.1
export GOFLAGS := -buildvcs=false -trimpath
# One way of compiling for everything but RACE=1, so that CoreDNS is compiled once.
export CGO_ENABLED := 0

# What make test proves beside the unit tests needs the laboratory's binaries; they are built once and kept in the cache.
.PHONY: build
build: ## the programs
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS)

PROGRAMS ?= ./cmd/...

# These start the laboratory, whose watchdog ends programs by a signal that only Linux has.
LABORATORY := demo test flaky test-slow long chaos interop databases consumers ui-test e2e soak honest sabotage \
	bench profile bench-members bench-vips bench-handover bench-failover bench-faults bench-order bench-hub bench-scale \
	matrix upgrade image-cases charts
ifneq ($(shell uname),Linux)
ifneq ($(filter $(LABORATORY),$(MAKECMDGOALS)),)
$(error make $(MAKECMDGOALS) needs Linux: run it in a virtual machine or a container)
endif
endif

.PHONY: demo
demo: ## a hub and two clusters made a clusterset, and the questions a reader wants to ask (KEEP=1: keep it running until Ctrl-C)
	@mkdir -p bin/demo
	@# As build does, without the plugins that it does not start, and the laboratory. The first time takes minutes.
	$(GO) run ./test/lab/programs/build -tags demo -ldflags '$(LDFLAGS)' -o bin/demo/ ./cmd/... ./test/demo
	LAB_BIN=bin/demo bin/demo/demo

.PHONY: test
test: ## unit tests, simulation, tests on real control planes (RACE=1: with the race detector); what failed stands last
	@test/run

.PHONY: flaky
flaky: ## make test RUNS times (default 5) with all cores kept busy, or PACKAGES (with TESTS, a pattern): what was red, how often
	@RUNS=$(or $(RUNS),5) TESTS='$(TESTS)' test/flaky $(PACKAGES)

.PHONY: test-slow
test-slow: ## what waits for members to die, to be evicted and to come again, and ranges of VIPs in each mode, on real control planes
	@test/run slow

.PHONY: long
long: build ## a token over its lifetimes, a minute of soak, on real control planes
	test/run -count=1 -timeout 40m ./test/credentials/... ./test/soak/...

.PHONY: chaos
chaos: build ## long outages and soaks
	CHAOS=1 test/run -count=1 -run 'TestL1|TestL4' -timeout 80m ./test/integration/...
	CHAOS=1 test/run -count=1 -v -run 'TestAgentsKilled|TestTheStandby|TestHub|TestMemberAPI|TestAgentStarts|TestTwoAtOnce|TestUnexport|TestT1|TestS3' -timeout 80m ./test/members/...
	CHAOS=1 test/run -count=1 -v -timeout 80m ./test/cli/...
	CHAOS=1 test/run -count=1 -v -timeout 80m ./test/credentials/...

.PHONY: interop
interop: build ## the cases through other resolvers, secondaries that follow, musl, HAProxy and external-dns, as root; downloads them for Debian 12
	test/interop/fetch bin/interop unbound bind9 dnsmasq-base pdns-recursor knot-resolver nsd haproxy musl musl-dev
	cd test/interop/externaldns && $(GO) build -ldflags '-s -w' -o '$(CURDIR)/bin/external-dns' sigs.k8s.io/external-dns
	INTEROP_ROOT='$(CURDIR)/bin/interop' EXTERNAL_DNS='$(CURDIR)/bin/external-dns' $(GO) test -count=1 -timeout 20m -tags interop ./test/interop

.PHONY: databases
databases: build ## etcd, NATS, Galera and Redis over three clusters, their Pods replaced, a cluster lost and back, as root; writes docs/databases.md's table and log; downloads them for Debian 12
	test/interop/fetch bin/databases/debian mariadb-server galera-4 rsync redis-server redis-tools
	cd test/databases/nats && $(GO) build -ldflags '-s -w' -o '$(CURDIR)/bin/databases/debian/usr/local/bin/' github.com/nats-io/nats-server/v2
	DATABASES_BIN='$(CURDIR)/bin/databases' DATABASES_RECORD=1 $(GO) test -count=1 -timeout 30m -v -tags databases ./test/databases

# These programs take minutes to compile, once. Of Prometheus' ways to find targets, two are asked.
.PHONY: consumers
consumers: build ## what meshes, gateways and Prometheus, as their authors ship them, make of a clusterset, as root; writes docs/consumers.md
	@mkdir -p bin/consumers
	cd test/consumers/istio && $(GO) build -ldflags '-s -w' -o '$(CURDIR)/bin/consumers/' istio.io/istio/pilot/cmd/pilot-discovery
	cd test/consumers/envoygateway && $(GO) build -ldflags '-s -w' -o '$(CURDIR)/bin/consumers/' github.com/envoyproxy/gateway/cmd/envoy-gateway
	cd test/consumers/prometheus && $(GO) build -tags remove_all_sd,enable_kubernetes_sd,enable_dns_sd -ldflags '-s -w' -o '$(CURDIR)/bin/consumers/' github.com/prometheus/prometheus/cmd/prometheus
	cd test/consumers && CONSUMERS_PAGE='$(CURDIR)/docs/consumers.md' $(GO) test -count=1 -v -timeout 30m .

.PHONY: ui-test
ui-test: build ## kubectl clusterset ui in a real Chromium, as root; downloads that for Debian 12, and axe-core with npm (UI_IMAGES=docs/images: writes the pictures)
	test/ui/fetch bin/ui
	cd test/ui && UI_BIN='$(CURDIR)/bin/ui' UI_IMAGES='$(if $(UI_IMAGES),$(abspath $(UI_IMAGES)))' $(GO) test -count=1 -v -timeout 10m .

# Nodes are of 1.36: nobody has run kubelet 1.37 beside Debian's containerd 1, which lacks RuntimeConfig.
E2E_K8S  := $(or $(K8S),v1.36.3)
# The archives of make image for this machine's architecture.
E2E_ARCH := $(shell $(GO) env GOARCH)
.PHONY: e2e
e2e: build ## docs/start.md as written, on two clusters with real nodes, as root (CONFORMANCE=path: upstream's suite, too)
	GOOS=linux $(GO) build -ldflags '$(LDFLAGS)' -o bin/e2e/linux_$(E2E_ARCH)/ ./cmd/coredns ./cmd/clusterset-controller
	cd deploy/image && $(GO) run . -arch $(E2E_ARCH) -version '$(VERSION)' -dir ../../bin/e2e
	K8S=$(E2E_K8S) $(GO) test -count=1 -v -timeout 30m ./test/e2e

.PHONY: soak
soak: build ## scenarios beside random faults for DURATION (default 60m; SEED replays); writes docs/reliability.md and its log
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/soak ./test/soak
	bin/soak -duration $(or $(DURATION),60m) -seed $(or $(SEED),0) -out docs/reliability.md -log docs/reliability.log.gz

.PHONY: model
model: ## a million random inputs of Merge beside its model
	$(GO) test -count=1 -timeout 60m ./controllers/decide/conflict -merges 1000000

.PHONY: sim
sim: ## SEEDS (default 1000) of the simulation that nobody has played, beside the sixty of make test
	$(GO) test -count=1 -timeout 120m ./test/sim -first "$$(date +%s)" -seeds $(or $(SEEDS),1000)

.PHONY: honest
honest: build ## objects of every kind that an API server (K8S) accepts, for DURATION (default 60m): imported, or named as left out
	HONEST_FOR=$(or $(DURATION),60m) $(GO) test -count=1 -timeout 24h -v ./test/honest

.PHONY: sabotage
sabotage: ## break a copy of the product in known ways: every one must turn a test red
	test/sabotage/run

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 5m)
	test/fuzz $(or $(FUZZTIME),5m)

# images and bench alone compile with it: not default.pgo, for which all that compiles coredns would compile everything
# once more.
PROFILE := cmd/coredns/images.pprof

.PHONY: bench
bench: build bench-programs ## our plugin beside the in-tree one, as ratios; writes docs/benchmarks.md
	$(GO) run ./test/bench -out docs/benchmarks.md

# What bench compares: coredns as images builds it, without each thing that makes it cheaper, and upstream's own.
.PHONY: bench-programs
bench-programs:
	@mkdir -p bin/bench
	@echo '{"Replace": {"$(CURDIR)/plugin/multicluster/grow.go": "$(CURDIR)/test/bench/testdata/ungrown.go"}}' >bin/bench/ungrown.json
	$(GO) build -ldflags '$(LDFLAGS)' -pgo=$(PROFILE) -o bin/bench/image ./cmd/coredns
	$(GO) build -ldflags '$(LDFLAGS)' -pgo=$(PROFILE) -overlay bin/bench/ungrown.json -o bin/bench/ungrown ./cmd/coredns
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/bench/unprofiled ./cmd/coredns
	$(GO) build -ldflags '$(LDFLAGS)' -overlay bin/bench/ungrown.json -o bin/bench/plain ./cmd/coredns
	$(GO) build -ldflags '-s -w' -o bin/bench/stock github.com/coredns/coredns

.PHONY: profile
profile: build ## write the profile that images compiles coredns with, from a server that answers all kinds of questions
	$(GO) run ./test/bench -profile $(PROFILE)

.PHONY: bench-members
bench-members: build ## from a change in one cluster to the answer in another; writes docs/benchmarks-members.md
	$(GO) run ./test/bench/members -out docs/benchmarks-members.md

.PHONY: bench-vips
bench-vips: build ## time and requests of a VIP at 10 to 10,000 VIPs and 1 and 1,000 ranges; writes docs/benchmarks-vips.md
	$(GO) run ./test/bench/vips -out docs/benchmarks-vips.md

.PHONY: bench-handover
bench-handover: build ## prefer-local's traffic handed over and back by real packets, HANDOVERS times (default 200), as root; writes docs/benchmarks-handover.md
	HANDOVERS=$(or $(HANDOVERS),200) HANDOVER_PAGE='$(CURDIR)/docs/benchmarks-handover.md' $(GO) test -count=1 -timeout 30m -run '^TestPreferLocalHandsOverAndBack$$' ./test/packets

.PHONY: bench-failover
bench-failover: build ## power cuts of a cluster, CUTS times (default 100), as root; writes docs/benchmarks-failover.md
	CUTS=$(or $(CUTS),100) FAILOVER_PAGE='$(CURDIR)/docs/benchmarks-failover.md' \
		$(GO) test -count=1 -timeout 60m -v -run '^TestF4PowerCut$$' ./test/packets

.PHONY: bench-faults
bench-faults: build ## FAULTS (default 500) of clusters whose Pods serve, as root: nobody may lose endpoints; writes docs/benchmarks-faults.md
	FAULTS=$(or $(FAULTS),500) FAULTS_SEED=$(or $(SEED),27) FAULTS_PAGE='$(CURDIR)/docs/benchmarks-faults.md' \
		$(GO) test -count=1 -timeout 150m -v -run '^TestF4NobodyLivingIsEvicted$$' ./test/packets

.PHONY: bench-order
bench-order: build ## a cluster's own endpoints go from 0 to 30 and back under load, as root; writes docs/benchmarks-order.md
	ORDER_PAGE='$(CURDIR)/docs/benchmarks-order.md' $(GO) test -count=1 -timeout 10m -v -run '^TestT2ScalesUnderLoad$$' ./test/packets

.PHONY: bench-hub
bench-hub: build ## kills of the hub's API server with 200 members that watch; writes docs/benchmarks-hub.md
	$(GO) run ./test/bench/members -peers 200 -hub-kills 2 -out docs/benchmarks-hub.md

.PHONY: bench-scale
bench-scale: build ## bench-members with 200 members, of the same names and of own ones; docs/benchmarks-scale*.md
	$(GO) run ./test/bench/members -peers 200 -rounds 100 -rate 20 -restarts 2 -target bench-scale \
		-out docs/benchmarks-scale.md
	$(GO) run ./test/bench/members -peers 200 -rounds 100 -rate 20 -restarts 2 -target bench-scale -own-names \
		-out docs/benchmarks-scale-names.md

PREVIOUS ?= $(shell cat test/upgrade/baseline)
.PHONY: matrix
matrix: build ## a core of the tests on five Kubernetes and beside agents of PREVIOUS; docs/compatibility.md (K8S: one)
	rm -rf bin/previous && mkdir -p bin/previous/src
	git archive $(PREVIOUS) | tar -x -C bin/previous/src
	cd bin/previous/src && $(GO) build -ldflags '-s -w' -o .. ./cmd/clusterset-controller
	$(GO) run -ldflags '$(LDFLAGS)' ./test/matrix -versions '$(or $(K8S),v1.33.13 v1.34.12 v1.35.8 v1.36.5 v1.37.2)' $(if $(K8S),,-out docs/compatibility.md) \
		-older bin/previous/clusterset-controller -older-version "$$(git rev-parse --short $(PREVIOUS))"

.PHONY: upgrade
upgrade: ## SEEDS (default 3) orders of upgrading from BASELINE and to a later version (SEED replays one)
	BASELINE=$(BASELINE) SEED=$(SEED) SEEDS=$(SEEDS) STEPS=$(STEPS) test/upgrade/run

.PHONY: image
image: ## OCI index and docker archives for linux/amd64 and linux/arm64 in bin/image, opened and checked
	$(MAKE) images IMAGES=bin/image
	cd deploy/image && IMAGE_DIR='$(CURDIR)/bin/image' $(GO) test -count=1 ./...

.PHONY: image-cases
image-cases: image ## the coredns of the image, taken out of it again, answers the cases on a real control plane (linux/amd64)
	cd deploy/image && $(GO) run . -dir ../../bin/image extract coredns amd64 ../../bin/image/coredns.extracted
	COREDNS_BINARY='$(CURDIR)/bin/image/coredns.extracted' $(GO) test -count=1 -run 'TestCases' ./test/integration/

# The archives, in IMAGES, of VERSION.
.PHONY: images
images:
	for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(GO) build -ldflags '$(LDFLAGS)' -pgo=$(PROFILE) -o $(IMAGES)/linux_$$arch/ ./cmd/coredns; \
		GOOS=linux GOARCH=$$arch $(GO) build -ldflags '$(LDFLAGS)' -o $(IMAGES)/linux_$$arch/ ./cmd/clusterset-controller; \
	done
	cd deploy/image && $(GO) run . -version '$(VERSION)' -revision "$$(git rev-parse HEAD)" -dir '$(CURDIR)/$(IMAGES)'

# Tools that are no part of go.mod. Without network, the module cache is the proxy.
bin/helm: TOOL := $(HELM)
bin/govulncheck: TOOL := $(GOVULNCHECK)
bin/helm bin/govulncheck: Makefile
	@mkdir -p bin
	GOPROXY="$$($(GO) env GOPROXY)|file://$$($(GO) env GOMODCACHE)/cache/download" GOBIN='$(CURDIR)/bin' $(GO) install $(TOOL)
	@touch $@

.PHONY: charts
charts: build bin/helm ## the charts: lint, the same objects as deploy/, and a release's life on a real control plane
	$(GO) test -count=1 -timeout 20m ./test/charts/

.PHONY: set-version
set-version: ## write VERSION into the manifests, the charts and the pages that name a release
	@[[ '$(VERSION)' =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$$ ]] || { echo "VERSION=$(VERSION) is no version of a release: make set-version VERSION=v0.1.0"; exit 1; }
	git ls-files deploy docs examples hack README.md | grep -v '[.]go$$' | \
		xargs sed -E -i 's#(ghcr\.io/clusterset-dns/[a-z-]+:|app\.kubernetes\.io/version: |[?]ref=|tag: |targetRevision: )v[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*#\1$(VERSION)#g'
	sed -E -i 's/^version: .*/version: $(VERSION:v%=%)/; s/^appVersion: .*/appVersion: $(VERSION)/' charts/*/Chart.yaml
	$(MAKE) -s generate

.PHONY: release
release: bin/helm ## everything that a release has, in dist/: images, charts, CLI, manifests, SBOM, krew manifest, checksums (VERSION=v0.1.0)
	$(GO) run ./hack/release -version '$(VERSION)' -dir dist -check
	rm -rf dist && mkdir -p dist/image
	$(MAKE) images IMAGES=dist/image
	$(GO) run ./hack/release -version '$(VERSION)' -dir dist

SHIPPED := ./cmd/coredns ./cmd/clusterset-controller ./cmd/kubectl-clusterset

.PHONY: verify
verify: verify-fmt verify-tidy verify-generate verify-vet verify-static verify-vulnerabilities verify-arch verify-words verify-sabotage ## everything that is checked without running the product

.PHONY: verify-fmt
verify-fmt: ## gofmt; make fmt fixes it
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "not formatted (make fmt): $$bad"; exit 1; }

.PHONY: fmt
fmt: ## format all Go files, and break code at 120 columns; lists the comments and strings that remain wider
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs grep -L '^// Code generated'); gofmt -w $$files; \
	$(GO) run $(GOLINES) -m 120 -t 4 --no-reformat-tags -w $$files; \
	awk '{ l = $$0; gsub(/\t/, "    ", l) } length(l) > 120 { print FILENAME ":" FNR ": " length(l) " columns" }' $$files

# The laboratory's module is Kubernetes' own go.mod; tidying it would fetch all that Kubernetes tests with. What both
# it and ours require has one version, so that it is compiled once for both.
MODULES := . deploy/image test/consumers test/ui
LAB     := test/lab/controlplane
SHARED  := awk '$$2 !~ /^v/ {next} FNR == NR {own[$$1] = $$2; next} $$1 in own && own[$$1] != $$2 {print "-require=" $$1 "@" own[$$1]}' go.mod $(LAB)/go.mod

.PHONY: verify-tidy
verify-tidy: ## go.mod and go.sum of every module; make tidy fixes them
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff >/dev/null) || { echo "$$m/go.mod is not tidy (make tidy)"; exit 1; }; done
	@bad=$$($(SHARED)); [ -z "$$bad" ] || { echo "$(LAB)/go.mod has other versions than go.mod (make tidy): $$bad"; exit 1; }

.PHONY: tidy
tidy: ## tidy every module
	for m in $(MODULES); do (cd $$m && $(GO) mod tidy); done
	bad=$$($(SHARED)); [ -z "$$bad" ] || $(GO) mod edit $$bad $(LAB)/go.mod
	cd $(LAB) && $(GO) list -mod=mod -deps -tags "$$(sed -n 's#^//go:build ##p' *.go | paste -sd,)" . >/dev/null

GENERATED := deploy/crds controllers/api charts

.PHONY: verify-generate
verify-generate: ## generated files; make generate fixes them
	@tmp=$$(mktemp -d); cp -a --parents $(GENERATED) "$$tmp/"; \
	trap 'rm -rf $(GENERATED); cp -a "$$tmp"/* .; rm -rf "$$tmp"' EXIT; $(MAKE) -s generate; \
	for d in $(GENERATED); do diff -r "$$tmp/$$d" $$d || { echo "$$d is not what make generate makes"; exit 1; }; done

# The kind that members need too stands apart from those that only a hub needs.
.PHONY: generate
generate: ## write deploy/crds from the mcs-api module and controllers/api, the latter's deep copies, and charts/ from deploy/
	cd deploy/crds && $(GO) run generate.go
	$(GO) run $(CONTROLLER_GEN) object crd paths=./controllers/api/hub/... output:crd:dir=deploy/crds/hub
	mv deploy/crds/hub/hub.clusterset-dns.io_serviceexportrecords.yaml deploy/crds/record/
	mv deploy/crds/hub/hub.clusterset-dns.io_memberships.yaml deploy/crds/member/
	$(GO) run $(CONTROLLER_GEN) object paths=./controllers/api/externaldns/...
	for kind in about inventory; do $(GO) run $(CONTROLLER_GEN) object crd paths=./controllers/api/$$kind/... output:crd:dir=deploy/crds/$$kind; done
	$(GO) run ./hack/charts

.PHONY: verify-vet
verify-vet: ## go vet of modules ., deploy/image and test/ui, with tags interop and databases; test/consumers takes minutes: make consumers
	@for m in $(filter-out test/consumers,$(MODULES)); do (cd $$m && $(GO) vet -tags interop,databases ./...) || exit 1; done

.PHONY: verify-static
verify-static: ## staticcheck
	$(GO) run $(STATICCHECK) ./plugin/... ./controllers/... ./test/... ./cmd/... ./hack/... ./deploy/...

# It reads symbols, which the programs of build do not have. What it finds in the standard library, a newer Go fixes.
.PHONY: verify-vulnerabilities
verify-vulnerabilities: bin/govulncheck ## no program has a function with a known vulnerability (VULNDB=latest: by the newest database; STDLIB=1: of this Go, too)
	@$(GO) build -o bin/unstripped/ $(SHIPPED)
	@db=$$($(GO) mod download -json golang.org/x/vulndb@$(VULNDB) | sed -n 's/.*"Dir": "\(.*\)",/\1/p'); \
	for p in $(notdir $(SHIPPED)); do \
		rc=0; found=$$(bin/govulncheck -db "file://$$db/data/osv" -mode binary bin/unstripped/$$p 2>&1) || rc=$$?; \
		case $${rc}$(STDLIB) in \
		0*) ;; \
		3) ! grep -q '^  Module:' <<<"$$found" || { echo "$$p: $$found"; exit 1; }; \
			echo "$$p: $$(grep -c '^  Standard library' <<<"$$found") known vulnerabilities of $$($(GO) env GOVERSION), and none of ours: build releases with the newest Go";; \
		*) echo "$$p: $$found"; exit 1;; \
		esac; \
	done

.PHONY: verify-arch
verify-arch: ## the shape of the repository, and what the documents promise
	$(GO) test ./test/arch/

.PHONY: verify-words
verify-words: ## words, width of lines and length of sentences (docs/glossary.md)
	$(GO) test ./test/words/

.PHONY: verify-sabotage
verify-sabotage: ## the patches of make sabotage apply
	@for p in test/sabotage/*.patch; do git apply --check $$p || { echo "$$p does not apply: recreate it"; exit 1; }; done

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1|\2/' | column -t -s '|'
