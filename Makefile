# A fresh clone needs python3 (3.11 or newer) and make: everything else is brought by tools/bootstrap.
# On Linux as root it also installs the Debian packages that are missing.
PYTHON ?= python3
# kubectl context of a cluster that you have: `make demo CONTEXT=kind-kind` installs nothing on the machine.
CONTEXT ?=
# Images that such a cluster can pull, where it is neither kind nor minikube.
OPERATOR_IMAGE ?=
ENGINE_IMAGE ?=
# What `make images` builds with: buildah (into archives, needs nothing else), docker or podman.
ENGINE ?= buildah
# vLLM in the runtime image, which docker and podman build on vLLM's own: make images ENGINE=docker VLLM_VERSION=0.32.0
VLLM_VERSION ?=
# More arguments of pytest: make test PYTEST="tests/unit -x"
PYTEST ?=

VENV := .venv/bin/python
BOOTSTRAP = @$(PYTHON) -c 'import sys; sys.exit("error: Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] \
	+ "; next step: make PYTHON=python3.12 $@") if sys.version_info < (3, 11) else None' && $(PYTHON) -m tools.bootstrap

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test test-nightly lint images crds lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a Kubernetes, the operator and an engine under load: see residency change (CONTEXT=... for your own cluster)
	$(BOOTSTRAP) demo $(if $(CONTEXT),--context $(CONTEXT))
	@$(VENV) -m tools.demo $(if $(CONTEXT),--context $(CONTEXT)) $(if $(OPERATOR_IMAGE),--operator-image $(OPERATOR_IMAGE)) \
		$(if $(ENGINE_IMAGE),--engine-image $(ENGINE_IMAGE))

demo-down: ## takes the demo away again
# Without the environment there is nothing but the cluster itself to take away, and that needs the standard library only.
	@$(if $(wildcard $(VENV)),$(VENV) -m tools.demo down $(if $(CONTEXT),--context $(CONTEXT)),$(PYTHON) -m tools.devcluster --name demo down)

test: ## lint, then every test that this machine can run
	$(BOOTSTRAP) test
	@$(VENV) -m tools.bootstrap.lint
	@$(VENV) -m pytest -m "not nightly and not gpu" -n 2 --durations=20 $(PYTEST)

test-nightly: ## the tests that take long: more versions of vLLM, and a real one without a cluster
	$(BOOTSTRAP) test
	@$(VENV) -m pytest -m "nightly and not gpu" --durations=20 $(PYTEST)

lint: ## ruff, mypy, import contracts, unused code and dependencies, the chart
	$(BOOTSTRAP) lint
	@$(VENV) -m tools.bootstrap.lint

images: ## OCI archives of operator and embedded engine with SBOM (ENGINE=docker: into Docker, and vLLM's with ours)
	$(BOOTSTRAP) $(if $(filter buildah,$(ENGINE)),images,venv)
	@$(VENV) -m tools.images --engine $(ENGINE) $(if $(VLLM_VERSION),--vllm-version $(VLLM_VERSION))

crds: ## writes the CRD from the API models, and the chart's copy of it
	$(BOOTSTRAP) venv
	@.venv/bin/hisparse crd > crds/.new.yaml && mv crds/.new.yaml crds/hisparsedeployments.yaml
	@cp crds/hisparsedeployments.yaml helm/hisparse-operator/files/hisparsedeployments.yaml

lock: ## resolves pyproject.toml into requirements/*.txt (UPGRADE=1: newest versions that it allows)
	$(BOOTSTRAP) venv
	@$(VENV) -m tools.bootstrap.lock $(if $(UPGRADE),--upgrade)

clean: ## removes the virtual environment and the tools' caches; ~/.cache/hisparse keeps images and binaries
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
