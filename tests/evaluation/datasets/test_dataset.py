"""Every data set but the intents'.

What is known of it, its real sizes and hash, the sample world's, and files that do not fit.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, QUESTION_DATASETS
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.dialogue_labels import ACTION_DATASETS, INFERENCE_DATASETS
from turnwise.evaluation.datasets.retrieval import retrieval_datasets
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS, TRIPLET_DATASETS

DATA = os.environ.get("TURNWISE_DATA")
KINDS: dict[str, dict[str, Dataset[Any]]] = {
    "candidates": dict(CANDIDATE_DATASETS),
    "questions": dict(QUESTION_DATASETS),
    "actions": dict(ACTION_DATASETS),
    "inference": dict(INFERENCE_DATASETS),
    "similarity": dict(SIMILARITY_DATASETS),
    # the others are built from corpora
    "retrieval": {name: retrieval_datasets()[name] for name in ("retrieval_ecd", "retrieval_jddc")},
    "triplets": dict(TRIPLET_DATASETS),
}
#: Splits (and pairs) as the authors publish them, or as the files at hand hold them.
SIZES = {
    ("candidates", "ubuntu_v1_slice"): (1000, 0, 60),
    ("candidates", "ubuntu_v2_slice"): (0, 499, 499),
    ("candidates", "douban_slice"): (0, 0, 200),
    ("candidates", "ecommerce_slice"): (77, 0, 100),
    ("candidates", "dailydialog_plusplus"): (0, 1028, 1142),
    ("candidates", "dailydialog_plusplus_adversarial"): (0, 1028, 1142),
    ("candidates", "irc_ubuntu"): (3490, 143, 239),
    ("questions", "amazonqa"): (9011,),
    ("actions", "dstc2"): (10041, 3416, 8746),
    ("actions", "gsim"): (6648, 1647, 3761),
    ("inference", "ci_tod"): (595 + 1110, 74 + 139 + 106, 74 + 138 + 106),
    ("inference", "decode_pairs"): (788, 259, 278),
    ("similarity", "stsb"): (0, 1500, 1379),
    ("similarity", "sick"): (0, 500, 4927),
    ("similarity", "sts12"): (0, 0, 3108 - 750),
    ("similarity", "sts13"): (0, 0, 1500),
    ("similarity", "sts14"): (0, 0, 3750),
    ("similarity", "sts15"): (0, 0, 3000),
    ("similarity", "sts16"): (0, 0, 1186),
    ("similarity", "dsts_ecd"): (0, 500, 1000),
    ("similarity", "dsts_jddc"): (0, 1000, 2000),
    ("retrieval", "retrieval_ecd"): (0, 2373, 4243),
    ("retrieval", "retrieval_jddc"): (0, 2094, 6970),
    ("triplets", "snli"): (0, 0, 5863),
}


def sizes(contents: Any) -> tuple[int, ...]:
    return tuple(
        len(getattr(contents, field)) for field in ("train", "valid", "test", "pairs") if hasattr(contents, field)
    )


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(60)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, datasets in KINDS.items() for name in datasets])
def test_everything_is_known_of_it(kind: str, name: str, tmp_path: Path) -> None:
    dataset = KINDS[kind][name]
    assert dataset.name == name
    assert dataset.licence
    assert dataset.home
    # what has a digest has been measured on, so its sizes are held here
    assert bool(dataset.digest) == ((kind, name.removesuffix("_100")) in SIZES)
    with pytest.raises(DatasetError, match="does not exist") as error:
        dataset.load(tmp_path)
    assert dataset.home in str(error.value)


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
@pytest.mark.parametrize(("kind", "name"), SIZES)
def test_real_data_sets_have_their_sizes_and_hashes(kind: str, name: str) -> None:
    dataset, data = KINDS[kind][name], Path(str(DATA))
    contents = dataset.load(data)
    assert sizes(contents) == SIZES[kind, name]
    assert dataset.hash_files(data) == dataset.digest
    assert contents.name == dataset.name


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
@pytest.mark.parametrize("name", ["retrieval_schema_guided", "retrieval_star", "retrieval_gsim"])
def test_what_retrieval_is_built_from_is_as_it_was(name: str) -> None:
    dataset = retrieval_datasets()[name]
    assert dataset.hash_files(Path(str(DATA))) == dataset.digest


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "retrieval"])
def test_the_sample_world_has_every_kind(kind: str, world: Path) -> None:
    dataset = KINDS[kind]["sample"]
    contents = dataset.load(world)
    assert contents == dataset.load(world)
    assert sizes(contents).count(0) == {"similarity": 1, "triplets": 2}.get(kind, 0)
    assert not dataset.differs


#: Whose JSON files are one array; all other files may be empty.
ARRAYS = ("dstc7_ubuntu", "dstc2", "gsim", "ci_tod")
CALENDAR = '[{"dialogue": [{"turn": "driver", "utterance": "when is it?"}], "scenario": {"qi": "0", "hi": "%s"}}]'

#: Of each layout: a file, what is wrong in it, and what is said about it.
BROKEN = [
    (
        "candidates",
        "ubuntu_v1",
        "test.txt",
        "1\tonly a response\n",
        r"test\.txt, line 1: expected 0 or 1, at least one turn",
    ),
    (
        "candidates",
        "ubuntu_v1",
        "test.txt",
        "1\ta\tb\n0\ta\tc\n",
        r"test\.txt, line 1: expected a context with 10 candidates, not 2",
    ),
    ("candidates", "ubuntu_v1", "test.txt", "".join(f"{int(not i)}\t \tb{i}\n" for i in range(10)), "all empty"),
    (
        "candidates",
        "ubuntu_v2",
        "test.csv",
        "Context,Utterance\na,b\n",
        r"test\.csv, line 2: .*'Ground Truth Utterance' is missing",
    ),
    (
        "candidates",
        "dailydialog_plusplus",
        "test.json",
        '{"context": ["a"]}\n',
        r"test\.json, line 1: .*'positive_responses' is missing",
    ),
    ("candidates", "dailydialog_plusplus", "test.json", "{", r"test\.json, line 1: not valid JSON"),
    (
        "candidates",
        "dailydialog_plusplus",
        "dev.json",
        '{"context": "abc", "positive_responses": ["a"], "random_negative_responses": ["b"]}',
        r"dev\.json, line 1: .*expected a list of texts, not 'abc'",
    ),
    ("candidates", "dstc7_ubuntu", "ubuntu_test_subtask_1.json", '[{"example-id": 7}]', r"line 1: .*'7' is missing"),
    (
        "candidates",
        "dstc7_ubuntu",
        "ubuntu_responses_subtask_1.tsv",
        "1\tid\n",
        "line 1: expected 3 fields by tabs, not 2",
    ),
    (
        "candidates",
        "irc_ubuntu",
        "test/x.annotation.txt",
        "1 9 -\n",
        r"x\.annotation\.txt, line 1: .*the log has 0 lines",
    ),
    (
        "candidates",
        "irc_ubuntu",
        "test/x.annotation.txt",
        "one 9 -\n",
        r"x\.annotation\.txt, line 1: .*invalid literal",
    ),
    ("candidates", "irc_ubuntu", "test/y.annotation.txt", "", r"y\.annotation\.txt: its log y\.ascii\.txt is missing"),
    (
        "questions",
        "amazonqa",
        "amazonqa_x/qa_x.json",
        "{'question': 'a'}\n",
        r"qa_x\.json, line 1: .*'answer' is missing",
    ),
    ("questions", "amazonqa", "amazonqa_x/qa_x.json", "{'question': 'a', 'answer': ''}\n", "line 1: the text is empty"),
    ("questions", "amazonqa", "amazonqa_x/qa_x.json", "import os\n", "line 1: .*nor is it a Python literal"),
    (
        "actions",
        "gsim",
        "data.json",
        '[{"dialogue_id": "a", "data_split": "test"}]',
        r"data\.json, line 1: .*'turns' is missing",
    ),
    ("actions", "dstc2", "DERIVED_system_acts.jsonl", '{"original_id": "a"}', "line 1: .*'system_turns' is missing"),
    (
        "inference",
        "ci_tod",
        "calendar_test.json",
        CALENDAR % "2",
        r"calendar_test\.json, line 1: .*expected '0' or '1', not '2'",
    ),
    (
        "inference",
        "ci_tod",
        "calendar_test.json",
        (CALENDAR % "0").replace("driver", "dog"),
        "line 1: .*'dog' is missing",
    ),
    (
        "inference",
        "decode",
        "test.jsonl",
        '{"is_contradiction": "no", "turns": []}',
        "line 1: .*expected true or false, not 'no'",
    ),
    (
        "inference",
        "decode",
        "test.jsonl",
        '{"is_contradiction": false, "turns": []}',
        "line 1: .*the dialogue has no turns",
    ),
    (
        "inference",
        "decode_pairs",
        "decode_prosecco_size_df.tsv",
        "seg1\tseg2\tlabel\na\tb\t7\n",
        "line 2: .*expected '0' or '1', not '7'",
    ),
    (
        "similarity",
        "stsb",
        "sts-test.csv",
        "genre\tfile\tyear\t1\thigh\ta\tb\n",
        r"sts-test\.csv, line 1: .*could not convert",
    ),
    ("similarity", "sick", "SICK_trial.txt", "1\ta\tb\n", r"SICK_trial\.txt, line 1: expected 4 fields by tabs, not 3"),
    ("similarity", "sts14", "a.test.tsv", "1.0\ta\t \n", r"a\.test\.tsv, line 1: .*expected a text, not ' '"),
    ("similarity", "dsts_ecd", "dev/sts.txt", "1\ta\n", r"sts\.txt, line 1: expected 3 fields by tabs, not 2"),
    ("retrieval", "retrieval_ecd", "test/select.txt", "0\ta\t\t5\t0\n", r"select\.txt, line 1: .*'5' is missing"),
    (
        "retrieval",
        "retrieval_ecd",
        "test/select.txt",
        "0\ta\t\t\t\n0\tb\t\t\t\n",
        r"select\.txt, line 2: the id '0' occurs twice",
    ),
    (
        "triplets",
        "snli",
        "test.tsv",
        "premise\thypothesis\tlabel\na\tb\t3\n",
        r"test\.tsv, line 2: .*expected '0' or '1' or '2', not '3'",
    ),
    (
        "triplets",
        "mnli",
        "multinli_1.0_dev_matched.jsonl",
        '{"sentence1": "a", "gold_label": "neutral"}',
        "'sentence2' is missing",
    ),
]


@pytest.mark.parametrize(("kind", "name", "file", "content", "message"), BROKEN)
def test_a_line_that_does_not_fit_is_named(
    kind: str, name: str, file: str, content: str, message: str, tmp_path: Path
) -> None:
    dataset = KINDS[kind][name]
    for pattern in (*dataset.files, file):
        path = tmp_path / dataset.folder / pattern.replace("*", "x")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[]" if path.suffix == ".json" and name in ARRAYS else "")
    (tmp_path / dataset.folder / file).write_text(content)
    with pytest.raises(DatasetError, match=message):
        dataset.load(tmp_path)
