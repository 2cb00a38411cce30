"""Container files and proxy examples fit the service; the proxies run in front of one where they are installed.

No image is built. Where nginx or Caddy is not installed, its tests are skipped.
"""

import fnmatch
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.main import get_command

from tests.helpers import HANG_SECONDS, ROOT
from tests.helpers.trial import listening
from turnwise.cli import app
from turnwise.serve.settings import Limits, ServeSettings

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
NGINX = (ROOT / "examples/hosting/nginx.conf").read_text(encoding="utf-8")
CADDY = (ROOT / "examples/hosting/Caddyfile").read_text(encoding="utf-8")
LIMITS = Limits()
PORT = 8000


def instructions(name: str) -> list[str]:
    return [match.strip() for match in re.findall(rf"^{name}\s(.*)$", DOCKERFILE, re.MULTILINE)]


def check_command(words: list[str]) -> None:
    """Check that a command line of turnwise would be accepted, without running it."""
    command = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], list(words[1:]))


# ---- Docker


def test_commands_are_valid() -> None:
    (entry,) = instructions("ENTRYPOINT")
    assert json.loads(entry) == ["turnwise"]
    for default in instructions("CMD"):  # of all images, and of the light one
        check_command(json.loads(default))
    check_command(COMPOSE["services"]["turnwise"]["command"])


def test_installed_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requested = {
        extra
        for line in instructions("RUN")
        for extras in re.findall(r"'\.\[(.*?)\]'", line)
        for extra in extras.split(",")
    }
    assert {"light", "small"} <= requested and requested <= set(project["optional-dependencies"])
    installs = [part for line in instructions("RUN") for part in line.split("&&") if "pip install" in part]
    assert len(installs) == 3 and all("--constraint constraints.txt" in install for install in installs)


def test_copied_files_exist_and_are_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"  # everything is ignored, except:
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {name for line in instructions("COPY") if "--from" not in line for name in line.split()[:-1]}
    assert copied == allowed and all((ROOT / name).exists() for name in copied)
    readme_and_licence = {"README.md", "LICENSE"}  # which the build of the package reads
    assert readme_and_licence < copied
    assert not any(fnmatch.fnmatch("keys.txt", name) for name in allowed)


def test_targets_and_user() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert {"light", "full", COMPOSE["services"]["turnwise"]["build"]["target"]} <= set(stages)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions("USER")[0])


@pytest.fixture(scope="module")
def port(tiny_folder) -> Iterator[int]:
    """The port of a service with a tiny model."""
    with listening(ServeSettings(model=str(tiny_folder("bert")))) as address:
        yield int(address.rpartition(":")[2])


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_health_check(port: int) -> None:
    (check,) = re.findall(r"^HEALTHCHECK.*? CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, *arguments = json.loads(check)
    assert program == "python"

    def run(at: int) -> int:
        replaced = [argument.replace(str(PORT), str(at)) for argument in arguments]
        return subprocess.run([sys.executable, *replaced], stderr=subprocess.DEVNULL).returncode

    assert run(port) == 0
    assert run(free_port()) != 0


# ---- limits


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_limits_of_the_proxies_match_those_of_the_service() -> None:
    assert re.search(rf"client_max_body_size {LIMITS.body};", NGINX)
    assert re.search(rf"client_body_buffer_size {LIMITS.body};", NGINX)
    assert f"max_size {16 * LIMITS.body // 1_000_000}MB" in CADDY  # where the service stops reading
    for kind, limit in (("header", LIMITS.header_seconds), ("body", LIMITS.body_seconds)):
        assert f"client_{kind}_timeout {limit:g}s;" in NGINX
        assert f"read_{kind} {limit:g}s" in CADDY
    slow = LIMITS.seconds * 20
    for page, pattern in ((NGINX, r"proxy_read_timeout (\S+);"), (CADDY, r"response_header_timeout (\S+)")):
        found = [seconds(match) for match in re.findall(pattern, page)]
        # the service gives up first, and says so itself
        assert all(LIMITS.seconds < each < LIMITS.seconds + 15 or slow < each < slow + 15 for each in found), found
        assert min(found) < slow < max(found)
    assert int(re.search(r"limit_conn \w+ (\d+);", NGINX)[1]) < LIMITS.connections  # type: ignore[index]
    stop = seconds(COMPOSE["services"]["turnwise"]["stop_grace_period"])
    assert stop > LIMITS.seconds + LIMITS.body_seconds + 1


def test_compose_file_restricts_the_service() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"] and "mem_limit" in service
    service = COMPOSE["services"]["turnwise"]
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert service["environment"]["OMP_NUM_THREADS"] == str(service["cpus"])
    assert set(service["secrets"]) == set(COMPOSE["secrets"])
    caddy = COMPOSE["services"]["caddy"]["volumes"][0].partition(":")[0]
    assert (ROOT / caddy).read_text(encoding="utf-8") == CADDY


# ---- proxies


@contextmanager
def running(*command: object, **options: Any) -> Iterator[None]:
    """Run a program until the end of the block."""
    program = subprocess.Popen([str(part) for part in command], **options)
    try:
        yield
    finally:
        program.terminate()
        program.wait(HANG_SECONDS)


@contextmanager
def connected(port: int) -> Iterator[httpx.Client]:
    """Yield a client of a proxy with TLS, once it listens; its certificate is not checked."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            ssl.get_server_certificate(("localhost", port))
            break
        except OSError:  # also an SSLError while there is no certificate
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with httpx.Client(base_url=f"https://localhost:{port}", verify=False, timeout=HANG_SECONDS) as client:
        yield client


def check_requests(client: httpx.Client) -> None:
    """Check that requests and errors pass a proxy, and that bodies may be as large as the service allows."""
    ready = client.get("/ready")
    assert ready.json() == {"status": "ready"} and ready.headers["strict-transport-security"]
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert client.get("/metrics").status_code == 200  # from this machine
    vectors = client.post("/embed", json={"inputs": ["where is my parcel?"]}, headers={"x-request-id": "mine"})
    assert vectors.status_code == 200 and vectors.headers["x-request-id"] == "mine"
    assert len(vectors.json()["vectors"]) == 1
    is_json, body = {"content-type": "application/json"}, b'{"inputs": ["text"]}'
    assert client.post("/embed", content=body.ljust(LIMITS.body), headers=is_json).status_code == 200
    for response, status, code in (
        (client.post("/embed", content=body.ljust(LIMITS.body + 1), headers=is_json), 413, "body_too_large"),
        (client.post("/embed", json={"inputs": [""]}), 422, "invalid"),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@contextmanager
def nginx(folder: Path, upstream: int, site: str = NGINX) -> Iterator[tuple[int, int]]:
    """Run the example with a certificate of its own; yield its ports with and without TLS."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("needs nginx and openssl")
    files = ["-keyout", folder / "turnwise.key", "-out", folder / "turnwise.crt"]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*request, *files], check=True, capture_output=True)
    tls, plain = free_port(), free_port()
    site = site.replace("/etc/nginx/tls", str(folder)).replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{upstream}")
    site = site.replace("listen 443", f"listen 127.0.0.1:{tls}").replace("listen 80", f"listen 127.0.0.1:{plain}")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"pid {folder}/pid; error_log {folder}/error.log; daemon off; events {{}}\n"
        f"http {{ access_log off; {paths}\n{site} }}\n"
    )
    command = ("nginx", "-e", folder / "error.log", "-p", folder, "-c", configuration)
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with running(*command):
        yield tls, plain


def test_nginx(port: int, tmp_path: Path) -> None:
    with nginx(tmp_path, port) as (tls, plain), connected(tls) as client:
        check_requests(client)
        assert not list((tmp_path / "client_body").iterdir())  # no text was written to disk
        moved = httpx.get(f"http://127.0.0.1:{plain}/about", headers={"host": "support.example.com"})
        assert (moved.status_code, moved.headers["location"]) == (301, "https://support.example.com/about")


def test_nginx_limits_requests(port: int, tmp_path: Path) -> None:
    slower = NGINX.replace("rate=50r/s", "rate=1r/m").replace("burst=100", "burst=10")
    assert slower != NGINX
    with nginx(tmp_path, port, slower) as (tls, _), connected(tls) as client:
        responses = [client.get("/about") for _ in range(30)]
    assert [response.status_code for response in responses[:11]] == [200] * 11
    assert (responses[-1].status_code, responses[-1].json()["error"]["code"]) == (429, "too_many_requests")


def test_caddy(port: int, tmp_path: Path) -> None:
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("needs Caddy")
    tls, plain = free_port(), free_port()
    configuration = tmp_path / "Caddyfile"
    options = f"{{\n\tadmin off\n\tskip_install_trust\n\thttp_port {plain}\n\thttps_port {tls}\n"
    configuration.write_text(CADDY.replace("{\n", options, 1))
    environment = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    environment |= {"TURNWISE_DOMAIN": "localhost", "TURNWISE_UPSTREAM": f"127.0.0.1:{port}"}
    command = (program, "run", "--config", configuration, "--adapter", "caddyfile")
    with running(*command, env=environment, stderr=subprocess.DEVNULL), connected(tls) as client:
        check_requests(client)
