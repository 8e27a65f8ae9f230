# The one list of commands. `make` alone prints it.

.DEFAULT_GOAL := help
.PHONY: help setup wheels demo test test-all test-localcloud test-unit test-aws api-faults pairs chaos machines lint audit fuzz benchmarks docs lock snapshots clean

python := .venv/bin/python
# All clones share the type checker's cache.
types := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deepcdk/mypy
# What runs on a Mac. mypy follows its imports into agent and payload.
laptop := app.py fabfile.py deepcdk stacks cluster
# Tests that need no root, no hosts and no TensorFlow.
unit := not root and not tensorflow and not horovod and not e2e
# Use the locked node, npm and cdk instead of the machine's. jsii finds its Node in the path too.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

setup: ## install everything needed, once (system packages through apt, Python and Node packages, Horovod; WHEELHOUSE=ADDRESS)
	@PYTHON='$(PYTHON)' sh tools/setup.sh $(if $(WHEELHOUSE),--wheelhouse '$(WHEELHOUSE)')

wheels: setup ## build Horovod's wheel for each installed Python of 3.11, 3.12 and 3.13, to share them (INTO=wheels)
	@for version in 3.11 3.12 3.13; do \
	  python=$$(PYENV_VERSION=$$version .venv/bin/uv python find --no-project $$version) || continue; \
	  "$$python" -m agent.environment.runtime ensure --root .setup/wheels/roots --cache .setup/wheels || exit 1; done
	@mkdir -p '$(or $(INTO),wheels)' && cd .setup/wheels/horovod && for wheel in */*.whl; do \
	  install -D -m 644 "$$wheel" "$(abspath $(or $(INTO),wheels))/$$wheel" && echo "$(or $(INTO),wheels)/$$wheel"; done

demo: setup ## start an embedded cloud, deploy, train on two hosts, fetch results, write a report, remove everything (NODES=16, IMAGE=debian-12, PACKAGES=1, VERBOSE=1)
	@$(python) -m deepcdk demo --nodes $(or $(NODES),2) $(if $(IMAGE),--image $(IMAGE)) $(if $(PACKAGES),--packages) $(if $(VERBOSE),--verbose)

test: setup lint ## check style and types, run the unit tests and the main path end to end (17 minutes on two cores)
	$(python) -m pytest -m "$(unit) and not full" -n auto --dist worksteal --durations=20
	$(python) -m pytest -m "not ($(unit)) and not full" -n 2 --dist loadfile --no-loadscope-reorder --durations=20

# Tests with hosts mostly wait, so the machine has room for more processes than cores. tests/conftest.py distributes them.
test-all: test test-localcloud ## run all tests, including faults, hostile nodes, policies, Debian and fuzzing (over an hour on two cores)
	$(python) -m pytest -m full -n 3 --dist loadfile --no-loadscope-reorder --durations=40

test-localcloud: setup ## run the embedded cloud's own tests (localcloud/tests)
	LOCALCLOUD_REQUIRE_ALL='$(DEEPCDK_REQUIRE_ALL)' $(python) -m pytest localcloud/tests -n 2 --dist loadfile --no-loadscope-reorder --durations=20

test-unit: setup ## run the tests that need no root, no hosts and no TensorFlow
	$(python) -m pytest -m "$(unit) and not full" -n auto --dist worksteal --durations=20

test-aws: setup ## run the tests marked `aws` on your AWS account, after showing the price and asking (SSH_CIDR=ADDRESS/32, REGION=..., SET="KEY=VALUE ...")
	@$(if $(REGION),AWS_REGION='$(REGION)' AWS_DEFAULT_REGION='$(REGION)') $(python) -m pytest tests/e2e --aws $(foreach each,$(if $(SSH_CIDR),ssh_cidr=$(SSH_CIDR)) $(SET),--aws-set '$(each)')

api-faults: setup ## run the main path on embedded clouds with throttling, delays and missing capacity; SEEDS="1 2 ..." (1 to 20)
	FAULT_SEEDS='$(or $(SEEDS),$(shell seq 1 20))' $(python) -m pytest tests/e2e/own_clouds/test_api_faults.py --durations=0

pairs: setup ## run every pair of tasks from two laptops at the same time; `make test-all` runs some pairs (about ten minutes)
	ALL_PAIRS=1 $(python) -m pytest tests/e2e/own_clouds/test_two_laptops.py --durations=0

chaos: setup ## train on eight hosts while ranks, hosts and the master fail; SEEDS="1 2 ..." (1 to 20) NODES=4 KINDS=cut,drop,...
	CHAOS_SEEDS='$(or $(SEEDS),$(shell seq 1 20))' CHAOS_NODES='$(or $(NODES),8)' $(if $(KINDS),CHAOS_KINDS='$(KINDS)') $(python) -m pytest tests/e2e/own_clouds/test_chaos.py --durations=0

machines: setup ## boot a cluster in QEMU machines with Debian's kernel and a file server (half an hour if emulated)
	DEEPCDK_MACHINES=1 $(python) -m pytest tests/e2e/own_clouds/test_machines.py -v --durations=0

lint: setup ## check style, shell scripts, types and imports between packages
	$(python) -m ruff check
	$(python) -m ruff format --check
	.venv/bin/shellcheck $$(git ls-files '*.sh'; git grep -lE '^#!/.*[/ ](ba|da)?sh( |$$)' -- ':!*.sh' ':!*.py' ':!*.md')
	MYPY_CACHE_DIR='$(types)' $(python) -m mypy
	MYPY_CACHE_DIR='$(types)/darwin' $(python) -m mypy --platform darwin $(laptop)
	.venv/bin/lint-imports

# Not part of `lint`, because the result changes over time, and mirrors of PyPI and npm have no such database. With
# --strict, an unknown package or a missing answer is a failure. Otherwise pip-audit would report no vulnerabilities.
audit: setup ## look up all locked packages in the vulnerability databases of PyPI and npm
	@status=0; for lock in requirements/*.txt agent/environment/requirements*.txt; do \
	  echo "$$lock"; .venv/bin/uvx pip-audit@2.10.1 --strict --disable-pip --progress-spinner off -r "$$lock" || status=1; \
	done; echo package-lock.json; npm audit --package-lock-only || status=1; exit $$status

fuzz: setup ## feed hostile bytes to all readers of foreign data for MINUTES=60; each test run does this for some seconds
	@seed=$$(od -An -N3 -tu4 /dev/urandom | tr -d ' '); end=$$(($$(date +%s) + 60 * $(or $(MINUTES),60))); \
	while DEEPCDK_EXAMPLES=500 $(python) -m pytest -q -x tests/fuzz --hypothesis-seed=$$seed || exit 1; \
	  [ $$(date +%s) -lt $$end ]; do seed=$$((seed + 1)); done

benchmarks: setup ## measure the times in the README and in docs/figures.md
	@$(python) -m benchmarks

docs: setup ## build the guides and the reference as an offline site, site/index.html (INTO=FOLDER)
	@$(python) -m tools.site $(if $(INTO),--into '$(INTO)')

lock: setup ## resolve the lock files again from pyproject.toml
	$(python) -m tools.lock

snapshots: setup ## write the committed templates again (tests/stacks/clusters/snapshots), after an intended change of stacks/
	$(python) -m tests.stacks.clusters.snapshots

clean: ## remove the output of set-up and tests in this clone; the cache of all clones stays in ~/.cache/deepcdk
	rm -rf .venv .setup node_modules site mutants cdk.out* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
