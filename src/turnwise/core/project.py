"""A project, which `turnwise start` makes: a log's conversations and all made of them, with a `turnwise.yaml`."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from turnwise.core.errors import ProjectError
from turnwise.core.files import write_atomic
from turnwise.core.model_names import DEFAULT_ENCODER

DESCRIPTION = "turnwise.yaml"  # the file that describes a project
Part = Literal["store", "map", "responses", "conversations", "intents"]  # the folders of a project

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

    def part(self, name: Part) -> Path:
        """Return the folder of a part, whether or not it exists."""
        return self.folder / name

    def save(self) -> None:
        """Write `turnwise.yaml`; create the folder if it is missing."""
        import yaml

        values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        del values["folder"]
        self.folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        write_atomic(self.folder / DESCRIPTION, _HEADER + text)

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
            raise ProjectError(f"{path} cannot be read: {error}") from None
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
