"""A project, which `turnwise start` makes: a log's conversations and all made of them, with a `turnwise.yaml`.

What is derived from the log is in `builds/N`, and classifiers are in `intents/N`; `turnwise.yaml` names those in use.
Replacing that file therefore switches everything at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from turnwise.core.errors import ProjectError
from turnwise.core.files import write_atomic
from turnwise.core.model_names import DEFAULT_ENCODER

DESCRIPTION = "turnwise.yaml"  # the file that describes a project
Part = Literal["store", "map", "responses", "conversations", "intents"]  # the folders of a project
Activity = Literal["updating", "serving"]
ANSWERS = "answers.jsonl"  # canned answers

_HEADER = """\
# A turnwise project. Inside this folder, commands such as `turnwise serve`, `turnwise map` and `turnwise intents fit`
# need no paths. `turnwise start LOG` adds a newer log, read in the way that is described here.
"""


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its settings."""

    folder: Path
    model: str = DEFAULT_ENCODER  # of all parts
    reranker: str | None = None  # that `turnwise serve` uses
    reader: str = "auto"  # of logs: one of `turnwise corpus list`, or 'auto'
    options: tuple[str, ...] = ()  # of the reader, as `key=value`
    steps: tuple[str, ...] = ("log",)  # of hygiene
    regions: tuple[str, ...] = ()  # countries of phone numbers to mask
    mask_patterns: tuple[str, ...] = ()  # further kinds to mask, as `NAME=REGEX`
    mask_lists: tuple[str, ...] = ()  # further kinds to mask, as `NAME=FILE` with absolute paths
    mask_entities: str | None = None  # the named-entity recogniser whose entities are masked
    pseudonyms: bool = False  # whether masks are numbered
    build: int = 0  # the build in use; 0: none yet
    classifier: int = 0  # the intent classifier in use; 0: none yet

    def part(self, name: Part) -> Path:
        """Return the folder of a part, whether or not it exists."""
        if name == "intents":
            return self.classifiers / str(self.classifier)
        return self.folder / "builds" / str(self.build) / name

    @property
    def classifiers(self) -> Path:
        """The folder of all classifiers, whether or not it exists."""
        return self.folder / "intents"

    @property
    def answers(self) -> Path:
        """The journal of canned answers, whether or not it exists."""
        return self.folder / ANSWERS

    @contextmanager
    def lock(self, activity: Activity, holder: str) -> Iterator[None]:
        """Let no other process do the same with the project; raise ProjectError with its holder if one does already."""
        from filelock import FileLock, Timeout

        self._make_folder()
        lock, note = FileLock(self.folder / f".{activity}.lock"), self.folder / f".{activity}"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ProjectError(f"{self.holder(activity)} is {activity} {self.folder}: wait until it ends") from None
        try:
            write_atomic(note, holder)
            yield
        finally:
            note.unlink(missing_ok=True)
            lock.release()

    def holder(self, activity: Activity) -> str | None:
        """Return who is doing something with the project, or None if nobody is."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.folder / f".{activity}.lock", timeout=0):
                return None
        except Timeout:
            note = self.folder / f".{activity}"
            return note.read_text(encoding="utf-8") if note.exists() else "another process"

    def update(self, **changes: Any) -> "Project":
        """Change settings on disk, where other processes may have changed others, and return them all."""
        from filelock import FileLock

        self._make_folder()
        with FileLock(self.folder / f".{DESCRIPTION}.lock"):
            current = Project.load(self.folder) if (self.folder / DESCRIPTION).is_file() else self
            updated = replace(current, **changes)
            updated.save()
        return updated

    def save(self) -> None:
        """Write `turnwise.yaml`; create the folder if it is missing."""
        import yaml

        values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        del values["folder"]
        self._make_folder()
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        write_atomic(self.folder / DESCRIPTION, _HEADER + text, durable=True)

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # only the owner may read conversations

    @classmethod
    def load(cls, folder: Path) -> "Project":
        """Read the project in a folder."""
        import yaml

        path = folder / DESCRIPTION
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            raise ProjectError(f"{folder} is not a project: it has no {DESCRIPTION}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ProjectError(f"{path} cannot be read, repair it: {error}") from None
        if not isinstance(values, dict):
            raise ProjectError(f"{path} must consist of lines `key: value`")
        from turnwise.core.validation import InvalidKeyError, check_keys, validate

        kinds: dict[str, Any] = {each.name: each.type for each in fields(cls) if each.name != "folder"}
        try:
            check_keys(values, list(kinds))
            return cls(folder, **{key: validate(key, kinds[key], value) for key, value in values.items()})
        except InvalidKeyError as error:
            raise ProjectError(f"{path}: {error}") from None

    @classmethod
    def find(cls, start: Path | None = None) -> "Project | None":
        """Return the project that a folder, by default the current one, is in; None if it is in none."""
        start = Path.cwd() if start is None else start.absolute()
        folder = next((each for each in (start, *start.parents) if (each / DESCRIPTION).is_file()), None)
        return None if folder is None else cls.load(folder)
