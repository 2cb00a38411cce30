"""Configuration of the service: what is served, limits, and API keys.

The key file has one line per key: its name, the salt, and the SHA-256 of salt and key, in hexadecimal, separated by
spaces; `read` at the end marks a key that may change nothing. Keys are 256 random bits, which nobody can guess however
fast the hash is; a slow hash would only slow down every request.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.core.errors import TurnwiseError
from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.project import Project
from turnwise.models.backbone.source import Runtime

_KEY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_LINE = re.compile(rf"({_KEY_NAME.pattern}) ([0-9a-f]{{32}}) ([0-9a-f]{{64}})( read)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on requests."""

    body: int = 2_000_000  # bytes of a request's body
    texts: int = 1_000  # texts per request, and turns per conversation
    characters: int = 20_000  # characters per text
    request_characters: int = 500_000  # characters of all texts of a request
    parts: int = 2_000  # texts per request and their parts, if several intents are searched for
    queue: int = 4_096  # texts waiting to be encoded; a request that would exceed it is rejected with 503
    batch_tokens: int = 4_096  # per forward pass: enough to outweigh its overhead, few enough to be done soon
    seconds: float = 30.0  # to answer a request
    body_seconds: float = 10.0  # for a client to send a body
    header_seconds: float = 10.0  # for a client to send the headers
    connections: int = 1_000  # open at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What is served, and to whom."""

    project: Path | None = None  # folder of a project, whose parts are the defaults of what follows
    model: str = ""  # the encoder: a packaged model, a folder, or a Hugging Face id; empty: the default
    runtime: Runtime | None = None  # of an encoder that is an ONNX model; None: onnxruntime
    intents: Path | None = None  # folder of an `IntentClassifier`
    responses: str | None = None  # table of a `Responder`: a folder, or an address on object storage
    conversations: str | None = None  # table of `Conversations`
    reranker: str | None = None  # the re-ranker: a packaged model, a folder, or a Hugging Face id
    map: Path | None = None  # folder of a map, which can be labelled
    report: Path | None = None  # folder of an evaluation, with report.html
    keys: Path | None = None  # file of hashed API keys; None: no key is needed
    cors: tuple[str, ...] = ()  # origins whose pages may use the service
    hosts: tuple[str, ...] = ()  # host names that requests may use; empty: any
    log_texts: bool = False  # whether the log contains request bodies
    limits: Limits = field(default_factory=Limits)

    def resolved(self) -> "ServeSettings":
        """Return the settings with the parts that the project has now, and the default encoder, where none is given."""
        if self.project is None:
            return self if self.model else replace(self, model=DEFAULT_ENCODER)
        project = Project.load(self.project)
        folders = {name: project.part(name) for name in ("intents", "map", "responses", "conversations")}
        parts: dict[str, Any] = {name: folder for name, folder in folders.items() if folder.is_dir()}
        parts |= {name: str(parts[name]) for name in ("responses", "conversations") if name in parts}
        parts |= {"model": project.model, "reranker": project.reranker}
        return replace(self, **{name: value for name, value in parts.items() if not getattr(self, name)})

    def served(self) -> dict[str, str]:
        """Return what is served, by the names of the options, for the log."""
        names = (
            "project",
            "model",
            "runtime",
            "intents",
            "responses",
            "conversations",
            "reranker",
            "map",
            "report",
            "keys",
        )
        return {name: str(value) for name in names if (value := getattr(self, name)) is not None}


class ApiKey(NamedTuple):
    """A hashed API key."""

    name: str
    salt: bytes
    digest: bytes
    read_only: bool


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Hashed API keys."""

    keys: tuple[ApiKey, ...]

    @classmethod
    def read(cls, path: Path) -> "KeyStore":
        """Read a key file; blank lines and lines that start with # are skipped."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TurnwiseError(f"the key file {path} cannot be read: {error}") from error
        keys = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _KEY_LINE.fullmatch(line.strip())
            if match is None:
                raise TurnwiseError(
                    f"{path}:{number} is not a key: add keys with `turnwise serve-key NAME --keys {path}`"
                )
            keys.append(ApiKey(match[1], bytes.fromhex(match[2]), bytes.fromhex(match[3]), match[4] is not None))
        if not keys:
            raise TurnwiseError(f"{path} has no keys: add one with `turnwise serve-key NAME --keys {path}`")
        return cls(tuple(keys))

    def find(self, key: str) -> ApiKey | None:
        """Return a key, or None if it is unknown, in the same time for any key."""
        given = key.encode(errors="surrogateescape")
        found = None
        for known in self.keys:
            if hmac.compare_digest(_digest(known.salt, given), known.digest):
                found = known
        return found


def add_key(path: Path, name: str, *, read_only: bool = False) -> str:
    """Create a key, append its hash to a file for its owner only, and return the key, which is stored nowhere else."""
    if _KEY_NAME.fullmatch(name) is None:
        raise TurnwiseError(f"{name!r} is not a valid key name: use up to 64 letters, digits, '.', '_' and '-'")
    has_keys = path.exists() and path.read_text(encoding="utf-8").strip()
    if has_keys and name in {known.name for known in KeyStore.read(path).keys}:
        raise TurnwiseError(f"{path} already has a key named {name!r}: choose another name, or remove that line first")
    key, salt = "tw-" + secrets.token_urlsafe(32), secrets.token_bytes(16)
    try:
        path.touch(0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{name} {salt.hex()} {_digest(salt, key.encode()).hex()}{' read' * read_only}\n")
    except OSError as error:
        raise TurnwiseError(f"the key cannot be written to {path}: {error}") from error
    return key


def _digest(salt: bytes, key: bytes) -> bytes:
    return hashlib.sha256(salt + key).digest()
