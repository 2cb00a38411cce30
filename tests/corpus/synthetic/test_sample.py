"""The sample world: its size, splits, labels and determinism, on which the rest of the project relies."""

import itertools
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.resources import files

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.dialogue import OUT_OF_SCOPE, Dialogue, Turn
from turnwise.corpus.synthetic.conversation import CONTRADICTIONS
from turnwise.corpus.synthetic.sample import (
    UTTERANCES,
    inference_examples,
    labelled_utterances,
    response_examples,
    sample_conversation,
    sample_dialogues,
    text_pairs,
)
from turnwise.corpus.synthetic.world import DOMAINS, SPLITS, Phrasing, compile_phrasing, load_world

COUNT = 10_000


@cache
def many() -> tuple[Dialogue, ...]:
    return tuple(sample_dialogues(COUNT, seed=1))


def turns(dialogues: tuple[Dialogue, ...]) -> list[Turn]:
    return [turn for dialogue in dialogues for turn in dialogue.turns]


def act_type(act: str) -> str:
    return act.partition("(")[0]


def wordings(phrasing: Phrasing) -> list[str]:
    pieces = [options or (f"{{{placeholder}}}",) for placeholder, options in phrasing.pieces]
    return ["".join(choice).casefold() for choice in itertools.product(*pieces)]


# ---- content


def test_data_files_are_consistent() -> None:
    world = load_world()
    words = {"do", "first", "second", "label", "label_two", "noun", "topic"}  # not slots
    values = {"value", "value_two", "old", "alternative"}  # of the current slot, whatever its type
    assert (len(world.domains), len(world.intents)) == (10, 70)
    fillable = {*world.slot_types, *words, *values}
    texts = [(files("turnwise.corpus.synthetic") / f"{name}.yaml").read_text() for name in ("shared", *DOMAINS)]
    types = [name for text in texts for name in yaml.safe_load(text).get("slot_types", {})]
    assert len(set(types)) == len(types) == len(world.slot_types)
    phrasings = [*world.user.values(), *world.system.values(), *itertools.chain(*world.small_talk)]
    for domain in world.domains.values():
        assert set(domain.related) <= set(world.domains)
        for detail in domain.details:
            assert set(detail.about) <= set(world.intents)
            phrasings += [*detail.questions.values(), detail.answers]
    for intent in world.intents.values():
        assert all(world.slot_types[slot].ask and world.slot_types[slot].say for slot in intent.slots)
        assert intent.flexible is None or intent.flexible in intent.slots
        assert all(not set(intent.slots).isdisjoint(result.placeholders) for result in intent.result)
        sources = [phrasing for split in SPLITS for phrasing in intent.phrasings[split]]
        assert len(set(sources)) == len(sources)
        assert all(
            len(intent.phrasings[split]) >= least for split, least in {"train": 7, "valid": 2, "test": 3}.items()
        )
        phrasings += [*intent.phrasings.values(), intent.confirm, intent.result]
    assert all(world.out_of_scope.values())
    phrasings += [tuple(request.phrasing for request in requests) for requests in world.out_of_scope.values()]
    used = {name for group in phrasings for phrasing in group for name in phrasing.placeholders}
    assert set(world.slot_types) <= used <= fillable


def test_no_wording_is_in_two_splits_or_two_intents() -> None:
    owners: dict[str, tuple[str, str]] = {}
    for intent in load_world().intents.values():
        for split in SPLITS:
            for phrasing in intent.phrasings[split]:
                for wording in wordings(phrasing):
                    assert owners.setdefault(wording, (intent.name, split)) == (intent.name, split)


def test_out_of_scope_topics_differ_between_splits() -> None:
    topics = {split: {entry.topic for entry in load_world().out_of_scope[split]} for split in SPLITS}
    assert not topics["train"] & (topics["valid"] | topics["test"])
    assert not topics["valid"] & topics["test"]


@pytest.mark.parametrize("source", ["a {Place}", "left (open", "a (choice)", "{a|b}", "closed}"])
def test_unmatched_marks_are_rejected(source: str) -> None:
    with pytest.raises(ValueError, match="belongs to no placeholder"):
        compile_phrasing(source)


# ---- dialogues


def test_dialogues_are_the_same_in_any_process() -> None:
    code = (
        "import hashlib; from turnwise.corpus.synthetic.sample import sample_dialogues;"
        "print(hashlib.sha256(repr(list(sample_dialogues(60, 7))).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), short=st.integers(0, 20), more=st.integers(0, 20))
def test_a_longer_sample_begins_with_the_shorter_one(seed: int, short: int, more: int) -> None:
    longer = list(sample_dialogues(short + more, seed))
    assert list(sample_dialogues(short, seed)) == longer[:short]
    assert len(longer) == short + more
    assert not more or list(sample_dialogues(short + more, seed + 1)) != longer


def test_ids_source_and_splits() -> None:
    dialogues = many()
    assert [dialogue.id for dialogue in dialogues[:2]] == ["sample-000000", "sample-000001"]
    assert len({dialogue.id for dialogue in dialogues}) == COUNT
    assert {dialogue.source for dialogue in dialogues} == {"sample"}
    shares = {split: count / COUNT for split, count in Counter(dialogue.split for dialogue in dialogues).items()}
    assert shares == pytest.approx({"train": 0.8, "valid": 0.1, "test": 0.1}, abs=0.02)


def test_dialogues_have_several_turns_that_alternate() -> None:
    dialogues = many()
    lengths = [len(dialogue.turns) for dialogue in dialogues]
    assert min(lengths) >= 4
    assert sum(6 <= length <= 20 for length in lengths) > 0.9 * COUNT
    for dialogue in dialogues[:500]:
        speakers = [turn.speaker for turn in dialogue.turns]
        assert all(left != right for left, right in itertools.pairwise(speakers))


def test_every_turn_is_labelled() -> None:
    intents = {*load_world().intents, OUT_OF_SCOPE}
    for turn in turns(many()):
        assert turn.acts
        assert "{" not in turn.text and "}" not in turn.text and "|" not in turn.text
        assert "  " not in turn.text
        assert (turn.intent is not None) == (turn.speaker == "user" and "request" in turn.acts)
        assert turn.intent is None or turn.intent in intents


def test_slots_are_exact_and_frequent() -> None:
    world = load_world()
    for turn in turns(many()):
        for slot in turn.slots:
            assert turn.text[slot.start : slot.end] == slot.value
            assert slot.name in world.slot_types
        assert all(left.end <= right.start for left, right in itertools.pairwise(turn.slots))
    requests = [turn for turn in turns(many()) if turn.intent not in (None, OUT_OF_SCOPE)]
    assert sum(bool(turn.slots) for turn in requests) > 0.6 * len(requests)
    assert {turn.intent for turn in requests} == set(world.intents)


def test_corrections_small_talk_out_of_scope_and_changes_of_domain_occur() -> None:
    acts = Counter(act_type(act) for turn in turns(many()) if turn.speaker == "user" for act in turn.acts)
    for act in ("correct", "small_talk", "cancel", "reject", "accept", "question", "ask_why"):
        assert acts[act] > 100, act
    assert sum(turn.intent == OUT_OF_SCOPE for turn in turns(many())) > 300
    domains = [
        {turn.intent.partition(".")[0] for turn in dialogue.turns if turn.intent not in (None, OUT_OF_SCOPE)}
        for dialogue in many()
    ]
    assert sum(len(names) > 1 for names in domains) > 500


def test_few_dialogues_contain_a_contradiction() -> None:
    kinds = Counter(sample_conversation(1, index).contradiction for index in range(2000))
    assert set(kinds) == {None, *CONTRADICTIONS}
    assert 0.01 < 1 - kinds[None] / 2000 < 0.03


def test_held_out_requests_are_phrased_in_unseen_ways() -> None:
    """Requests that come without values and without noise show which phrasings a split uses."""
    texts = {split: set[str]() for split in SPLITS}
    for dialogue in many():
        assert dialogue.split is not None
        texts[dialogue.split].update(
            turn.text.casefold() for turn in dialogue.turns if turn.intent is not None and not turn.slots
        )
    assert not texts["train"] & (texts["valid"] | texts["test"])
    assert not texts["valid"] & texts["test"]


@pytest.mark.parametrize(("count", "least", "most"), [(2000, 0.12, 0.32), (COUNT, 0.15, 0.30)])
def test_repetition_is_as_in_real_corpora(count: int, least: float, most: float) -> None:
    frequencies = Counter(turn.text.strip().lower() for turn in turns(many()[:count]))
    top = frequencies.most_common(len(frequencies) // 100)
    assert least <= sum(frequency for _, frequency in top) / frequencies.total() <= most


# ---- labelled data sets


def test_labelled_utterances_cover_every_intent_without_overlap() -> None:
    utterances = list(labelled_utterances(1))
    assert utterances == list(labelled_utterances(1))
    assert len({utterance.text.casefold() for utterance in utterances}) == len(utterances)
    counts = Counter((utterance.intent, utterance.split) for utterance in utterances)
    for intent in load_world().intents:
        assert {split: counts[intent, split] for split in SPLITS} == UTTERANCES
    assert {split: counts[OUT_OF_SCOPE, split] for split in SPLITS} == {"train": 50, "valid": 50, "test": 250}


def test_filled_templates_of_labelled_utterances_are_their_texts() -> None:
    for utterance in labelled_utterances(3):
        text = utterance.template
        for slot in utterance.slots:
            assert utterance.text[slot.start : slot.end] == slot.value
            text = text.replace(f"{{{slot.name}}}", slot.value, 1)
        assert text == utterance.text


def test_response_examples_contain_the_true_response_once() -> None:
    dialogues = list(sample_dialogues(400, 5))
    system = {turn.text for turn in turns(tuple(dialogues)) if turn.speaker == "system"}
    known = {tuple(turn.text for turn in dialogue.turns) for dialogue in dialogues}
    continuations = {texts[:end] for texts in known for end in range(1, len(texts) + 1)}
    examples = list(response_examples(iter(dialogues), seed=1))
    assert examples == list(response_examples(dialogues, seed=1))
    for example in examples:
        truth = example.candidates[example.positive]
        assert (*example.context, truth) in continuations
        assert len(truth.split()) > 3
        assert [text.casefold() for text in example.candidates].count(truth.casefold()) == 1
        assert len(set(example.candidates)) == len(example.candidates) == (2 if example.split == "train" else 10)
        assert system.issuperset(example.candidates)
    assert {example.split for example in examples} == set(SPLITS)
    assert {example.positive for example in examples if example.split == "test"} == set(range(10))


def test_response_examples_come_before_the_stream_ends() -> None:
    read = 0

    def stream():
        nonlocal read
        for dialogue in sample_dialogues(2000, 1):
            read += 1
            yield dialogue

    next(response_examples(stream(), seed=1))
    assert read < 200


def test_response_examples_need_other_dialogues() -> None:
    with pytest.raises(ValueError, match="too few different system turns"):
        list(response_examples(sample_dialogues(1, 1), seed=1))


def test_inference_examples_are_balanced() -> None:
    examples = list(inference_examples(400, seed=1))
    assert examples == list(inference_examples(400, seed=1))
    assert sum(example.consistent for example in examples) == 200
    assert Counter(example.kind for example in examples) == {None: 200, "query": 100, "history": 100}
    assert all((example.kind is None) == example.consistent for example in examples)
    assert all(example.turns[-1].speaker == "system" for example in examples)
    lengths = {
        label: [len(example.turns) for example in examples if example.consistent is label] for label in (True, False)
    }
    assert sum(lengths[True]) / 200 == pytest.approx(sum(lengths[False]) / 200, rel=0.15)


def test_contradictions_of_the_history_change_a_known_value() -> None:
    for example in inference_examples(200, seed=2):
        if example.kind != "history":
            continue
        mentioned = {(slot.name, slot.value) for turn in example.turns[:-1] for slot in turn.slots}
        names = {name for name, _ in mentioned}
        statement = [(slot.name, slot.value) for slot in example.turns[-1].slots]
        assert any(pair[0] in names and pair not in mentioned for pair in statement)


def test_text_pairs_are_graded_and_split() -> None:
    pairs = list(text_pairs(1))
    assert pairs == list(text_pairs(1))
    assert 2000 <= len(pairs) <= 9000
    assert len({(pair.first, pair.second) for pair in pairs}) == len(pairs)
    assert {pair.relation for pair in pairs} == {"entailment", "neutral", "contradiction"}
    expected = {(0.0, "neutral"), (1.5, "neutral"), (3.0, "contradiction"), (4.0, "neutral"), (4.0, "entailment")}
    for split in SPLITS:
        grades = {(pair.score, pair.relation) for pair in pairs if pair.split == split}
        assert grades == expected | {(5.0, "entailment")}
    texts = {split: {t for pair in pairs if pair.split == split for t in (pair.first, pair.second)} for split in SPLITS}
    assert not texts["train"] & (texts["valid"] | texts["test"])
