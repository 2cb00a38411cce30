"""Run a command where only the loopback interface exists, and report the names that it tries to resolve.

`python -m tests.helpers.isolated HOME COMMAND…` must run as root in its own network and mount namespaces (see
`run_isolated`). It prints a JSON object on its last line: the exit status, the DNS queries, and the files left in HOME.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT

NAMESPACES = ("unshare", "--user", "--map-root-user", "--net", "--mount")


def run_isolated(home: Path, *command: object) -> dict[str, Any]:
    """Run a command in namespaces with their own resolver and an empty home folder; skip where that is not allowed."""
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("this system does not let users create network namespaces")
    home.mkdir()
    words = [*NAMESPACES, sys.executable, "-m", "tests.helpers.isolated", home, *command]
    completed = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return result


def _main(home: Path, command: list[str]) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    resolver = home.with_name(f"{home.name}.resolver")
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    subprocess.run(["mount", "--bind", str(resolver), os.path.realpath("/etc/resolv.conf")], check=True)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    queries: list[str] = []
    threading.Thread(target=_record, args=(server, queries), daemon=True).start()
    temporary = home / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary)}
    for name in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY", "HF_HUB_OFFLINE"):
        environment.pop(name, None)
    completed = subprocess.run(command, env=environment, stdout=sys.stderr)
    files = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    sys.stdout.write(json.dumps({"status": completed.returncode, "queries": queries, "files": files}) + "\n")


def _record(server: socket.socket, queries: list[str]) -> None:
    """Note the names of DNS queries, and answer that they do not exist."""
    while True:
        query, sender = server.recvfrom(512)
        labels, position = [], 12
        while size := query[position]:
            labels.append(query[position + 1 : position + 1 + size].decode())
            position += size + 1
        queries.append(".".join(labels))
        server.sendto(query[:2] + b"\x81\x83" + query[4:], sender)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
