# vLLM, and beside it what plans, checks, launches and watches it in a pod. Plain build from the repository root:
#     docker build -f images/runtime.Dockerfile -t hisparse-runtime .
# BASE is any image whose python3 has vLLM. Our wheel is all that comes on top, in a folder of its own: what it imports there vLLM
# brings itself (tests/unit/images/test_runtime_imports.py), so no package of the base is replaced and none is added.
ARG VLLM_VERSION=0.33.0
ARG BASE=docker.io/vllm/vllm-openai:v${VLLM_VERSION}
# The wheel is pure Python: it is built where pip and venv are known to be, whatever BASE has.
ARG BUILD_BASE=docker.io/library/python:3.11-slim

FROM ${BUILD_BASE} AS application
ARG PIP_ARGS=
WORKDIR /src
COPY requirements/build.txt wheels* /src/locked/
RUN python3 -m venv /opt/build \
 && /opt/build/bin/pip --disable-pip-version-check install -q --no-cache-dir --no-deps --require-hashes ${PIP_ARGS} -r locked/build.txt
COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
COPY runtime /src/runtime
RUN /opt/build/bin/pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w dist . \
 && python3 -m zipfile -e dist/*.whl /opt/hisparse/lib/python3/site-packages

FROM ${BASE}
ARG BASE
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hisparse-runtime" \
      org.opencontainers.image.description="vLLM for Hybrid HiSparse: checks before the weights load, launch, residency telemetry" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=application /opt/hisparse /opt/hisparse
# One line in the base's own folder makes it find ours, whatever installs packages there: pip, which Debian's and Ubuntu's Python refuse
# (PEP 668), or uv. Bytecode as in the other images. User, environment and entry point stay the base's.
# Not by `RUN --mount=from=application`: buildah and podman take such a step from their cache although the stage has changed.
RUN packages="$(python3 -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
 && echo /opt/hisparse/lib/python3/site-packages > "$packages/hisparse.pth" \
 && python3 -I -m compileall -q --invalidation-mode unchecked-hash /opt/hisparse/lib
