.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SERVES := $(VENV)/.serves
PEERS := .venv-peers/.installed
LOCKED := config/requirements
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --custom-compile-command 'make lock'
JOBS ?= $(shell expr 1 + $$(nproc))

# Tests start hundreds of processes. If the environment forbids writing compiled modules, each would compile them all.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install lock audit docs site wheel run test test-rigs test-long test-proxy test-postgresql test-runtime test-generated test-crash test-faults test-powercut test-linear test-fuzz test-cost test-connections test-maintenance test-index test-model test-cluster test-s3 test-pages check bench bench-quick bench-aims bench-mix peers bench-encryption bench-recording bench-maintenance bench-export bench-forms bench-pages bench-search bench-cluster clean

help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install the package with its command and the development tools

# config/requirements has the versions and digests that were tested. pip refuses a package that differs.
$(STAMP): setup.cfg pyproject.toml persistence/__init__.py $(LOCKED)/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/dev.txt
	$(BIN)/python -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .
	@touch $(SERVES) $@

# Only what serving needs: setuptools, of 9 MB, is needed only for the line before. `make install` adds what developers
# need.
$(SERVES): setup.cfg pyproject.toml persistence/__init__.py $(LOCKED)/run.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/run.txt
	$(BIN)/python -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip uninstall --quiet --yes setuptools
	@touch $@

lock: install ## update config/requirements to the newest versions that setup.cfg allows
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/audit.txt
	$(LOCK) setup.cfg --upgrade --extra dev --output-file $(LOCKED)/dev.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra build --output-file $(LOCKED)/run.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra build --extra postgresql --extra s3 \
		--output-file $(LOCKED)/engines.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra build --extra parquet --output-file $(LOCKED)/parquet.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra audit --output-file $(LOCKED)/audit.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra generated --output-file $(LOCKED)/generated.txt
	$(LOCK) setup.cfg --constraints $(LOCKED)/dev.txt --extra site --output-file $(LOCKED)/site.txt
	$(LOCK) $(LOCKED)/peers.in --upgrade --output-file $(LOCKED)/peers.txt

audit: install ## look for known vulnerabilities in what is installed (asks the package index)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/audit.txt
	$(BIN)/pip-audit --require-hashes --disable-pip --progress-spinner off --requirement $(LOCKED)/dev.txt

docs: install ## write docs/commands.md and docs/persistence.1, the help of all commands (not in git)
	$(BIN)/python -m tests.docs.commands
	$(BIN)/python -m tests.docs.manual_page

# The pages link to files beside docs/, so the site is built from a copy of all of them. Its fences lose the words after
# the language, which only tests read.
SITE := var/site-source

site: docs ## build the documentation as a website in var/site (installs MkDocs Material)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/site.txt
	rm -rf $(SITE) && mkdir -p $(SITE)/bench
	cp -r README.md CHANGELOG.md LICENSE docs config docs/openapi.yaml $(SITE)
	cp -r bench/results $(SITE)/bench
	cp -r persistence/http/reference $(SITE)/api
	find $(SITE) -name '*.md' -exec sed -i 's/^\(```[a-z]\+\) .*/\1/' {} +
	$(BIN)/mkdocs build --strict --config-file config/mkdocs.yml
	find var/site -name '*.map' -delete

wheel: site ## build a wheel in dist, with the manual page and the website (installs MkDocs Material)
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .

run: $(SERVES) ## install what serving needs, and serve on 127.0.0.1:8080, data under var/
	$(BIN)/persistence serve --init

# One process more than processors, because a test waits for a service to start now and then.
test: install ## install and run the tests (5 min on 2 processors)
	$(IN_MEMORY) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder \
		-o tmp_path_retention_policy=failed \
		$(RIGS:%=--ignore=tests/%) $(BROWSED:%=--ignore=tests/%) $(HOUSE:%=--ignore=%) tests

# The files of tests are in memory where there is room: a disk would take a third of the time, most of it to make and
# remove the lock files of some two thousand trees. The rigs, and pytest by itself, use the disk.
IN_MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR > 1 && $$1 > 2000000 {print "TMPDIR=/dev/shm"}')

# Rules about the source; make check looks at them.
HOUSE := tests/test_house.py tests/test_layering.py tests/test_expressions.py tests/test_messages.py

# The rigs of the long runs, and the tests of the rigs themselves. They use all of the machine's resources.
RIGS := rigs index/test_racing.py maintenance/test_kills.py

# What the provider API shows of a runtime's requests, beside the sequences that check-runtime plays.
RUNTIME := tests/http/test_provider_contract.py tests/http/test_purging.py

# Tests in a browser, which has a target of its own.
BROWSED := pages/browsed

test-rigs: install ## a short run of every rig, and their own tests (4 min)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(RIGS:%=tests/%)

# The long runs. Each prints tables at its end, and fails if anything is wrong. bench/results/reliability.md has the figures.

test-long: install ## longer cases of the tests that make test runs briefly: writers, copies, searches, and more of the interface (14 min)
	$(IN_MEMORY) $(BIN)/python -m pytest $(LONG) -n $(JOBS) --dist loadgroup -o tmp_path_retention_policy=failed \
		$(RIGS:%=--ignore=tests/%) $(BROWSED:%=--ignore=tests/%) $(HOUSE:%=--ignore=%) tests
	$(BIN)/python -m pytest $(LONG) -n $(JOBS) --dist loadgroup $(RIGS:%=tests/%)

# Hypothesis tries a quarter of the examples elsewhere.
LONG := -m "long or hypothesis" --hypothesis-profile=whole

test-proxy: install ## repeat the tests of the interface with a second service as provider (3 min)
	$(BIN)/python -m pytest --proxied -r fEX -n $(JOBS) --dist loadgroup tests/http

test-postgresql: install ## repeat the tests of the interface with forms in PostgreSQL (needs its server, 4 min)
	$(IN_MEMORY) $(BIN)/python -m pytest --postgresql -r fEX -n $(JOBS) --dist loadgroup \
		$(BROWSED:%=--ignore=tests/%) tests/http tests/pages tests/s3/test_http.py

test-runtime: install ## play what each release of the runtime sends, with forms in a tree and in PostgreSQL (1 min)
	$(IN_MEMORY) $(BIN)/python -m pytest -m "long or not long" -n $(JOBS) --dist loadgroup $(RUNTIME) tests/cli/test_check_runtime.py
	$(IN_MEMORY) $(BIN)/python -m pytest -m "long or not long" --postgresql -n $(JOBS) --dist loadgroup $(RUNTIME)

test-generated: install ## generate a client from docs/openapi.yaml, and use it (installs its generator, 1 min)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/generated.txt
	$(BIN)/python -m pytest -r fE tests/client/test_generated.py

test-crash: install ## kill a worker at every system call; model the states that power cuts leave (10 min)
	$(BIN)/python -m tests.rigs crash

test-faults: install ## fail every call on the disk, fill disks, slow them down (root, 4 min)
	$(BIN)/python -m tests.rigs faults

test-powercut: install ## cut the power on ext4, XFS and btrfs (root, 6 min)
	$(BIN)/python -m tests.rigs powercut

test-linear: install ## check 45,000 concurrent operations for linearizability while workers are killed (5 min)
	$(BIN)/python -m tests.rigs linear

test-fuzz: install ## send 32,000 odd requests and documents, and compare with docs/openapi.yaml (6 min)
	$(BIN)/python -m tests.rigs fuzz

test-cost: install ## search for the request that takes the most time and memory (COST_SECONDS, 25 min)
	$(BIN)/python -m tests.rigs cost

test-connections: install ## smuggled requests, slow clients, 10,000 connections (needs nginx, 4 min)
	$(BIN)/python -m tests.rigs connections

test-maintenance: install ## kill or fail check, backup, restore, purge, import and others at every call (20 min)
	$(BIN)/python -m tests.rigs maintenance

test-index: install ## search during writes, reindexing and publishing, and with a damaged index (3 min)
	$(BIN)/python -m tests.index

test-model: install ## compare all responses with a plain model under kills and clock jumps (9 min)
	$(BIN)/python -m tests.rigs modelled

test-s3: install ## 256 MiB, kills, outages and moves with attachments in Ceph's radosgw, on loopback (6 min)
	$(BIN)/python -m tests.s3

test-cluster: install ## kill primaries of a PostgreSQL cluster, and instances (root, CLUSTER_OPTIONS=--short, 30 min)
	$(BIN)/python -m tests.rigs cluster

test-pages: install ## drive the pages in Chromium: axe-core, keyboard, phone and desktop, no scripts (1 min)
	$(BIN)/python -m pytest tests/pages/browsed

check: install ## run ruff, mypy (strict, bench and config too), and the tests of layering and regular expressions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(HOUSE)

# docs/reliability.md says what is measured. BENCH_OPTIONS=--write puts the tables there; BENCH_OPTIONS=--help lists options.

bench: install ## compare the service with its peers, as far as make peers has installed them (25 min)
	$(BIN)/python bench/bench.py $(BENCH_OPTIONS)

bench-quick: install ## the same for a GET and a PUT of 5 KB on 8 connections (1 min)
	$(BIN)/python bench/bench.py --quick $(BENCH_OPTIONS)

bench-aims: install ## measure what has an aim of its own, from HEAD to the start with 100,000 documents (10 min)
	$(BIN)/python bench/aims.py $(BENCH_OPTIONS)

bench-mix: install ## a day's mix of requests for five minutes, with 100,000 documents in 20 forms (8 min)
	$(BIN)/python bench/mix.py $(BENCH_OPTIONS)

peers: $(PEERS) ## install the peers of make bench in .venv-peers; nginx, rclone, PostgreSQL, wrk are the system's

$(PEERS): $(LOCKED)/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --require-hashes --requirement $(LOCKED)/peers.txt
	@touch $@

bench-encryption: install ## compare encrypted contents with plain ones (2 min)
	$(BIN)/python bench/encryption.py

bench-recording: install ## compare a PUT with and without an audit and events (4 min)
	$(BIN)/python bench/recording.py

bench-maintenance: install ## measure check, backup and restore of 100,000 documents, beside cp (3 min)
	$(BIN)/python bench/maintenance.py

bench-export: install ## measure the export of 100,000 documents, beside tar and zip (3 min)
	$(BIN)/python bench/export.py

bench-forms: install ## measure the list of 500 to 10,000 published forms (1 min)
	$(BIN)/python bench/forms.py

bench-pages: install ## measure the pages for administrators with 100,000 documents of a form (2 min)
	$(BIN)/python bench/pages.py

bench-search: install ## measure searches in 10,000 to 1,000,000 documents, beside LIKE scans (20 min)
	$(BIN)/python bench/search.py

bench-cluster: install ## compare PostgreSQL with the file tree, with 1,000,000 documents (BENCH_DOCUMENTS, 40 min)
	$(BIN)/python bench/cluster.py $(BENCH_DOCUMENTS)

clean: ## remove what make has created, except data under var/
	rm -rf $(VENV) .venv-peers build *.egg-info .pytest_cache .mypy_cache .ruff_cache
