"""The readers by name, with the licence, home page, published size and downloads of each corpus (`registry.yaml`)."""

import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError, did_you_mean
from turnwise.core.files import package_yaml
from turnwise.corpus.hygiene.edits import HolePolicy
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.encodings import DETECT
from turnwise.corpus.storage.rejections import CorpusCounts

SUMS = "SHA256SUMS"  # the file, in the folder of a download, with the checksums of all complete files

#: Explanations of the options that several readers have; the docstrings of their functions explain the others.
_SHARED_OPTIONS = {
    "bots": "messages of bots are the system's, or left out: 'skip'.",
    "pause": "hours without a message that end a dialogue outside threads; 0: never.",
    "private": "true: keep private notes.",
    "speakers": "names and their roles: 'Anna=system,*=user'; role words are known, others are numbered.",
}

#: Suffixes of the files that `corpus fetch` keeps beside a download.
OWN_SUFFIXES = (".part", ".part.json", ".corrupt", ".unpacking", ".unpacked")


@dataclass(frozen=True, slots=True)
class Download:
    """A file of a corpus."""

    url: str
    sha256: str | None = None  # if the publisher states none, the first one seen is recorded, and must be seen later
    name: str | None = None  # in the destination; None: the last part of the URL's path

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError as error:
            raise CorpusError(f"{self.url!r} is not a valid URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CorpusError(f"{self.url!r} cannot be fetched: only http:// and https:// URLs can")
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise CorpusError(f"{self.url}: a SHA-256 sum has 64 hexadecimal digits, got {self.sha256!r}")
        name = self.file_name
        if name in ("", ".", "..", SUMS) or name.endswith(OWN_SUFFIXES) or re.search(r"[/\\\x00-\x1f\x7f]", name):
            raise CorpusError(f"{self.url}: the file name {name!r} is not allowed; give the download another `name`")

    @property
    def file_name(self) -> str:
        """The name of the file in the destination."""
        return PurePosixPath(unquote(urlsplit(self.url).path)).name if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class Reader:
    """A format that turnwise reads; the head of `registry.yaml` explains the attributes."""

    name: str
    title: str
    function: str
    licence: str = ""
    home: str = ""
    published: CorpusCounts | None = None
    downloads: tuple[Download, ...] = ()
    encoding: str = "utf-8"
    holes: HolePolicy = "keep"

    @classmethod
    def from_yaml(cls, name: str, entry: Mapping[str, Any]) -> "Reader":
        """Return the reader that an entry of `registry.yaml` describes."""
        of_logs = {} if "home" in entry else {"encoding": DETECT, "holes": "split"}
        counts = {"published": CorpusCounts(**entry["published"])} if "published" in entry else {}
        downloads = tuple(Download(**download) for download in entry.get("downloads", ()))
        return cls(**{"name": name, "function": f"{name}.read", **of_logs, **entry, **counts, "downloads": downloads})

    @property
    def is_log(self) -> bool:
        """Whether it reads people's own logs, rather than a public corpus."""
        return not self.home

    def _load_function(self) -> Callable[..., Iterator[Dialogue]]:
        module, _, name = self.function.partition(".")
        return getattr(importlib.import_module(f"turnwise.corpus.readers.{module}"), name)  # type: ignore[no-any-return]

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options that `--set` accepts: the keyword-only parameters of the reader's function."""
        parameters = inspect.signature(self._load_function()).parameters
        return {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}

    @property
    def help(self) -> str:
        """What the reader reads, and its options."""
        text = inspect.getdoc(self._load_function()) or ""
        names = [name for name in self.options if name in _SHARED_OPTIONS and f"\n    {name}: " not in text]
        heading = ["", "Options:"] if names and "Options:" not in text else []
        return "\n".join([text, *heading, *(f"    {name}: {_SHARED_OPTIONS[name]}" for name in names)])

    def parse_options(self, settings: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Convert `key=value` settings to the types of the options; some may be given more than once."""
        hints = typing.get_type_hints(self._load_function())
        options: dict[str, Any] = {}
        for name, value in settings:
            kind = hints.get(name, str)
            if kind == str | Sequence[str]:
                options[name] = (*options.get(name, ()), value)
            elif name in options:
                raise CorpusError(f"{name} is given more than once: keep one of {options[name]!r} and {value!r}")
            else:
                options[name] = _parse_option(name, kind, value)
        return options

    def read(self, source: CorpusSource, **options: Any) -> Iterator[Dialogue]:
        """Read the dialogues of a source; raise a CorpusError if the reader does not have such an option."""
        function = self._load_function()
        for name, value in options.items():
            if name not in self.options:
                has = ", ".join(self.options) or "none"
                raise CorpusError(f"reader {self.name} has no option {name!r}: it has {has}")
            kind = typing.get_type_hints(function)[name]
            if typing.get_origin(kind) is typing.Literal and value not in typing.get_args(kind):
                choices = " or ".join(repr(choice) for choice in typing.get_args(kind) if choice)
                raise CorpusError(f"{name} must be {choices}, got {value!r}")
        return function(source, **options)


def _parse_option(name: str, kind: Any, value: str) -> Any:
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise CorpusError(f"{name} must be true or false, got {value!r}")
        return value.lower() == "true"
    if kind is float:
        try:
            return float(value)
        except ValueError:
            raise CorpusError(f"{name} must be a number, got {value!r}") from None
    if isinstance(kind, types.UnionType):  # Mapping | None
        pairs = [pair.partition("=") for pair in value.split(",")]
        if not all(key.strip() and equals and target.strip() for key, equals, target in pairs):
            raise CorpusError(f"{name}={value!r}: expected pairs, as in {name}=bob=system,*=user")
        return {key.strip(): target.strip() for key, _, target in pairs}
    return value


READERS: Mapping[str, Reader] = types.MappingProxyType(
    {name: Reader.from_yaml(name, entry) for name, entry in package_yaml("turnwise.corpus", "registry.yaml").items()}
)


def get_reader(name: str) -> Reader:
    """Return the reader of that name; raise a CorpusError if there is none."""
    if name not in READERS:
        raise CorpusError(
            f"there is no reader {name!r}.{did_you_mean(name, READERS)} `turnwise corpus list` shows all of them"
        )
    return READERS[name]
