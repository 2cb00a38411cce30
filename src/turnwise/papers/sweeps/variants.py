"""Variants: the methods of a sweep side by side, each a change of its recipe or another way to judge the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.core.errors import TurnwiseError
from turnwise.core.options import OptionError, checked
from turnwise.papers.sweeps.grid import changes

#: Keys of a recipe that say which model training starts from.
STARTS = frozenset({"backbone", "layers", "pooling"})

#: Besides its name: how a variant's keys are called in a sweep's file, and of what kind they are.
_KEYS: dict[str, Any] = {
    "recipe": str,
    "set": object,
    "trained": bool,
    "stage": Literal["first"],
    "pooling": Literal["cls", "mean", "max", "first-last"],
    "postprocess": Literal["flow", "whitening"],
    "word_vectors": bool,
}


class VariantError(TurnwiseError):
    """A variant says something that cannot be; the message says which, and how to write it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A method among those of a sweep.

    Attributes:
        name: what tables and curves call it.
        recipe: a packaged recipe's name, or a YAML file; None: the sweep's own.
        settings: what is changed of it, as `key=value`.
        trained: whether it is trained at all; if not, its backbone is judged as it is.
        stage: 'first': the model that the recipe's first stage leaves is judged, instead of the finished one.
        pooling: 'cls', 'mean', 'max' or 'first-last', when it is judged; None: the model's own.
        postprocess: 'flow' or 'whitening', fitted on the corpus.
        word_vectors: whether it is averaged word vectors, trained on the corpus, and no encoder at all.
    """

    name: str
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    trained: bool = True
    stage: Literal["first"] | None = None
    pooling: Literal["cls", "mean", "max", "first-last"] | None = None
    postprocess: Literal["flow", "whitening"] | None = None
    word_vectors: bool = False

    def __post_init__(self) -> None:
        if self.word_vectors:
            excluded = {"recipe": self.recipe, "set": self.settings, "stage": self.stage, "pooling": self.pooling}
            given = [key for key, value in excluded.items() if value] + ([] if self.trained else ["trained"])
            if given:
                raise VariantError(f"{self.name}: word vectors have no {given[0]}; leave it out, or word_vectors")
        if not self.trained:
            self._expect_untrained()

    def _expect_untrained(self) -> None:
        """Refuses what would change nothing of a backbone as it is."""
        if self.stage is not None:
            raise VariantError(
                f"{self.name}: stage={self.stage} belongs to a training; leave it out, or trained: false"
            )
        effective = STARTS | ({"corpus_share"} if self.postprocess else set())
        idle = [key for key in self.keys if key not in effective]
        if idle:
            raise VariantError(
                f"{self.name}: {idle[0]} changes nothing of a model that is not trained; leave it out, or train it"
            )

    @property
    def keys(self) -> list[str]:
        """The keys of the recipe that it changes."""
        return [setting.partition("=")[0] for setting in self.settings]

    @property
    def learns(self) -> bool:
        """Whether a recipe is trained for it."""
        return self.trained and not self.word_vectors

    def description(self) -> str:
        """It in a line, for reports."""
        parts = [
            "averaged word vectors" if self.word_vectors else "",
            f"recipe {self.recipe}" if self.recipe else "",
            *self.settings,
            "" if self.trained else "not trained",
            f"after its {self.stage} stage" if self.stage else "",
            f"pooled by {self.pooling}" if self.pooling else "",
            f"post-processed by {self.postprocess}" if self.postprocess else "",
        ]
        return f"{self.name}: {', '.join(part for part in parts if part) or 'the recipe as it is'}"


def parse_variants(tree: Any) -> tuple[Variant, ...]:
    """Variants from what a sweep's file has under `variants`.

    Raises:
        VariantError: if a variant has another key than it may, or a value that cannot be.
    """
    if not isinstance(tree, dict) or not tree or not all(isinstance(name, str) and name.strip() for name in tree):
        raise VariantError("variants: expected names, each with what the variant is")
    return tuple(_variant(name, options) for name, options in tree.items())


def _variant(name: str, options: Any) -> Variant:
    options = {} if options is None else options
    if not isinstance(options, dict):
        raise VariantError(f"{name}: expected keys and values; a variant has {', '.join(_KEYS)}")
    unknown = next((key for key in options if key not in _KEYS), None)
    if unknown is not None:
        raise VariantError(f"{name}: a variant has no key {unknown!r}; it has {', '.join(_KEYS)}")
    try:
        found = {key: checked(key, _KEYS[key], value) for key, value in options.items()}
    except OptionError as error:
        raise VariantError(f"{name}: {error}") from None
    return Variant(name, settings=tuple(settings_of(found.pop("set", None), name)), **found)


def settings_of(given: Any, where: Any) -> list[str]:
    """Changes of a recipe as `key=value`, from what a file has under `set`: keys and values, or a list of such texts.

    Raises:
        VariantError: if it is neither.
    """
    if isinstance(given, Mapping):
        return changes(given)
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise VariantError(f"{where}: set: expected a list of texts, or keys and values")
    return given


def chosen(variants: Sequence[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    """The variants of some names, in the sweep's order.

    Raises:
        VariantError: if there is none of a name.
    """
    known = [variant.name for variant in variants]
    absent = [name for name in names if name not in known]
    if absent:
        which = f"choose from {', '.join(known)}" if known else "this sweep has none"
        raise VariantError(f"there is no variant {', '.join(map(repr, absent))}: {which}")
    return tuple(variant for variant in variants if variant.name in names)
