# TrueOdds with what its extras `train` and `workflow` name (torch, DVC, Prefect): the image of the worker and of the
# Prefect server (compose.yaml). In the repository's root:
#   docker build -f docker/train.Dockerfile -t trueodds-train .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE}
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# From here on unchanged versions are a cached layer. All that is needed is listed: left to look for it, pip finds no hash
# for sqlalchemy[asyncio]. torch comes last and without hashes: its wheel is another in every index. 2.13.0+cpu counts as
# newer than PyPI's 2.13.0, which brings several GB of CUDA libraries, so pip takes it wherever the index has it.
COPY docker/train.txt docker/constraints.txt /tmp/
RUN pip install --no-deps --require-hashes -r /tmp/train.txt
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --extra-index-url "${TORCH_INDEX}" -c /tmp/constraints.txt torch torchvision && pip check

# 1000 is the first user of most Linux machines, whose files under datasets/ it can therefore read; the service's image
# has the same one, for both mount the models. A new volume takes its owner from the folder that it is mounted on.
WORKDIR /app
COPY docker/healthy /usr/local/bin/
RUN useradd --uid 1000 --create-home trueodds \
 && chmod 755 /usr/local/bin/healthy \
 && mkdir -p /app/.dvc/cache /app/.dvc/tmp /app/.runs /models /downloads /home/trueodds/.prefect \
 && chown 1000:1000 /app/.dvc/cache /app/.dvc/tmp /app/.runs /models /downloads /home/trueodds/.prefect

# Root's: what runs here cannot change the code that runs next.
COPY .dvc/config .dvc/
COPY datasets/README.md datasets/
COPY dvc.yaml params.yaml prefect.yaml .dvcignore pyproject.toml README.md ./
COPY trueodds trueodds
COPY pipeline pipeline
COPY service service
# Editable: DVC watches the code in this folder, so it is this code that runs. setuptools came with torch's needs.
# Without git DVC must be told not to look for it; a run's copy of this folder takes config.local along. In a checkout made
# under a strict umask the files are for their owner only. Bytecode could not be written later.
RUN pip install --no-deps --no-build-isolation --editable . && pip check \
 && printf '[core]\n    no_scm = true\n' > .dvc/config.local \
 && chmod -R u=rwX,go=rX .dvc/config .dvc/config.local datasets ./*.* .dvcignore trueodds pipeline service \
 && python -m compileall -q trueodds pipeline service
USER 1000:1000

# PREFECT_SERVER_UI_STATIC_DIRECTORY: otherwise the server writes its page into site-packages, which is root's.
# DVC_SITE_CACHE_DIR and MPLCONFIGDIR: DVC would write to /var/tmp, matplotlib into the home folder. The six of Prefect
# after it are those of [tool.prefect] in pyproject.toml, which Prefect reads in this folder only.
ENV PIPELINE_HOME=/app \
    TRUEODDS_MODELS=/models \
    TRUEODDS_DOWNLOADS=/downloads \
    DVC_SITE_CACHE_DIR=/tmp/dvc \
    MPLCONFIGDIR=/tmp/matplotlib \
    PREFECT_SERVER_UI_STATIC_DIRECTORY=/tmp/prefect-ui \
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30 \
    PREFECT_WORKER_QUERY_SECONDS=2 \
    PREFECT_WORKER_HEARTBEAT_SECONDS=10 \
    PREFECT_CLIENT_MAX_RETRIES=10 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=prefect.server.concurrency.lease_storage.filesystem \
    DVC_NO_ANALYTICS=1 \
    DO_NOT_TRACK=1 \
    ORT_DISABLE_TELEMETRY=1

# Its health is asked for at port 8080 (compose.yaml): whether it has asked the server for runs of late.
CMD ["python", "-m", "pipeline.flows.worker", "--with-healthcheck"]
