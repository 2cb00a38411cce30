"""Tests the readers of intent files: Rasa, Dialogflow, Amazon Lex, LUIS and CLU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import json_bytes, lay_out, layout_named
from tests.helpers.outcomes import Outcome
from turnwise.core.dialogue import Dialogue


def labels(outcome: Outcome) -> list[tuple[str, str | None]]:
    return [(dialogue.turns[0].text, dialogue.turns[0].intent) for dialogue in outcome.dialogues]


def slots(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(slot.name, slot.value) for slot in dialogue.turns[0].slots]


def rejections(outcome: Outcome) -> list[tuple[str, int | None, str]]:
    return [(each["file"], each["line"], each["reason"]) for each in outcome.rejected]


# ---- Rasa


def rasa(tmp_path: Path, try_import: Callable, nlu: str, **others: str) -> Outcome:
    files = {"nlu.yml": nlu, **{f"{name}.yml": content for name, content in others.items()}}
    return try_import("rasa", lay_out(tmp_path / "in", files))


def test_rasa_texts_with_yaml_syntax(tmp_path: Path, try_import: Callable):
    """In a block, only the first dash of a line is syntax."""
    outcome = rasa(
        tmp_path,
        try_import,
        """nlu:
- intent: "it's: quoted"
  examples: |
    - - a dash first
    - a colon: and "quotes" and 'others'
    -without a space
    - # no comment
    - grüße an 東京 🐐
    - | > % @ `
""",
    )
    assert outcome.rejected == ()
    assert [text for text, _ in labels(outcome)] == [
        "- a dash first",
        "a colon: and \"quotes\" and 'others'",
        "without a space",
        "# no comment",
        "grüße an 東京 🐐",
        "| > % @ `",
    ]
    assert {intent for _, intent in labels(outcome)} == {"it's: quoted"}


@pytest.mark.parametrize("name", ["yes", "no", "on", "5", "1.5", "true", "2024-05-01"])
def test_rasa_intent_names_are_texts(name: str, tmp_path: Path, try_import: Callable):
    """YAML 1.1 reads some of these as booleans, numbers and dates; Rasa does not."""
    outcome = rasa(tmp_path, try_import, f"nlu:\n- intent: {name}\n  examples: |\n    - quite so\n")
    assert labels(outcome) == [("quite so", name)]


@pytest.mark.parametrize(
    ("example", "text", "expected"),
    [
        ("from [Oslo](city) to [Rome](city)", "from Oslo to Rome", [("city", "Oslo"), ("city", "Rome")]),
        ("[Oslo](city)", "Oslo", [("city", "Oslo")]),
        ('to [LA]{"entity": "city", "role": "to", "value": "Los Angeles"}', "to LA", [("city.to", "LA")]),
        ('[two]{"entity": "count", "group": "1"} hens', "two hens", [("count", "two")]),
        ("the [billy](pet:goat)", "the billy", [("pet", "billy")]),
        ("brackets [alone] and (alone)", "brackets [alone] and (alone)", []),
        ("a [b [c](d)", "a [b c", [("d", "c")]),
        ("empty [](city)", "empty [](city)", []),
        ("nach [Köln](Ort) 🐐", "nach Köln 🐐", [("Ort", "Köln")]),
    ],
)
def test_rasa_entities(example: str, text: str, expected: list, tmp_path: Path, try_import: Callable):
    (dialogue,) = rasa(tmp_path, try_import, f"nlu:\n- intent: go\n  examples: |\n    - {example}\n").dialogues
    assert dialogue.turns[0].text == text
    assert slots(dialogue) == expected


def test_rasa_counts_what_entities_lose(tmp_path: Path, try_import: Callable):
    example = (
        '[LA]{"entity": "city", "value": "Los Angeles", "group": "1"} or [Rome]{"entity": "city", "value": "Rome"}'
    )
    outcome = rasa(tmp_path, try_import, f"nlu:\n- intent: go\n  examples: |\n    - {example}\n")
    assert outcome.manifest["left_out"] == {"groups of entities": 1, "synonyms of entities": 1}


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ('[x]{"entity": "a"', None),  # no annotation at all
        ('[x]{"role": "a"}', "'entity' is missing"),
        ("[x]{entity: a}", "not valid JSON"),
        ('[x]{"entity": 5}', "'entity' must be a non-blank string"),
        ('[x]{"entity": "a", "role": []}', "'role' must be a non-blank string"),
        ("[ ](city) x", "the slot 'city' has no value"),
    ],
)
def test_rasa_invalid_entity_rejects_one_example(
    example: str, reason: str | None, tmp_path: Path, try_import: Callable
):
    outcome = rasa(tmp_path, try_import, f"nlu:\n- intent: go\n  examples: |\n    - fine\n    - {example}\n")
    if reason is None:
        assert outcome.rejected == ()
        return
    assert labels(outcome) == [("fine", "go")]
    ((file, line, given),) = rejections(outcome)
    assert (file, line) == ("nlu.yml", 5)
    assert reason in given


def test_rasa_lines_of_rejected_examples(tmp_path: Path, try_import: Callable):
    outcome = rasa(
        tmp_path,
        try_import,
        """nlu:
- intent: a
  examples: |

    - one
    two

    -
- intent: b
  examples:
  - text: three
  - metadata: {}
  - [four]
  - five
- intent: c
- intent:
  examples: |
    - six
- examples: |
    - seven
- eight
""",
    )
    assert labels(outcome) == [("one", "a"), ("three", "b"), ("five", "b")]
    assert [(line, reason.removeprefix("not the expected layout: ")) for _, line, reason in rejections(outcome)] == [
        (6, "an example must start with '- '"),
        (8, "the example is empty"),
        (12, "'text' is missing"),
        (13, "expected keys and values, got a list"),
        (15, "'examples' is missing"),
        (16, "expected a text, got nothing"),
        (19, "expected a section with 'intent', 'synonym', 'regex', 'lookup'"),
        (21, "expected keys and values, got a text"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("nlu:\n- intent: a\n  examples: |\n    - x\n bad: [\n", 5, "not valid YAML"),
        ("nlu:\n- intent: [a\n  examples: b\n", 3, "did not find expected ',' or ']'"),
        ("nlu: *missing\n", 1, "found undefined alias"),
        ("nlu:\n- intent: \x07\n", None, "not allowed"),
        ("a: b\n---\nc: d\n", 2, "expected a single document"),
        ("- a\n- b\n", 1, "expected keys and values, got a list"),
        ("language: en\n", 1, "none of the keys nlu, stories, rules, responses"),
        ("[" * 200, 1, "nested too deeply"),
        ("nlu: greet\n", 1, "expected a list, got a text"),
        ("stories:\n- story: a\n  steps: b\n", 2, "expected a list, got a text"),
        ("stories:\n- story: a\n", 2, "'steps' is missing"),
        ("responses: []\n", 1, "expected keys and values, got a list"),
        ("responses:\n  utter_a: text\n", 2, "expected a list, got a text"),
    ],
)
def test_rasa_invalid_file_is_listed_with_its_line(
    content: str, line: int | None, reason: str, tmp_path: Path, try_import: Callable
):
    good = "nlu:\n- intent: a\n  examples: |\n    - fine\n"
    path = lay_out(tmp_path / "alone", {"bad.yml": content}) / "bad.yml"
    assert reason in try_import("rasa", path).error
    outcome = rasa(tmp_path, try_import, good, bad=content)
    assert labels(outcome) == [("fine", "a")]
    if "none of the keys" in reason:
        assert outcome.rejected == ()  # a folder holds other files too
        return
    ((file, given_line, given),) = rejections(outcome)
    assert (file, given_line) == ("bad.yml", line)
    assert reason in given


def test_rasa_markdown_is_rejected_with_advice(tmp_path: Path, try_import: Callable):
    folder = lay_out(
        tmp_path / "in",
        {
            "README.md": "# Our bot\n\n- to do\n",
            "data/nlu.md": "## intent:greet\n- hello\n",
            "data/stories.md": "## greet\n* greet\n  - utter_greet\n",
            "data/nlu.yml": "nlu:\n- intent: a\n  examples: |\n    - fine\n",
        },
    )
    outcome = try_import("rasa", folder)
    assert labels(outcome) == [("fine", "a")]
    assert [file for file, _, _ in rejections(outcome)] == ["data/nlu.md", "data/stories.md"]
    assert all("rasa data convert nlu -f yaml" in reason for _, _, reason in rejections(outcome))
    assert "Markdown format is not supported" in try_import("rasa", folder / "README.md").error


STORY = """stories:
- story: greeting
  steps:
  - user: |
      hello [Ann](name)
    intent: greet
  - action: utter_greet
  - user: who are you?
  - bot: |
      A goat.
"""


def test_rasa_story_is_a_dialogue_if_no_text_is_missing(tmp_path: Path, try_import: Callable):
    domain = "responses:\n  utter_greet:\n  - text: Hello, {name}!\n  - text: Hi!\n"
    outcome = try_import("rasa", lay_out(tmp_path / "in", {"stories.yml": STORY, "domain.yml": domain}))
    (dialogue,) = outcome.dialogues
    assert [(turn.speaker, turn.text, turn.intent) for turn in dialogue.turns] == [
        ("user", "hello Ann", "greet"),
        ("system", "Hello, {name}!", None),
        ("user", "who are you?", None),
        ("system", "A goat.", None),
    ]
    assert slots(dialogue) == [("name", "Ann")]
    assert outcome.manifest["left_out"] == {}


def test_rasa_action_without_a_response_is_left_out(tmp_path: Path, try_import: Callable):
    outcome = try_import("rasa", lay_out(tmp_path / "in", {"stories.yml": STORY}))
    assert [[turn.text for turn in it.turns] for it in outcome.dialogues] == [["hello Ann", "who are you?", "A goat."]]
    assert outcome.manifest["left_out"] == {"actions without a text": 1}


@pytest.mark.parametrize(
    "step",
    [
        "  - intent: thank\n",
        "  - user: /thank\n    intent: thank\n",
        "  - or:\n    - intent: thank\n    - intent: bye\n",
        "  - or:\n    - user: thanks\n      intent: thank\n    - intent: bye\n",
    ],
)
def test_rasa_story_with_a_missing_text_gives_utterances(step: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("rasa", lay_out(tmp_path / "in", {"stories.yml": STORY + step}))
    texts = [[turn.text for turn in dialogue.turns] for dialogue in outcome.dialogues]
    assert texts == [["hello Ann"], ["who are you?"], *([["thanks"]] if "thanks" in step else [])]
    assert outcome.manifest["left_out"]["bot texts of stories in which a user text is missing"] == 1
    assert outcome.manifest["left_out"]["user steps without a text"] >= 1


def test_rasa_splits_by_file_name(tmp_path: Path, try_import: Callable):
    """The names that Rasa gives: `rasa data split nlu`, and test stories."""
    nlu = "nlu:\n- intent: a\n  examples: |\n    - {}\n"
    names = ("training_data.yml", "test_data.yml", "nlu.yml", "tests/test_stories.yaml")
    files = {name: nlu.format(name) for name in names}
    outcome = try_import("rasa", lay_out(tmp_path / "in", files))
    assert {dialogue.turns[0].text: dialogue.split for dialogue in outcome.dialogues} == {
        "training_data.yml": "train",
        "test_data.yml": "test",
        "nlu.yml": None,
        "tests/test_stories.yaml": "test",
    }


# ---- Dialogflow


def test_dialogflow_needs_a_language_where_there_are_several(tmp_path: Path, try_import: Callable):
    folder = layout_named("dialogflow cx-with-two-languages").write(tmp_path / "in")
    assert try_import("dialogflow", folder).error == "the export has de, en: choose one by --set language=de"
    assert try_import("dialogflow", folder, language="fr").error == "language must be one of de, en, got 'fr'"
    assert labels(try_import("dialogflow", folder, language="de")) == [("ein Schaf", "feed")]


def test_dialogflow_single_file(tmp_path: Path, try_import: Callable):
    """Without the intent's own file, its name is that of the file."""
    folder = layout_named("dialogflow es").write(tmp_path / "in")
    outcome = try_import("dialogflow", folder / "intents" / "feed_pet_usersays_en.json")
    assert labels(outcome) == [("feed the old goat now", "feed_pet"), ("give it hay", "feed_pet")]
    assert "no training phrases" in try_import("dialogflow", folder / "agent.json").error


@pytest.mark.parametrize(
    ("phrase", "reason"),
    [
        ({}, "'data' is missing"),
        ({"data": []}, "the phrase is empty"),
        ({"data": [{"text": " "}]}, "the phrase is empty"),
        ({"data": [{"alias": "pet"}]}, "'text' is missing"),
        ({"data": [{"text": 5}]}, "expected str instance, int found"),
        ({"data": [{"text": "a"}, {"text": " ", "alias": "pet"}]}, "the slot 'pet' has no value"),
        ("hello", "has no attribute 'get'"),
    ],
)
def test_dialogflow_invalid_phrase(phrase: Any, reason: str, tmp_path: Path, try_import: Callable):
    content = b'[\n{"data": [{"text": "fine"}]},\n' + json_bytes(phrase) + b"\n]"
    outcome = try_import("dialogflow", lay_out(tmp_path / "in", {"intents/a_usersays_en-gb.json": content}))
    assert labels(outcome) == [("fine", "a")]
    ((_, line, given),) = rejections(outcome)
    assert line == 3
    assert reason in given


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}", "'trainingPhrases' is missing"),
        (b'{"trainingPhrases": {}}', "'trainingPhrases' must be a list, got dict"),
        (b"[]", "expected a JSON object"),
    ],
)
def test_dialogflow_cx_file_without_phrases(content: bytes, reason: str, tmp_path: Path, try_import: Callable):
    folder = lay_out(tmp_path / "in", {"intents/a/trainingPhrases/en.json": content})
    assert reason in try_import("dialogflow", folder).error


# ---- Amazon Lex


def test_lex_needs_a_locale_where_there_are_several(tmp_path: Path, try_import: Callable):
    folder = layout_named("lex v2").write(tmp_path / "in")
    german = json_bytes({"name": "Feed", "sampleUtterances": [{"utterance": "füttere {Tier}"}]})
    lay_out(folder, {"Farm/BotLocales/de_DE/Intents/Feed/Intent.json": german})
    assert try_import("lex", folder).error == "the export has de_DE, en_GB: choose one by --set locale=de_DE"
    assert labels(try_import("lex", folder, locale="de_DE")) == [("füttere {Tier}", "Feed")]
    assert len(try_import("lex", folder, locale="en_GB").dialogues) == 2


@pytest.mark.parametrize(
    ("utterances", "reason"),
    [
        ([{}], "'utterance' is missing"),
        ([{"utterance": " "}], "'utterance' must be a non-blank string"),
        ([5], "not the expected layout"),
        ({"utterance": "a"}, "'sampleUtterances' must be a list, got dict"),
        ("text", "'sampleUtterances' must be a list, got str"),
    ],
)
def test_lex_invalid_utterances(utterances: Any, reason: str, tmp_path: Path, try_import: Callable):
    intent = json_bytes({"name": "Wash", "sampleUtterances": utterances})
    folder = lay_out(
        layout_named("lex v2").write(tmp_path / "in"), {"Farm/BotLocales/en_GB/Intents/Wash/Intent.json": intent}
    )
    outcome = try_import("lex", folder)
    assert outcome.dialogues == layout_named("lex v2").expected
    ((file, _, given),) = rejections(outcome)
    assert file.endswith("Wash/Intent.json")
    assert reason in given


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"name": "Feed"}, "neither an intent of Lex V2"),
        ({"resource": []}, "expected an object with 'name'"),
        ({"resource": {"intents": [{"sampleUtterances": ["a"]}]}}, "'name' is missing"),
        ({"resource": {"intents": 5}}, "'intents' is a int, not a list"),
    ],
)
def test_lex_v1_files(content: Any, reason: str, tmp_path: Path, try_import: Callable):
    """An export of one intent is read; a file that cannot be read is rejected alone."""
    wash = {"resource": {"name": "Wash", "sampleUtterances": ["wash"]}}
    outcome = try_import("lex", lay_out(tmp_path / "in", {"a.json": json_bytes(content), "b.json": json_bytes(wash)}))
    assert labels(outcome) == [("wash", "Wash")]
    assert [reason in it for it in outcome.reasons] == [True]


# ---- LUIS and CLU


def luis(tmp_path: Path, try_import: Callable, *utterances: Any) -> Outcome:
    fine = {"text": "fine", "intent": "a", "entities": []}
    return try_import("luis", lay_out(tmp_path / "in", {"app.json": json_bytes({"utterances": [fine, *utterances]})}))


def entity(start: Any, end: Any, **others: Any) -> dict[str, Any]:
    return {"entity": "pet", "startPos": start, "endPos": end, **others}


def test_luis_offsets_are_inclusive_and_count_utf16_code_units(tmp_path: Path, try_import: Callable):
    record = {"text": "🐐🐐 goat", "intent": "a", "entities": [entity(5, 8), entity(0, 1), entity(2, 8)]}
    outcome = luis(tmp_path, try_import, record)
    assert outcome.rejected == ()
    assert slots(outcome.dialogues[1]) == [("pet", "🐐"), ("pet", "🐐 goat"), ("pet", "goat")]


@pytest.mark.parametrize(("start", "end"), [(0, 4), (4, 4), (-1, 2), (2, 1), (9, 12), (10**30, 10**30)])
def test_luis_entity_outside_the_text_is_rejected_alone(start: int, end: int, tmp_path: Path, try_import: Callable):
    outcome = luis(tmp_path, try_import, {"text": "goat", "intent": "a", "entities": [entity(start, end)]})
    assert labels(outcome) == [("fine", "a"), ("goat", "a")]
    assert slots(outcome.dialogues[1]) == []
    (rejection,) = outcome.rejected
    assert (rejection["kind"], rejection["dialogue"]) == ("slot", "app.json/2")
    assert "lie outside the text" in rejection["reason"]


def test_luis_roles_and_nested_entities(tmp_path: Path, try_import: Callable):
    nested = entity(0, 7, role="eater", children=[entity(4, 7)])
    outcome = luis(tmp_path, try_import, {"text": "old goat", "intent": "a", "entities": [nested]})
    assert slots(outcome.dialogues[1]) == [("pet.eater", "old goat")]
    assert outcome.manifest["left_out"] == {"utterances whose nested entities are left out": 1}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"intent": "a"}, "'text' is missing"),
        ({"text": "x"}, "'intent' is missing"),
        ({"text": "x", "intent": " "}, "'intent' must be a non-blank string"),
        ({"text": "x", "intent": "a", "entities": [{"startPos": 0, "endPos": 0}]}, "'entity' is missing"),
        ({"text": "x", "intent": "a", "entities": [{"entity": "b"}]}, "'startPos' is missing"),
        ({"text": "x", "intent": "a", "entities": [entity("0", 0)]}, "'startPos' is a str, not an integer"),
        ({"text": "x", "intent": "a", "entities": [entity(0, True)]}, "'endPos' is a bool, not an integer"),
        ({"text": "x", "intent": "a", "entities": 5}, "not iterable"),
        ({"text": "x", "intent": "a", "dataset": 5}, "'dataset' must be a non-blank string"),
        (5, "not the expected layout"),
    ],
)
def test_luis_invalid_utterance(record: Any, reason: str, tmp_path: Path, try_import: Callable):
    outcome = luis(tmp_path, try_import, record)
    assert labels(outcome) == [("fine", "a")]
    ((_, _, given),) = rejections(outcome)
    assert reason in given
    assert outcome.rejected[0]["dialogue"] == "app.json/2"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"name": "app"}, "no utterances: expected 'utterances' (LUIS) or 'assets' (CLU)"),
        ({"utterances": {}}, "'utterances' must be a list, got dict"),
        ({"assets": {}}, "'utterances' is missing"),
        ({"assets": {"utterances": 5}}, "'utterances' must be a list, got int"),
        ({"assets": []}, "not the expected layout"),
    ],
)
def test_luis_invalid_file(content: Any, reason: str, tmp_path: Path, try_import: Callable):
    outcome = try_import("luis", lay_out(tmp_path / "in", {"app.json": json_bytes(content)}))
    assert reason in outcome.error
