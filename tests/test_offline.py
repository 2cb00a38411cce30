"""Nothing contacts a network, or leaves files in the home folder, unless the user asks for it.

Dependencies report their use some seconds after they are loaded: onnxruntime to its maker, OpenVINO to an analytics
service. Both also write files at once.
"""

import sys
from pathlib import Path

from tests.helpers.isolated import run_isolated

#: Serves a model, uses it from Python as well, and waits until names would have been resolved.
PROGRAM = """
import json, subprocess, sys, time, urllib.request
from turnwise import Encoder, IntentClassifier
model = "turnwise-small-int8"
service = subprocess.Popen([sys.executable, "-m", "turnwise", "serve", "--model", model, "--port", "8000"])
texts, intents = ["cancel it", "stop it", "pay it", "my bill"], ["cancel", "cancel", "pay", "pay"]
assert IntentClassifier(model).fit(texts, intents).predict(["pay my bill"]) == ["pay"]
Encoder.load(model, runtime="openvino").encode(["hello"])
body = json.dumps({"model": model, "input": ["where is my parcel?"]}).encode()
request = urllib.request.Request("http://127.0.0.1:8000/v1/embeddings", body, {"Content-Type": "application/json"})
for attempt in range(600):
    try:
        assert len(json.load(urllib.request.urlopen(request))["data"]) == 1
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("the service did not answer")
time.sleep(10)
service.terminate()
service.wait()
"""

REPORTING = """
import socket
try:
    socket.getaddrinfo("example.test", 80)
except OSError:
    pass
"""


def test_nothing_is_resolved_and_no_file_is_left(tmp_path: Path) -> None:
    result = run_isolated(tmp_path / "home", sys.executable, "-c", PROGRAM)
    assert result == {"status": 0, "queries": [], "files": []}


def test_the_check_sees_a_query(tmp_path: Path) -> None:
    result = run_isolated(tmp_path / "home", sys.executable, "-c", REPORTING)
    assert "example.test" in result["queries"]
