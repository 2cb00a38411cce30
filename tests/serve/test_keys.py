"""API keys: authentication, and the key file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.served import is_error, served
from turnwise.cli import app
from turnwise.core.errors import TurnwiseError
from turnwise.serve.app import create_app
from turnwise.serve.settings import KeyStore, ServeSettings, add_key


def name_of(keys: KeyStore, key: str) -> str | None:
    found = keys.find(key)
    return None if found is None else found.name


def test_key_file_contains_only_hashes(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    first, second = add_key(path, "first"), add_key(path, "second.one")
    assert first != second
    assert path.stat().st_mode & 0o077 == 0
    written = path.read_text()
    assert first not in written and first.removeprefix("tw-") not in written
    keys = KeyStore.read(path)
    assert (name_of(keys, first), name_of(keys, second)) == ("first", "second.one")
    for wrong in ("", "tw-", first[:-1], first + "x", first.upper(), "first"):
        assert keys.find(wrong) is None


@given(st.text())
def test_random_texts_are_not_keys(tmp_path_factory: pytest.TempPathFactory, given_key: str) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    add_key(path, "one")
    assert KeyStore.read(path).find(given_key) is None


def test_invalid_key_files(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    with pytest.raises(TurnwiseError, match="cannot be read"):
        KeyStore.read(path)
    path.write_text("\n# empty\n")
    with pytest.raises(TurnwiseError, match="has no keys"):
        KeyStore.read(path)
    path.write_text("# one\nmonitoring secret\n")
    with pytest.raises(TurnwiseError, match=":2 is not a key"):
        KeyStore.read(path)
    with pytest.raises(TurnwiseError, match=":2 is not a key"):
        create_app(ServeSettings(keys=path))
    path.unlink()
    add_key(path, "one")
    with pytest.raises(TurnwiseError, match="already has a key named"):
        add_key(path, "one")
    for name in ("", "a b", "a\nb", "x" * 65):
        with pytest.raises(TurnwiseError, match="not a valid key name"):
            add_key(path, name)


def test_command(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    arguments = ["serve-key", "page", "--keys", str(path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert name_of(KeyStore.read(path), done.stdout.strip()) == "page"
    assert isinstance(CliRunner().invoke(app, arguments).exception, TurnwiseError)


def test_routes_need_a_key(tiny_folder, tmp_path) -> None:
    path = tmp_path / "keys.txt"
    key = add_key(path, "one")
    with served(ServeSettings(model=str(tiny_folder("bert")), keys=path)) as client:
        for path_without_key in ("/", "/about", "/health", "/ready", "/openapi.json", "/page/app.js"):
            assert client.get(path_without_key).status_code == 200
        assert client.get("/about").json()["needs_key"] is True
        described = client.get("/openapi.json").json()["paths"]
        for route, methods in described.items():
            for method, operation in methods.items():
                needs = operation["security"] != []
                answer = client.request(method, route.replace("{intent}", "x"))
                assert (answer.status_code == 401) == needs, route
                if needs:
                    assert is_error(answer, 401, "invalid_api_key")
                    assert answer.headers["www-authenticate"] == "Bearer"
        assert is_error(client.get("/nowhere"), 401)
        body = {"inputs": ["a"]}
        for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"x-api-key": key}):
            assert client.post("/embed", json=body, headers=headers).status_code == 200
        for headers in (
            {"authorization": f"Basic {key}"},
            {"authorization": "Bearer x"},
            {"x-api-key": key[:-1]},
            {"x-api-key": "é"},
        ):
            raw = {name: value.encode("utf-8") for name, value in headers.items()}
            assert is_error(client.post("/embed", json=body, headers=raw), 401)
        # after a reload, an added key is valid and a removed one is not
        new = add_key(path, "two")
        path.write_text(path.read_text().splitlines()[1] + "\n")
        assert client.post("/reload", json={}, headers={"x-api-key": key}).status_code == 200
        assert client.post("/embed", json=body, headers={"x-api-key": key}).status_code == 401
        assert client.post("/embed", json=body, headers={"x-api-key": new}).status_code == 200


def test_read_only_keys(tiny_folder, tmp_path) -> None:
    path = tmp_path / "keys.txt"
    writing = add_key(path, "editor")
    arguments = ["serve-key", "reader", "--keys", str(path), "--read-only"]
    reading = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout.strip()
    with served(ServeSettings(model=str(tiny_folder("bert")), keys=path)) as client:
        operations = [
            (route, method.upper())
            for route, methods in client.get("/openapi.json").json()["paths"].items()
            for method in methods
        ]
        denied = set()
        for route, method in operations:
            given = {"headers": {"x-api-key": reading}, **({"json": {}} if method == "POST" else {})}
            answer = client.request(method, route, **given)
            if answer.status_code == 403:
                assert is_error(answer, 403, "read_only_key")
                denied.add(route)
        assert denied == {
            *(f"/map/{change}" for change in ("name", "merge", "split", "label", "undo", "redo", "fit")),
            *("/intents/examples", "/intents/examples/remove", "/respond/answers", "/reload"),
        }
        assert client.post("/reload", headers={"x-api-key": writing}, json={}).status_code == 200


def test_wrong_keys_are_limited(tiny_folder, tmp_path) -> None:
    path = tmp_path / "keys.txt"
    key = add_key(path, "one")
    with served(ServeSettings(model=str(tiny_folder("bert")), keys=path)) as client:
        wrong = [client.get("/overview", headers={"x-api-key": f"tw-{number}"}) for number in range(25)]
        assert [answer.status_code for answer in wrong] == [401] * 20 + [429] * 5
        assert is_error(wrong[-1], 429, "too_many_keys") and 1 <= int(wrong[-1].headers["retry-after"]) <= 60
        assert client.get("/overview").status_code == 401
        assert client.get("/overview", headers={"x-api-key": key}).status_code == 200
