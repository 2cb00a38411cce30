# Two images of the HTTP service:
#   docker build --target full --tag turnwise:full .     all commands, on a CPU
#   docker build --target light --tag turnwise:light .   intents and vectors with exported models, without torch
# Both serve on port 8000, as a user without privileges, with the project in /data. docs/hosting.md describes them.

FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/turnwise
ENV PATH=/opt/turnwise/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
COPY weights weights
COPY weights-onnx weights-onnx

FROM build AS build-light
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --constraint constraints.txt '.[light]' ./weights-onnx

# torch is installed first, from an index whose builds need no GPU: those of PyPI bring gigabytes of CUDA packages on some platforms.
FROM build AS build-full
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch && \
    pip install --constraint constraints.txt '.[small,minilm,evaluation,plots,onnx,static]' ./weights ./weights-onnx

FROM python:3.11-slim-bookworm AS runtime
RUN groupadd --gid 10001 turnwise && \
    useradd --uid 10001 --gid turnwise --home-dir /data --no-create-home --shell /usr/sbin/nologin turnwise && \
    install --directory --owner turnwise --group turnwise /data
# Nothing is downloaded, and what libraries cache goes to /tmp: the root file system may be read-only.
ENV PATH=/opt/turnwise/bin:$PATH HOME=/tmp XDG_CACHE_HOME=/tmp HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=90s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["turnwise"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]

FROM runtime AS light
COPY --from=build-light /opt/turnwise /opt/turnwise
CMD ["serve", "--model", "turnwise-small-int8", "--host", "0.0.0.0", "--port", "8000"]

FROM runtime AS full
COPY --from=build-full /opt/turnwise /opt/turnwise
