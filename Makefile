# Two commands matter: `make run` shows taskgate at work, `make test` tests it. Everything is installed under this folder,
# except the programs of Debian that tests need: `make test` installs those as root, or with SYSTEM=1 by sudo.
# Another interpreter: make PYTHON=/path/to/python3.12 …

PYTHON ?= python3
PY = .venv/bin/python
STAMP = .venv/made-for-dev
# `make run` needs less. Where developers' tools are, all of it is there; the lock is theirs.
DEMO = $(if $(filter-out 0 1,$(REPLICAS)),demo-replicas,demo)
DEMO_STAMP = $(if $(or $(wildcard $(STAMP)),$(filter-out 0,$(LOCKED))),$(STAMP),.venv/made-for-$(DEMO))
DEBIAN = On Debian 12 or newer: apt-get install python3 python3-venv

.PHONY: help setup run system test test-all long soak unit unit-pure unit-serving unit-upstream unit-transports unit-rest environments provider peers pictures attacks chaos kills storms handoff mistakes suites differential fuzz mutants check bench instructions dashboards pages cases docs wheel image image-test locks sbom advisories fmt clean

help:
	@echo 'make setup   .venv with taskgate, and with all packages for the commands below; `make run` installs fewer'
	@echo '             LOCKED=1: the releases of deploy/locks/dev.txt, with their hashes, as CI does'
	@echo 'make run     an example server, taskgate in front of it, and a host that calls a slow tool as a task; ONCE=1 ends after that'
	@echo '             LISTEN=127.0.0.1:8090 ADMIN=127.0.0.1:9474: at other ports than 8080 and 9464; ONCE=1 takes free ones without these'
	@echo '             AUTH=1: with an issuer of tokens, and two users, each with own tasks'
	@echo '             OBSERVE=1: with a Prometheus that scrapes it (Debian: apt-get install --no-install-recommends prometheus)'
	@echo '             REPLICAS=3: three of taskgate that share a Valkey, behind nginx if it is here (Debian: apt-get install nginx-light)'
	@echo "             UPSTREAM='npx -y some-server', or a URL: in front of your own server, whose tools are listed"
	@echo 'make test    most tests, in minutes; its last line names what was skipped. As root, or with SYSTEM=1 by sudo, it first'
	@echo '             installs the programs of Debian that tests need, unless SYSTEM=0'
	@echo 'make test-all  all tests but long ones; LANES=2 for fewer processes side by side, MEASURE=1 writes how long each file takes'
	@echo 'make long    what make test-all leaves out: all pairs of hosts and servers, the other event loop, long files'
	@echo 'make soak    hours of failures, kills, storms, long calls, made-up requests and mutants: all of the targets for them'
	@echo 'make unit    the unit and contract tests without programs, in a minute'
	@echo 'make attacks attacks of hosts and servers on a gateway in its own process, with the measured values;'
	@echo '             SHUTDOWNS=50 for more shutdowns in a storm of connections'
	@echo 'make chaos   gateways with a shared store, under many failures; SEEDS=1,2,3 and SECONDS=60 for other or longer runs'
	@echo 'make kills   200 times kill -9 over SQLite, with power cuts too (Debian: apt-get install strace), and over Valkey, killed too;'
	@echo '             CYCLES=20 for fewer, SEED=2 for other instants, LOOP=uvloop for the other event loop'
	@echo 'make storms  1,000 connections of hosts without tasks are cut while calls run; CUTS=200 for fewer, SEED=2 for other moments'
	@echo 'make handoff  calls of up to 30 ceilings by hosts without tasks; writes docs/handoff-matrix.md; ten minutes'
	@echo 'make mistakes  22 usual mistakes by released hosts; writes what each shows in docs/reference/mistakes.md; a minute'
	@echo 'make suites  suites of other projects, and rows after their requirements, directly and through taskgate; writes their'
	@echo '             table in docs/compatibility.md; seven minutes after the first time; ONLY=interaction for one of them'
	@echo 'make fuzz    every property with twenty times the examples of `make test-all`; SEED=1 for others'
	@echo 'make differential  compares the output of this package with an earlier commit, for many messages and heads; BASE=commit SEED=7'
	@echo '             CHANGED=2000 for more messages, HEADS=20000 for more connections'
	@echo 'make mutants removes or reverses each line of the scripts of the shared store, one at a time: a test must fail; ONLY=swap.'
	@echo '             Then changes functions of the package at 200 places: tests must fail for a share of them; MUTANTS=50 SEED=1'
	@echo 'make check   ruff, mypy, the import contracts, the prose lint, and a report on the shape of the package'
	@echo 'make bench   the benchmarks'
	@echo 'make instructions  counts the instructions of requests (Debian: apt-get install valgrind); TREES=checkout counts there too'
	@echo 'make dashboards  writes grafana/dashboards'
	@echo 'make pages  writes docs/requirements.md and the index of decisions'
	@echo 'make cases   writes what comes out of tests/cases as the expected output; read the diff'
	@echo 'make docs    the documents as a site in build/site; a broken link is an error'
	@echo 'make pictures  makes the pictures of the console and of the Inspector in docs/images (Debian: apt-get install chromium)'
	@echo 'make wheel   the sdist and the wheel in dist/; the wheel has the same bytes for the same commit'
	@echo 'make image   the container image, by docker, podman or buildah, the first that works (Debian: apt-get install buildah)'
	@echo '             BUILDER=podman for another, BUILD_OPTIONS=...'
	@echo 'make image-test  builds and runs the image without a registry, as root (Debian: apt-get install buildah mmdebstrap)'
	@echo 'make locks   writes deploy/locks, with the newest releases that pyproject.toml allows'
	@echo 'make sbom    dist/sbom.json: the content of the image, as CycloneDX'
	@echo 'make advisories  known vulnerabilities in the releases of deploy/locks; exits with 3 without data'
	@echo 'make fmt     formats the code'
	@echo 'make clean   removes all generated files'

setup: $(STAMP)

.venv/made-for-%: pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "make: there is no $(PYTHON). Python 3.11 or newer is needed. $(DEBIAN)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is too old, Python 3.11 or newer is needed. $(DEBIAN)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) cannot make virtual environments. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@LOCKED='$(LOCKED)' $(PYTHON) example/install.py $*
	@touch $@

# UPSTREAM is there as make was given it: quotes in it would not outlive another shell.
run: $(DEMO_STAMP)
	@ONCE='$(ONCE)' AUTH='$(AUTH)' OBSERVE='$(OBSERVE)' REPLICAS='$(REPLICAS)' LISTEN='$(LISTEN)' ADMIN='$(ADMIN)' $(PY) example/run.py

# Releases of the SDK, a host, a Node.js, and suites, each in an environment of its own, for the interop tests.
environments: $(STAMP)
	@$(PY) example/environments.py

# The identity provider of the tests, which needs Node.js; without it those tests are skipped.
provider: $(STAMP)
	@$(PY) tests/provider/install.py

# Released hosts, servers and suites in TypeScript, for the interop tests; they bring the Node.js that they need.
peers: $(STAMP)
	@$(PY) -m tests.peers.install

# Without these programs some tests are skipped.
SYSTEM ?= $(if $(filter 0,$(shell id -u)),1)
system:
	@$(if $(filter-out 0,$(SYSTEM)),.ci/install || [ "$$TASKGATE_REQUIRE_ALL" != 1 ],true)

# Many programs of ours are started: each would compile all of itself again where no bytecode is written.
LANES ?=
MEASURE ?=
OPTIONS = $(addprefix --lanes ,$(LANES)) $(if $(filter-out 0,$(MEASURE)),--measure)
test test-all long: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP) system environments provider peers
	@$(PY) tests/house/lanes.py quick $(OPTIONS)

test-all: $(STAMP) system environments provider peers
	@$(PY) tests/house/lanes.py all $(OPTIONS)

# What `make test-all` leaves out: files that take long, and the interaction suite on uvloop.
long: $(STAMP) system environments provider peers
	@$(PY) tests/house/lanes.py long $(OPTIONS)

# The long forms of tests of which `make test-all` has a short one; hours.
soak: long chaos kills storms handoff differential fuzz mutants

WORKERS ?= 3
# What to run while one works: no environments of other SDKs, no tests that start programs or are thorough, and few
# examples of each property; `make test-all` runs all of it. Several runs side by side, since to hand each test to a worker
# takes longer than many a test; more than there are cores, since much is waited for.
QUICK = $(PY) -m pytest --quiet --hypothesis-profile=quick -m 'not alone and not program and not thorough'
PURE = $(addprefix tests/unit/,admission auth config domain jsontext protocol) tests/cases
SERVING = $(addprefix tests/unit/,gateway listener telemetry)
TRANSPORTS = $(addprefix tests/unit/upstream/,credentials duplex modern sse stdio wire)
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs=5 --output-sync=target unit-upstream unit-transports unit-pure unit-serving unit-rest

unit-pure:
	@$(QUICK) $(PURE)

unit-serving:
	@$(QUICK) $(SERVING)

unit-upstream:
	@$(QUICK) tests/unit/upstream $(addprefix --ignore=,$(TRANSPORTS))

unit-transports:
	@$(QUICK) $(TRANSPORTS)

unit-rest:
	@$(QUICK) tests/unit tests/contract $(addprefix --ignore=,$(PURE) $(SERVING) tests/unit/upstream)

# Part of `make test-all`, where what they measure is not printed. SHUTDOWNS=50 ends a gateway that often under a storm.
SHUTDOWNS ?= 4
attacks: $(STAMP)
	ATTACK_SHUTDOWNS='$(SHUTDOWNS)' $(PY) -m pytest -s -m attack

# A short run of one seed is part of `make test-all`.
SEEDS ?= 1,2,3,4,5
SECONDS ?= 30
chaos: $(STAMP)
	CHAOS_SEEDS='$(SEEDS)' CHAOS_SECONDS='$(SECONDS)' $(PY) -m pytest -s tests/chaos

# A few cycles on each store are part of `make test-all`. The stores side by side, since much is waited for.
CYCLES ?= 200
LOOP ?= asyncio
kills: export PYTHONDONTWRITEBYTECODE =
kills: $(STAMP)
	KILL_CYCLES='$(CYCLES)' KILL_SEED='$(SEED)' $(PY) -m pytest -rP --loop '$(LOOP)' --numprocesses=$(WORKERS) tests/kill/test_kill_under_load.py

# Some cuts are part of `make test-all`.
CUTS ?= 1000
storms: $(STAMP)
	HANDOFF_CUTS='$(CUTS)' HANDOFF_SEED='$(SEED)' $(PY) -m pytest -rP tests/handoff/test_storms.py

# The shorter calls are part of `make test-all`. Hosts run side by side, since much is waited for: ten minutes altogether.
handoff: $(STAMP) environments peers
	HANDOFF_MATRIX=long $(PY) -m pytest -q --numprocesses=2 --dist=loadfile tests/handoff/test_matrix.py tests/handoff/test_released.py
	$(PY) -m tests.handoff.matrix

# Part of `make test-all`, where the page is compared with what hosts show.
mistakes: $(STAMP) environments peers
	MISTAKES=write $(PY) -m pytest -q tests/interop/test_mistakes.py -k each_host
	$(PY) -m tests.interop.mistakes

# Through taskgate they are part of `make test-all`. Their table is in docs/compatibility.md.
suites: $(STAMP) environments peers
	$(PY) -m tests.interop.matrix
	$(PY) -m pytest -q tests/suites $(if $(ONLY),-k '$(ONLY)')

# A short run against the landing before is part of `make test-all`.
BASE ?=
CHANGED ?= 1000
HEADS ?= 10000
differential: $(STAMP)
	DIFFERENTIAL_BASE='$(BASE)' DIFFERENTIAL_CHANGED='$(CHANGED)' DIFFERENTIAL_HEADS='$(HEADS)' DIFFERENTIAL_SEED='$(SEED)' $(PY) -m pytest -q tests/differential

# Twenty times as many examples of every property as `make test-all` tries, and as many requests from the document of the
# operators' API; SEED=N draws others, or the same again.
SEED ?= 0
fuzz: $(STAMP)
	$(PY) -m pytest -m 'hypothesis and not alone' --hypothesis-profile=many --hypothesis-seed=$(SEED) --timeout=1800 --numprocesses=$(WORKERS)
	DOCUMENT_EXAMPLES=300 DOCUMENT_SEED=$(SEED) $(PY) -m pytest tests/interop/test_operators_document.py

# The lines that fence are part of `make test-all`. Of the package, a seed draws the mutants, and FLOOR is the share that
# must be killed.
ONLY ?=
MUTANTS ?= 200
FLOOR ?= 0.7
mutants: $(STAMP)
	$(PY) -m tests.mutants.trial --only '$(ONLY)'
	$(if $(ONLY),,$(PY) -m tests.mutants.package_trial --seed=$(SEED) --mutants=$(MUTANTS) --floor=$(FLOOR))

check: $(STAMP)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	@$(PY) tests/house/prose.py
	@$(PY) tests/house/documents.py
	@$(PY) tests/house/shape.py

TREES ?=
instructions: $(STAMP)
	$(PY) -m bench.instructions $(addprefix --tree ,$(TREES))

bench: $(STAMP)
	$(PY) -m bench
	$(PY) -m bench.stretches

dashboards: $(STAMP)
	$(PY) -m grafana.src

pages: $(STAMP)
	$(PY) tests/house/pages.py

# Read the diff before you commit it.
cases: $(STAMP)
	@$(PY) -m pytest --quiet --rewrite tests/cases

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo 'The documents are in build/site: open build/site/index.html'

pictures: $(STAMP)
	PICTURES=docs/images $(PY) -m pytest -q tests/console/test_pictures.py tests/interop/test_inspector_page.py

# From a copy of the files that git knows: with the time of the commit and the same modes, whatever those of the checkout.
DIST ?= dist
wheel: $(STAMP)
	@umask 022; export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"; \
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	git ls-files -z | tar --create --null --files-from=- --mode=u=rwX,go=rX | tar --extract --directory="$$copy" && \
	$(PY) -m build --outdir '$(abspath $(DIST))' "$$copy"

# By the first of these programs that works: a docker does not without its daemon, or without permission to reach it.
BUILDER ?=
BUILD_OPTIONS ?=
IMAGE ?= taskgate
image:
	@builder='$(BUILDER)'; \
	for each in $(if $(BUILDER),,docker podman buildah); do \
		command -v $$each >/dev/null || continue; \
		if why=$$(timeout 30 $$each info 2>&1 >/dev/null); then builder=$$each; break; fi; \
		echo "make image: $$each does not work: $$(printf '%s\n' "$$why" | head -n 1)" >&2; \
	done; \
	[ -n "$$builder" ] || { \
		echo 'make image: no docker, podman or buildah works here. On Debian: apt-get install buildah' >&2; exit 1; }; \
	case " $$builder " in *podman\ *|*buildah\ *) format='--format docker' ;; *) format= ;; esac; \
	set -x; $$builder build $$format $(BUILD_OPTIONS) --tag '$(IMAGE)' --file Dockerfile .

# The image on a base that mmdebstrap makes: it serves, survives kill -9, and writes to its volume alone. Needs root.
image-test: $(STAMP)
	IMAGE_TEST=1 $(PY) -m pytest -q tests/packages/test_image.py

# For all platforms and every Python that is supported, with the hashes of all files.
LOCK = $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-annotate \
	--custom-compile-command 'make locks'
locks: $(STAMP)
	$(LOCK) pyproject.toml --extra redis --extra tracing --extra uvloop --output-file deploy/locks/image.txt
	@echo 'setuptools>=77' | $(LOCK) - --output-file deploy/locks/build.txt
	@echo 'setuptools>=77' | $(LOCK) pyproject.toml - --extra dev --output-file deploy/locks/dev.txt

sbom: $(STAMP)
	@mkdir -p '$(DIST)'
	@$(PY) -W ignore -m uv tool run --quiet --from 'cyclonedx-bom>=7,<8' cyclonedx-py requirements deploy/locks/image.txt \
		--pyproject pyproject.toml --output-reproducible --output-format JSON --output-file '$(DIST)/sbom.json'

advisories: $(STAMP)
	@$(PY) tests/packages/advisories.py

fmt: $(STAMP)
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

clean:
	rm -rf .venv .envs .run build dist proxy/*.egg-info .coverage .coverage.* .hypothesis tests/provider/node_modules
	rm -rf tests/peers/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
