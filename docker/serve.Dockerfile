# The service: TrueOdds with what its extra `serve` names, neither torch nor DVC nor Prefect. In the repository's root:
#   docker build -f docker/serve.Dockerfile -t trueodds-serve .
#   docker run --init -p 127.0.0.1:8000:8000 -v "$PWD/models:/models:ro" -v trueodds-store:/store trueodds-serve
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY docker/constraints.txt /tmp/
RUN pip install -c /tmp/constraints.txt setuptools
WORKDIR /source
COPY pyproject.toml README.md ./
COPY trueodds trueodds
COPY pipeline pipeline
COPY service service
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${BASE}
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# All that is needed is listed (tools/constraints.py).
COPY docker/serve.txt /tmp/
RUN pip install --no-deps --require-hashes -r /tmp/serve.txt && pip check

# The same user as in the training image, for both mount the models; what has to be kept is under /store. All else is
# root's, bytecode (by pip) too: nothing has to be written, so that it runs on a read-only file system (compose.yaml).
COPY docker/healthy /usr/local/bin/
RUN useradd --uid 1000 --create-home trueodds \
 && mkdir -p /models /store \
 && chown 1000:1000 /models /store \
 && chmod 755 /usr/local/bin/healthy

# The console script with every command; one whose packages are not in this image says which extra it needs.
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels pip install --no-deps /wheels/*.whl && pip check
WORKDIR /app
USER 1000:1000

ENV ORT_DISABLE_TELEMETRY=1 \
    TRUEODDS_HOST=0.0.0.0 \
    TRUEODDS_PORT=8000 \
    TRUEODDS_MODELS=/models \
    TRUEODDS_MODELS_CACHE=/store/models \
    TRUEODDS_STORE=/store/store.sqlite
EXPOSE 8000

# Ready means: a model is loaded and has reproduced its stored answer. Until one is published, the service is up and
# unhealthy, and looks for one every second.
HEALTHCHECK --interval=10s --timeout=15s --start-period=60s --retries=3 \
  CMD ["healthy", "8000", "health/ready"]

CMD ["trueodds", "serve"]
