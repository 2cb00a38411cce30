"""Keys: who has one may ask, and the file that knows them holds none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.served import is_error, served
from turnwise.cli import app
from turnwise.serve.app import create_app
from turnwise.serve.settings import Keys, ServeError, ServeSettings, add_key


def test_a_key_is_known_and_its_file_does_not_hold_it(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    first, second = add_key(path, "first"), add_key(path, "second.one")
    assert first != second
    assert path.stat().st_mode & 0o077 == 0
    written = path.read_text()
    assert first not in written and first.removeprefix("tw-") not in written
    keys = Keys.read(path)
    assert (keys.name_of(first), keys.name_of(second)) == ("first", "second.one")
    for wrong in ("", "tw-", first[:-1], first + "x", first.upper(), "first"):
        assert keys.name_of(wrong) is None


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_nothing_made_up_is_a_key(tmp_path_factory: pytest.TempPathFactory, given_key: str) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    add_key(path, "one")
    assert Keys.read(path).name_of(given_key) is None


def test_what_is_wrong_with_a_file_of_keys_is_said(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    with pytest.raises(ServeError, match="cannot be read"):
        Keys.read(path)
    path.write_text("\n# nobody yet\n")
    with pytest.raises(ServeError, match="holds no key"):
        Keys.read(path)
    path.write_text("# one\nmonitoring secret\n")
    with pytest.raises(ServeError, match="line 2 is no key"):
        Keys.read(path)
    with pytest.raises(ServeError, match="line 2 is no key"):
        create_app(ServeSettings(keys=path))
    path.unlink()
    add_key(path, "one")
    with pytest.raises(ServeError, match="has a key of the name"):
        add_key(path, "one")
    for name in ("", "a b", "a\nb", "x" * 65):
        with pytest.raises(ServeError, match="cannot name a key"):
            add_key(path, name)


def test_the_command_prints_a_key_once(tmp_path) -> None:
    path = tmp_path / "keys.txt"
    asked = ["serve-key", "page", "--keys", str(path)]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert Keys.read(path).name_of(done.stdout.strip()) == "page"
    assert isinstance(CliRunner().invoke(app, asked).exception, ServeError)


def test_everything_but_the_page_and_the_pulse_needs_a_key(tiny_folder, tmp_path) -> None:
    path = tmp_path / "keys.txt"
    key = add_key(path, "one")
    with served(ServeSettings(model=str(tiny_folder("bert")), keys=path)) as client:
        for open_one in ("/", "/about", "/health", "/ready", "/openapi.json", "/page/app.js"):
            assert client.get(open_one).status_code == 200
        assert client.get("/about").json()["needs_key"] is True
        described = client.get("/openapi.json").json()["paths"]
        for route, methods in described.items():
            for method, told in methods.items():
                needs = told["security"] != []
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
        # a key that is added counts after a reload, one that is removed no longer
        new = add_key(path, "two")
        path.write_text(path.read_text().splitlines()[1] + "\n")
        assert client.post("/reload", json={}, headers={"x-api-key": key}).status_code == 200
        assert client.post("/embed", json=body, headers={"x-api-key": key}).status_code == 401
        assert client.post("/embed", json=body, headers={"x-api-key": new}).status_code == 200
