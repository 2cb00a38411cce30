"""Questions, actions, inference, similarity, retrieval and triplets: files in each layout, and the sample corpus."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import SYSTEM, USER, Turn
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.evaluation.datasets.candidates import QUESTION_DATASETS
from turnwise.evaluation.datasets.dialogues import ACTION_DATASETS, INFERENCE_DATASETS, ActionExample, InferenceExample
from turnwise.evaluation.datasets.retrieval import RetrievalQuery, retrieval_datasets
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS, TRIPLET_DATASETS, SimilarityPair, Triplet


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(60)


def test_questions_come_from_every_category_in_order(tmp_path: Path) -> None:
    write(
        tmp_path / "amazonqa_b" / "qa_B.json",
        "{'question': 'Is it \"loud\"?', 'answer': 'No, it isn\\'t.', 'asin': 'B1'}\n",
    )
    write(tmp_path / "amazonqa_a" / "qa_A.json", "{'question': ' Does it fit? ', 'answer': 'Yes.'}\n\n")
    pairs = QUESTION_DATASETS["amazonqa"].load(tmp_path).pairs
    assert pairs == (("Does it fit?", "Yes."), ('Is it "loud"?', "No, it isn't."))


def test_sample_questions_are_user_turns_with_the_answer(world: Path) -> None:
    pairs = QUESTION_DATASETS["sample"].load(world).pairs
    assert len(set(pairs)) == len(pairs)
    expected = set()
    for dialogue in read_corpus(world):
        for place in range(1, len(dialogue.turns)):
            question, answer = dialogue.turns[place - 1 : place + 1]
            long_enough = len(question.text.split()) >= 4 and len(answer.text.split()) >= 4
            if dialogue.split == "test" and question.speaker == USER and answer.speaker == SYSTEM and long_enough:
                expected.add((question.text, answer.text))
    assert set(pairs) == expected


def test_actions_are_act_types_and_need_a_history(tmp_path: Path) -> None:
    def turn(number: int, speaker: str, *acts: tuple[str, str]) -> dict[str, object]:
        binary = [{"intent": intent, "slot": slot} for intent, slot in acts]
        return {
            "speaker": speaker,
            "utterance": f"turn {number}",
            "utt_idx": number,
            "dialogue_act": {"binary": binary},
        }

    def dialogue(name: str, split: str, *turns: dict[str, object]) -> dict[str, object]:
        return {"original_id": name, "data_split": split, "turns": turns}

    first = [
        turn(0, "system", ("OFFER", "")),
        turn(1, "user"),
        turn(2, "system", ("REQUEST", "date"), ("REQUEST", "time"), ("ASK", "")),
    ]
    content = [
        dialogue("one", "test", *first, turn(3, "user"), turn(4, "system"), turn(5, "system", ("OFFER", "x"))),
        dialogue("two", "train", turn(0, "user"), turn(1, "system", ("BYE", ""))),
        dialogue("three", "val", turn(0, "user"), turn(1, "system", ("BYE", ""))),
    ]
    write(tmp_path / "gsim_m2m" / "unified_ToDDAPT" / "data.json", json.dumps(content))
    data = ACTION_DATASETS["gsim"].load(tmp_path)
    assert [(len(example.turns), example.actions, example.last) for example in data.test] == [
        (2, ("ASK", "REQUEST"), False),
        (5, ("OFFER",), True),
    ]
    assert data.test[0].turns == (Turn(SYSTEM, "turn 0", acts=("OFFER",)), Turn(USER, "turn 1"))
    assert data.train == data.valid == (ActionExample((Turn(USER, "turn 0"),), ("BYE",), True),)
    assert data.actions == ["ASK", "BYE", "OFFER", "REQUEST"]


def test_dstc2_joins_acts_by_session_and_index(tmp_path: Path) -> None:
    turns = [
        {"speaker": "user", "utterance": "cheap food", "utt_idx": 0},
        {"speaker": "system", "utterance": "where?", "utt_idx": 1},
    ]
    turns += [{"speaker": "system", "utterance": "sorry?", "utt_idx": 2}]
    write(
        tmp_path / "dstc2" / "transcripts_ToDDAPT" / "data.json",
        json.dumps([{"original_id": "voip", "data_split": "test", "turns": turns}]),
    )
    acts = [{"utt_idx": 1, "acts": ["request(area)", "request(food)"]}, {"utt_idx": 2, "acts": []}]
    write(tmp_path / "dstc2" / "DERIVED_system_acts.jsonl", lines({"original_id": "voip", "system_turns": acts}))
    assert ACTION_DATASETS["dstc2"].load(tmp_path).test == (
        ActionExample((Turn(USER, "cheap food"),), ("request",), True),
    )


def test_sample_actions_are_those_of_the_next_system_turn(world: Path) -> None:
    data = ACTION_DATASETS["sample"].load(world)
    dialogues = list(read_corpus(world))
    next_turns = {dialogue.turns[:place]: turn for dialogue in dialogues for place, turn in enumerate(dialogue.turns)}
    for example in (*data.train, *data.valid, *data.test):
        following = next_turns[example.turns]
        assert following.speaker == SYSTEM
        assert set(example.actions) == {act.split("(")[0] for act in following.acts}
    assert sum(example.last for example in data.test) == len(
        [dialogue for dialogue in dialogues if dialogue.split == "test"]
    )


@pytest.mark.parametrize(
    ("query", "history", "label"),
    [("0", "0", "consistent"), ("1", "0", "inconsistent"), ("0", "1", "inconsistent"), ("1", "1", "inconsistent")],
)
def test_ci_tod_ignores_the_knowledge_base(query: str, history: str, label: str, tmp_path: Path) -> None:
    folder = tmp_path / "ci_tod" / "data" / "KBRetriever_DC"
    dialogue = [{"turn": "driver", "utterance": "when?"}, {"turn": "assistant", "utterance": "at noon"}]
    record = {"dialogue": dialogue, "scenario": {"kb": {}, "qi": query, "hi": history, "kbi": "1"}}
    for domain in ("calendar", "navigate", "weather_new"):
        for split in ("train", "dev", "test"):
            write(folder / f"{domain}_{split}.json", json.dumps([record]))
    example = InferenceExample((Turn(USER, "when?"), Turn(SYSTEM, "at noon")), label)
    data = INFERENCE_DATASETS["ci_tod"].load(tmp_path)
    assert (data.train, data.valid, data.test) == ((example,) * 2, (example,) * 3, (example,) * 3)
    assert data.labels == [label]
    assert INFERENCE_DATASETS["ci_tod_full"].load(tmp_path).train == (example,) * 3


def test_decode_keeps_dialogues_of_fewer_than_256_words(tmp_path: Path) -> None:
    def record(words: int, contradiction: bool) -> dict[str, object]:
        turns = [
            {"turn_id": 0, "agent_id": 0, "text": "word " * (words - 2)},
            {"turn_id": 1, "agent_id": 1, "text": "not so"},
        ]
        return {
            "record_id": "r",
            "turns": turns,
            "is_contradiction": contradiction,
            "aggregated_contradiction_indices": [0, 1],
        }

    content = lines(record(5, True), record(255, False), record(256, True))
    for split in ("train", "dev", "test"):
        write(tmp_path / "decode_v0.1" / f"{split}.jsonl", content)
    data = INFERENCE_DATASETS["decode"].load(tmp_path)
    assert data.train == data.valid == data.test
    assert [example.label for example in data.test] == ["contradiction", "non-contradiction"]
    assert data.test[0].turns == (Turn("speaker_1", "word word word"), Turn("speaker_2", "not so"))


def test_decode_pairs_split_by_their_first_text(tmp_path: Path) -> None:
    rows = [(f"statement {number // 2}", f"answer, {number}", str(number % 2)) for number in range(1000)]
    path = tmp_path / "decode_pairs_partial/comparativeCorpusAnalysis/decode_parsed/decode_prosecco_size_df.tsv"
    write(path, "seg1\tseg2\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    data = INFERENCE_DATASETS["decode_pairs"].load(tmp_path)
    splits = [data.train, data.valid, data.test]
    assert sum(map(len, splits)) == len(rows)
    assert [0.5 < len(data.train) / 1000 < 0.7, *(0.13 < len(split) / 1000 < 0.27 for split in splits[1:])] == [
        True
    ] * 3
    first = [{example.turns[0].text for example in split} for split in splits]
    assert not (first[0] & first[1] or first[0] & first[2] or first[1] & first[2])
    labels = {(first, second): label for first, second, label in rows}
    for example in (*data.train, *data.valid, *data.test):
        texts = tuple(turn.text for turn in example.turns)
        assert example.label == ("contradiction" if labels[texts[0], texts[1]] == "0" else "non-contradiction")
    write(path, path.read_text().replace("answer", "reply"))
    assert len(INFERENCE_DATASETS["decode_pairs"].load(tmp_path).test) == len(data.test)


def test_similarity_layouts(tmp_path: Path) -> None:
    benchmark = tmp_path / "sts_nli/stsbenchmark/data/stsbenchmark"
    write(benchmark / "sts-dev.csv", 'main\tfile\t2012\t1\t2.5\ta "quoted text\tb\n')
    write(benchmark / "sts-test.csv", "main\tfile\t2012\t1\t5.000\tc \td\tsource\tsource\n")
    stsb = SIMILARITY_DATASETS["stsb"].load(tmp_path)
    assert (stsb.valid, stsb.test) == ((SimilarityPair('a "quoted text', "b", 2.5),), (SimilarityPair("c", "d", 5.0),))
    related = tmp_path / "sts_nli/brmson_dataset-sts/data/sts/sick2014"
    for name in ("SICK_trial.txt", "SICK_test_annotated.txt"):
        write(
            related / name,
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\ta\tb\t3.6\tNEUTRAL\n",
        )
    assert SIMILARITY_DATASETS["sick"].load(tmp_path).test == (SimilarityPair("a", "b", 3.6),)
    for split in ("dev", "test"):
        write(tmp_path / "dialoguecse/datasets/jddc" / split / "sts.txt", "4\t什么时候到\t几天能到\n")
    assert SIMILARITY_DATASETS["dsts_jddc"].load(tmp_path).valid == (SimilarityPair("什么时候到", "几天能到", 4.0),)


def test_semeval_files_are_one_set_without_unscored_pairs(tmp_path: Path) -> None:
    year = tmp_path / "sts_nli/brmson_dataset-sts/data/sts/semeval-sts/2016"
    write(year / "b.test.tsv", "1\tx\ty\n\tnot\tjudged\n")
    write(year / "a.test.tsv", "0.5\tv\tw\n")
    write(year / "a.train.tsv", "5\tleft\tout\n")
    data = SIMILARITY_DATASETS["sts16"].load(tmp_path)
    assert (data.valid, data.test) == ((), (SimilarityPair("v", "w", 0.5), SimilarityPair("x", "y", 1.0)))


def test_texts_without_positives_or_negatives_are_no_queries(tmp_path: Path) -> None:
    content = "0\trefund?\ttopic\t1\t2,3\n1\tmoney back\t\t\t2\n2\tgood day\t\t0\t\n3\tbye\t\t0,1\t2\n"
    for split in ("dev", "test"):
        write(tmp_path / "dialoguecse/datasets/edc" / split / "select.txt", content)
    data = retrieval_datasets()["retrieval_ecd"].load(tmp_path)
    assert data.valid == data.test
    assert data.test == (
        RetrievalQuery("refund?", ("money back",), ("good day", "bye")),
        RetrievalQuery("bye", ("refund?", "money back"), ("good day",)),
    )


pair = st.tuples(st.sampled_from("pqr"), st.text("abc", min_size=1, max_size=3), st.sampled_from("012"))


@given(st.lists(pair, max_size=12), st.integers(0, 12))
def test_a_premise_gives_the_first_of_each(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str, str]], cut: int
) -> None:
    data = tmp_path_factory.mktemp("data")
    words = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    for tsv, jsonl, part in (("validation", "matched", pairs[:cut]), ("test", "mismatched", pairs[cut:])):
        rows = "".join("\t".join(row) + "\n" for row in part)
        write(data / "sts_nli/BECEL_snli/data/snli" / f"{tsv}.tsv", "premise\thypothesis\tlabel\n" + rows)
        records = [
            {"sentence1": first, "sentence2": second, "gold_label": words[label]} for first, second, label in part
        ]
        unlabelled = {"sentence1": "p", "sentence2": "no", "gold_label": "-"}
        write(data / "multinli_1.0" / f"multinli_1.0_dev_{jsonl}.jsonl", lines(unlabelled, *records))
    by_premise: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for premise, hypothesis, label in pairs:
        by_premise[premise].append((label, hypothesis))
    expected = {}
    for premise, labelled in by_premise.items():
        entailed, contrary = ([text for label, text in labelled if label == next_turns] for next_turns in "02")
        if entailed and contrary:
            expected[premise] = Triplet(premise, entailed[0], contrary[0])
    for name in ("snli", "mnli"):
        actual = TRIPLET_DATASETS[name].load(data).test
        assert {triplet.anchor: triplet for triplet in actual} == expected
        assert len(actual) == len(expected)
