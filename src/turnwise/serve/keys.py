"""Keys: who may use the service. A file holds salted hashes, so that whoever reads it has no key.

A line a key: its name, the salt and the SHA-256 of salt and key, in hexadecimal, separated by spaces. Keys are 256 random bits,
which nobody guesses however fast a hash is: a slow one would only make each request dear.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from turnwise.serve.settings import ServeError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LINE = re.compile(r"([A-Za-z0-9._-]{1,64}) ([0-9a-f]{32}) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class _Hashed:
    name: str
    salt: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """Who may use the service."""

    hashed: tuple[_Hashed, ...]

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Reads a file of hashed keys; empty lines and those that start with # are passed over.

        Raises:
            ServeError: if it cannot be read, a line is no key, or there is none.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ServeError(f"the keys in {path} cannot be read: {error}") from error
        found = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise ServeError(
                    f"{path}, line {number} is no key: `turnwise serve-key NAME --keys {path}` writes lines that are"
                )
            found.append(_Hashed(match[1], bytes.fromhex(match[2]), bytes.fromhex(match[3])))
        if not found:
            raise ServeError(
                f"{path} holds no key, so nobody could ask: make one by `turnwise serve-key NAME --keys {path}`"
            )
        return cls(tuple(found))

    def name_of(self, key: str) -> str | None:
        """Whose key this is; None: nobody's. Takes as long for a wrong key as for a right one."""
        given = key.encode(errors="surrogateescape")
        name = None
        for each in self.hashed:
            if hmac.compare_digest(_digest(each.salt, given), each.digest):
                name = each.name
        return name


def add_key(path: Path, name: str) -> str:
    """Makes a key, writes its hash to a file, and gives the key, which is kept nowhere.

    Args:
        path: the file, which is made where there is none, readable for its owner alone.
        name: whose key it is.

    Raises:
        ServeError: if the name is taken or no name, or the file cannot be read or written.
    """
    if _NAME.fullmatch(name) is None:
        raise ServeError(f"{name!r} cannot name a key: take up to 64 letters, digits, '.', '_' and '-'")
    if (
        path.exists()
        and path.read_text(encoding="utf-8").strip()
        and name in {each.name for each in Keys.read(path).hashed}
    ):
        raise ServeError(f"{path} has a key of the name {name!r}: take another name, or remove that line first")
    key, salt = "tw-" + secrets.token_urlsafe(32), secrets.token_bytes(16)
    try:
        path.touch(0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{name} {salt.hex()} {_digest(salt, key.encode()).hex()}\n")
    except OSError as error:
        raise ServeError(f"the key cannot be written to {path}: {error}") from error
    return key


def _digest(salt: bytes, key: bytes) -> bytes:
    return hashlib.sha256(salt + key).digest()
