# The operator. Plain build from the repository root:  docker build -f images/operator.Dockerfile -t hisparse-operator .
# tools/images builds the same file without a network: BASE, PIP_ARGS and a folder `wheels` are then given.
ARG BASE=docker.io/library/python:3.11-slim

# Dependencies change seldom, so they are a layer of their own. pip lives in a second environment that stays behind.
FROM ${BASE} AS dependencies
ARG PIP_ARGS=
WORKDIR /src
COPY requirements/build.txt requirements/operator.txt wheels* /src/locked/
RUN python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/hisparse \
 && /opt/build/bin/pip --disable-pip-version-check --python /opt/hisparse/bin/python install -q --no-cache-dir --no-compile --no-deps \
    --require-hashes ${PIP_ARGS} -r locked/operator.txt
# Bytecode is part of the image: the root file system is read-only, so it would be compiled anew at each start. It is checked against
# nothing (unchecked-hash), as no file can change. The Kubernetes client imports its 1,800 API and model modules one by one when one
# is used, and the operator speaks to the API server with plain requests: leaving their bytecode out saves a third of the image.
RUN /opt/hisparse/bin/python -m compileall -q --invalidation-mode unchecked-hash -x '/kubernetes/(aio/)?client/(api|models)/' /opt/hisparse/lib

FROM dependencies AS application
ARG PIP_ARGS=
RUN /opt/build/bin/pip --disable-pip-version-check install -q --no-cache-dir --no-deps --require-hashes ${PIP_ARGS} -r locked/build.txt
COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
COPY runtime /src/runtime
RUN /opt/build/bin/pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w dist . \
 && /opt/build/bin/pip --disable-pip-version-check --python /opt/hisparse/bin/python install -q --no-deps --no-index --no-compile \
    --prefix /opt/application dist/*.whl \
 && /opt/hisparse/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /opt/application -p /opt/hisparse /opt/application/lib

FROM ${BASE}
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hisparse-operator" \
      org.opencontainers.image.description="Kubernetes operator for HiSparseDeployment" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=dependencies /opt/hisparse /opt/hisparse
COPY --from=application /opt/application /opt/hisparse
# HOME: the Kubernetes client asks for it when it is imported, and fails where neither the runtime nor /etc/passwd has one.
ENV PATH=/opt/hisparse/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# Numbers, not names: runAsNonRoot can only be checked for a numeric user, and nothing needs an entry in /etc/passwd.
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["hisparse-operator"]
