# trtspec on the Triton image that carries TensorRT-LLM 1.2.1, the last release with engines.
#
#   docker build -t trtspec .                      the image
#   docker build -t trtspec-multinode --target multinode .
#   docker run --rm --gpus all trtspec             what this machine can do (trtspec doctor)
#
# No weights are in it: mount them. Never run by those who wrote it, who had no GPU; docs/gpu-host.md says what to send
# back when something differs.
ARG TRITON=nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3

# Environments are made with virtualenv, which needs nothing of the system but pip; it stays in this stage.
FROM ${TRITON} AS environments
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1
RUN python3 -m pip install --target /opt/virtualenv virtualenv==20.39.1

# modelopt with a torch of its own: TensorRT-LLM pins another torch, another modelopt and numpy 1.
FROM environments AS modelopt
COPY deploy/modelopt-requirements.txt /tmp/requirements.txt
RUN PYTHONPATH=/opt/virtualenv python3 -m virtualenv /opt/modelopt \
    && /opt/modelopt/bin/pip install --requirement /tmp/requirements.txt

# trtspec sees the image's packages and adds what they lack; nothing of the image is replaced.
FROM environments AS trtspec-venv
COPY pyproject.toml README.md LICENSE /src/
COPY trtspec /src/trtspec
RUN PYTHONPATH=/opt/virtualenv python3 -m virtualenv --system-site-packages /opt/trtspec \
    && /opt/trtspec/bin/pip install /src \
    && /opt/trtspec/bin/python -c "from importlib.metadata import version as v; assert v('tensorrt-llm') == '1.2.1', v('tensorrt-llm')"

FROM ${TRITON} AS trtspec
LABEL org.opencontainers.image.title="trtspec" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number no user of the base image has, so that nothing of the image belongs to it.
RUN useradd --uid 10001 --create-home --shell /bin/bash trtspec \
    && mkdir -p /work /models \
    && chown trtspec:trtspec /work /models
COPY --from=modelopt /opt/modelopt /opt/modelopt
COPY --from=trtspec-venv /opt/trtspec /opt/trtspec
COPY configs /opt/trtspec/configs
# On PATH last: `python3` stays the image's, which Triton's Python backend runs.
ENV PATH=${PATH}:/opt/trtspec/bin \
    HF_HOME=/models/hub \
    TRTSPEC_SET_tools__modelopt_python=/opt/modelopt/bin/python
USER 10001
WORKDIR /work
EXPOSE 8000 8001 8002
# Healthy means that Triton serves every model; a container that builds has no server and stays unhealthy.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30m --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
# Not NVIDIA's own entry point: its banner would stand before every --json document.
ENTRYPOINT ["/opt/trtspec/bin/trtspec"]
CMD ["doctor"]

# For a target that one node cannot hold: trtllm-serve over MPI, whose ranks reach each other by ssh.
FROM trtspec AS multinode
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/*
USER 10001

FROM trtspec
