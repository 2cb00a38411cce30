"""Options of objectives that are rejected, by the name of the option."""

from typing import Any

import pytest

from turnwise.core.errors import RecipeError
from turnwise.objectives.registry import OBJECTIVES, make_objective


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dialoguecse", {"context_turns": 0}, "context_turns must be 1 or more, got 0"),
        ("dialoguecse", {"negatives": 0}, "negatives must be 1 or more"),
        ("dialoguecse", {"negatives": -1}, "negatives must be 0 or more, got -1"),
        ("labelled", {"prototype_weight": 0}, "both 0"),
        ("labelled", {"contrastive_weight": -1}, "contrastive_weight must be 0 or more"),
        ("labelled", {"utterances": 1}, "utterances must be 2 or more"),
        ("labelled", {"same_domain": 1.5}, "same_domain must be at most 1"),
        ("pairs", {"history": 0}, "history must be 1 or more, got 0"),
        ("post-training", {"mask_fraction": 0}, "mask_fraction must be positive"),
        ("post-training", {"length": 7}, "length must be 8 or more"),
        ("post-training", {"max_masked": -1}, "max_masked must be 0 or more"),
        ("post-training", {"next_sentence_weight": -1}, "next_sentence_weight must be 0 or more"),
        ("tadse", {"template_temperature": 0}, "template_temperature must be positive"),
        ("tadse", {"pair_temperature": -1}, "pair_temperature must be positive"),
        ("tadse", {"pair_weight": -1}, "pair_weight must be 0 or more"),
        ("tadse", {"min_slots": -1}, "min_slots must be 0 or more"),
        ("tadse", {"negatives": "pattern"}, "negatives must be 'utterances', 'templates' or 'balanced', got 'pattern'"),
        ("tadse", dict.fromkeys(("utterance_weight", "template_weight", "pair_weight"), 0), "must be positive"),
        ("response-selection", {"negatives": 0}, "negatives must be 1 or more, got 0"),
        ("response-selection", {"random": 0.0}, "one of them must be positive"),
        ("response-selection", {"mined": -1.0}, "mined must be 0 or more"),
        ("search", {"window": 2}, "window must be 3 or more, got 2"),
        ("deletion", {"form": "hinge"}, "form must be 'sigmoid' or 'softmax'"),
        *(
            ("wmdc", {"windows": windows}, "windows must be different numbers of turns")
            for windows in ([], [0, 1], [1, 1], [200])
        ),
        ("wmdc", {"windows": 1}, "windows must be a list, got 1"),
        ("wmdc", {"windows": ["one"]}, "windows must be a whole number, got 'one'"),
        ("wmdc", {"heads_start": "zero"}, "heads_start must be"),
        ("wmdc", {"reweight": 3}, "reweight must be true or false"),
        ("wmdc", {"temperature": "warm"}, "temperature must be a number"),
        ("wmdc", {"window": [1]}, r"window is unknown\. Did you mean windows\?"),
        ("magic", {}, "has no objective 'magic': choose from dse"),
    ],
)
def test_invalid_options_are_rejected(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_objective(name, options)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if hasattr(OBJECTIVES[name], "temperature")])
@pytest.mark.parametrize("temperature", [0, -1])
def test_temperatures_are_positive(name: str, temperature: float) -> None:
    with pytest.raises(RecipeError, match="temperature must be positive"):
        make_objective(name, {"temperature": temperature})
