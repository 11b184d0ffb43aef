# syntax=docker/dockerfile:1
# Builds for amd64 and arm64 alike: all requirements are wheels, in the releases and with the hashes of deploy/locks.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim

FROM ${BASE_IMAGE} AS build
COPY deploy/locks /locks
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --only-binary=:all: --require-hashes -r /locks/build.txt \
    && python3 -m venv --without-pip /opt/taskgate \
    && /build/bin/pip --python /opt/taskgate/bin/python install --no-cache-dir --only-binary=:all: --require-hashes \
        -r /locks/image.txt
COPY . /source
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /source \
    && /build/bin/pip --python /opt/taskgate/bin/python install --no-deps --no-index /wheels/*.whl \
    && install -d -m 700 -o 10001 -g 10001 /data/taskgate

FROM ${BASE_IMAGE}
COPY --from=build /opt/taskgate /opt/taskgate
# Docker copies the owner of this folder to a new volume.
COPY --from=build --chown=10001:10001 /data /var/lib
ENV PATH=/opt/taskgate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 TASKGATE_DATA_DIR=/var/lib/taskgate
USER 10001:10001
VOLUME /var/lib/taskgate
EXPOSE 8080 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["taskgate", "health"]
ENTRYPOINT ["taskgate"]
CMD ["serve", "--config", "/etc/taskgate/taskgate.yaml"]
