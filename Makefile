# `make demo` and `make test` do all set-up by themselves; `make help` lists the rest.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs
PYTEST := $(PY) -m pytest

.PHONY: help setup demo test test-explore test-faults test-campaign test-long test-cluster test-hbase \
	test-hbase-smoke test-package test-all check format docs package bench bench-peers bench-check \
	hbase-up hbase-down hbase-jar demo-hbase clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
		| awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt scripts/setup
	@scripts/setup
	@touch $(STAMP)

setup: $(STAMP) ## make .venv with the pinned packages (the other targets do it too)

demo: $(STAMP) ## a news site with live views, about a minute
	@$(VENV)/bin/viewkeep demo $(DEMO)

test: $(STAMP) ## the default tests, minutes
	$(PYTEST) $(ARGS)

test-faults: $(STAMP) ## kill -9 of driver, workers and writers, many rounds
	$(PYTEST) -m faults $(ARGS)

CAMPAIGN = $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	$(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP_GOING),--keep-going) $(if $(HISTORY),--history) \
	$(if $(PROCESSES),--processes) $(if $(THREADS),--threads) $(if $(KEEP),--keep $(KEEP))

test-campaign: $(STAMP) ## random histories with faults at every place; SECONDS=600 SEED=1 ROUNDS=100 (docs/campaign.md)
	$(PY) -m tests.campaign $(CAMPAIGN)

test-long: $(STAMP) ## more histories, larger data
	$(PYTEST) -m long $(ARGS)

test-explore: $(STAMP) ## the default tests, with new random examples each time
	HYPOTHESIS_PROFILE=explore $(PYTEST) $(ARGS)

test-cluster: $(STAMP) ## on a Spark standalone cluster on loopback
	$(PYTEST) -m cluster $(ARGS)

test-hbase: $(STAMP) ## on an HBase cluster on loopback
	@python3 scripts/hbase/endpoint.py test
	$(PYTEST) -m hbase $(ARGS)

test-hbase-smoke: $(STAMP) ## the part of them that is always run, three minutes
	$(PYTEST) -m hbase tests/stores/hbase/test_store.py tests/stores/hbase/test_install.py $(ARGS)

test-package: $(STAMP) ## the wheel, in an empty environment, with a view from end to end
	$(PYTEST) -m package $(ARGS)

test-all: $(STAMP) ## everything above
	$(PYTEST) -m "" $(ARGS)

check: $(STAMP) ## format, lint and types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(STAMP) ## put the code into format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

package: $(STAMP) ## a wheel and an sdist in dist/
	$(PY) -m hatchling build

$(DOCS_STAMP): $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation -e '.[docs]'
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP) ## the manual as a site in build/site, with all links checked
	$(PY) scripts/site/hooks.py
	@echo "open build/site/index.html"

BENCH = $(WORKLOAD) $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON)) $(if $(PEERS),--peers $(PEERS)) \
	$(if $(SECONDS),--seconds $(SECONDS)) $(if $(PUBLISH),--publish)

$(BENCH_STAMP): $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--no-build-isolation -e '.[bench]'
	@touch $(BENCH_STAMP)

bench: $(BENCH_STAMP) ## all systems side by side; QUICK=1 WORKLOAD=vote JSON=out.json PEERS=flink PUBLISH=1
	$(PY) benchmarks/run.py $(BENCH)

bench-peers: $(STAMP) ## an environment under .bench/ for each system that we compare with
	$(PY) benchmarks/install.py

bench-check: $(BENCH_STAMP) ## fails where a ratio fell by 25 %; takes JSON=out.json, or runs the quick suite
	$(PY) benchmarks/check.py $(if $(JSON),--json $(JSON)) $(if $(PEERS),--peers $(PEERS)) $(WORKLOAD)

hbase-up: ## a small HBase cluster on loopback, from Maven's jars; VIEWKEEP_HBASE_PORT=22100
	@python3 scripts/hbase/cluster.py up

hbase-down: ## end it; its data is kept
	@python3 scripts/hbase/cluster.py down

NEWS := demo$(shell date +%s)
NEWS_URL = hbase://127.0.0.1:$(or $(VIEWKEEP_HBASE_PORT),22100)/$(NEWS)?state=/tmp/$(NEWS)

demo-hbase: $(STAMP) hbase-up ## the news site on that cluster, with the dashboard
	@$(VENV)/bin/viewkeep init '$(NEWS_URL)'
	@python3 scripts/hbase/cluster.py peer add $(NEWS) $(NEWS):log
	@$(VENV)/bin/viewkeep demo --url '$(NEWS_URL)' $(DEMO); done=$$?; rm -rf /tmp/$(NEWS); \
		python3 scripts/hbase/cluster.py peer remove $(NEWS); exit $$done

hbase-jar: ## what region servers run for viewkeep, into the package; a wheel built afterwards has it
	@python3 scripts/hbase/endpoint.py build

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse .bench
	find . -name __pycache__ -prune -exec rm -rf {} +
