FROM python:3.11-slim AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY deploy/constraints.txt deploy/hatch_build.py deploy/
COPY deploy/launcher deploy/launcher
COPY analysis analysis
COPY config config
COPY protocol protocol
COPY proxy proxy
COPY quotas quotas
# The hot modules are compiled, by the version of mypyc that the constraints name.
ENV PIP_CONSTRAINT=/src/deploy/constraints.txt
RUN python -m venv /opt/sluice \
    && /opt/sluice/bin/pip install --no-cache-dir --constraint deploy/constraints.txt . \
    && /opt/sluice/bin/sluice --version > /tmp/version \
    && grep --fixed-strings '(compiled)' /tmp/version \
    && /opt/sluice/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim
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
