"""Evaluations that cannot be run as requested are reported, not skipped silently."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turnwise import evaluate
from turnwise.core.errors import EvaluationError
from turnwise.models.loading import wrap_model


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        folder = tmp_path / "intents_csv" / name
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            (folder / f"{split}.csv").write_text(
                "text,intent\n" + "".join(f"{split} {n},{'ab'[n % 2]}\n" for n in range(8))
            )
    return tmp_path


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[float(text.count(letter) + 1) for letter in "aeiourst0123"] for text in texts])


class Longest:
    """A re-ranker."""

    def score(self, context: list[str], candidates: list[str]) -> np.ndarray:
        return np.array([float(len(candidate)) for candidate in candidates])


def test_a_requested_data_set_that_is_missing_is_named(data: Path) -> None:
    assert {row.dataset for row in evaluate(letters, data, tasks=["intents"], datasets=["first"]).rows} == {"first"}
    with pytest.raises(EvaluationError, match=r"holds no data set for intents among frist$"):
        evaluate(letters, data, tasks=["intents"], datasets=["frist", "second"])


def test_an_unsuitable_model_is_distinguished_from_missing_data(data: Path) -> None:
    with pytest.raises(
        EvaluationError, match="no protocol of intents can be run on longest: prototypes: the model does not have"
    ):
        evaluate(Longest(), data, tasks=["intents"], name="longest")


def test_compression_is_only_for_models_with_templates(data: Path) -> None:
    """Of others it is not left out, as fine-tuning is of a function: nobody expects it of them."""
    plain = wrap_model(letters, "letters")
    assert plain.encoder is not None
    before = evaluate(plain, data, tasks=["intents"], datasets=["first"])
    after = evaluate(replace(plain, variants={"retrieved": plain}), data, tasks=["intents"], datasets=["first"])
    assert set(before.facts["left out"]) == set(after.facts["left out"]) == {"fine-tuned intents"}
    added = {row.setting for row in after.rows} - {row.setting for row in before.rows}
    assert added == {"1-NN, compressed, templates retrieved"}
