# The digest is that of all platforms together. To take a newer one: docs/install.md, "The base image".
ARG BASE=python:3.11-slim-bookworm@sha256:528257d48c1da0dcecc2e725d1ae34498d60c965f1241e39cd6a85a8859bdf84
# hadolint ignore=DL3006
FROM ${BASE} AS base

FROM base AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The libraries, and the tools that build and compile Sluice: each file must have the hash that is given for it.
COPY deploy/requirements.txt deploy/build-requirements.txt deploy/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement deploy/build-requirements.txt \
    && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --require-hashes --wheel-dir wheels \
        --requirement deploy/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY deploy/hatch_build.py deploy/
COPY deploy/launcher deploy/launcher
COPY deploy/share deploy/share
COPY analysis analysis
COPY config config
COPY protocol protocol
COPY proxy proxy
COPY quotas quotas
RUN /opt/build/bin/python -m hatchling build -t wheel -d wheels \
    && python -m venv --without-pip /opt/sluice \
    && /opt/build/bin/pip --python /opt/sluice install --no-cache-dir --no-index --no-deps wheels/*.whl \
    && /opt/sluice/bin/sluice --version > /tmp/version \
    && grep --fixed-strings '(compiled)' /tmp/version

FROM base
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin sluice
COPY --from=build /opt/sluice /opt/sluice
ENV PATH="/opt/sluice/bin:$PATH"
USER 10001
# The bootstrap port of the example configuration, the ports of its brokers, and the admin port.
EXPOSE 9092 9100-9109 9404
# Alive, not ready: a cluster that cannot be reached is no reason to replace the proxy in front of it.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10s --retries=3 \
    CMD ["sluice", "health", "--live", "-c", "/etc/sluice/sluice.yaml"]
ENTRYPOINT ["sluice"]
CMD ["run", "-c", "/etc/sluice/sluice.yaml"]
