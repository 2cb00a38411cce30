"""Nothing contacts a network, or leaves files in the home folder, unless the user asks for it.

Dependencies report their use some seconds after they are loaded: onnxruntime to its maker, OpenVINO to an analytics
service. Both also write files at once.
"""

import sys
from pathlib import Path

import pytest

from tests.helpers.isolated import run_isolated

#: Seconds to wait for a name to be resolved.
WAIT = 10

SERVICE = f"""
import json, subprocess, sys, time, urllib.request
model = "turnwise-small-int8"
service = subprocess.Popen([sys.executable, "-m", "turnwise", "serve", "--model", model, "--port", "8000"])
body = json.dumps({{"model": model, "input": ["where is my parcel?"]}}).encode()
request = urllib.request.Request("http://127.0.0.1:8000/v1/embeddings", body, {{"Content-Type": "application/json"}})
for attempt in range(600):
    try:
        assert len(json.load(urllib.request.urlopen(request))["data"]) == 1
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("the service did not answer")
time.sleep({WAIT})
service.terminate()
service.wait()
"""

LIBRARY = f"""
import time
from turnwise import Encoder, IntentClassifier
texts, intents = ["cancel it", "stop it", "pay it", "my bill"], ["cancel", "cancel", "pay", "pay"]
classifier = IntentClassifier("turnwise-small-int8").fit(texts, intents)
assert classifier.predict(["pay my bill"]) == ["pay"]
Encoder.load("turnwise-small-int8", runtime="openvino").encode(["hello"])
time.sleep({WAIT})
"""

REPORTING = """
import socket
try:
    socket.getaddrinfo("example.test", 80)
except OSError:
    pass
"""


@pytest.mark.parametrize("program", [SERVICE, LIBRARY], ids=["service", "library"])
def test_nothing_is_resolved_and_no_file_is_left(program: str, tmp_path: Path) -> None:
    result = run_isolated(tmp_path / "home", sys.executable, "-c", program)
    assert result == {"status": 0, "queries": [], "files": []}


def test_the_check_sees_a_query(tmp_path: Path) -> None:
    result = run_isolated(tmp_path / "home", sys.executable, "-c", REPORTING)
    assert "example.test" in result["queries"]
