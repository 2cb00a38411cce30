"""Every data set but the intents': its description, real size and hash, the sample world's, malformed files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, QUESTION_DATASETS
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.dialogues import ACTION_DATASETS, INFERENCE_DATASETS
from turnwise.evaluation.datasets.retrieval import retrieval_datasets
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS, TRIPLET_DATASETS

DATA = os.environ.get("TURNWISE_DATA")
BROKEN_FILES = Path(__file__).with_name("broken_files.yaml")
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


ARRAYS = ("dstc7_ubuntu", "dstc2", "gsim", "ci_tod")  # whose JSON files are one array; all other files may be empty


@pytest.mark.parametrize(
    ("kind", "name", "file", "content", "message"),
    [
        (kind, name, *broken.values())
        for kind, datasets in yaml.safe_load(BROKEN_FILES.read_text("utf-8")).items()
        if kind in KINDS
        for name, files in datasets.items()
        for broken in files
    ],
)
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
