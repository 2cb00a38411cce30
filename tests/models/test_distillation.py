"""The static model: equality with model2vec, the contract of an encoder, no training."""

import copy
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tests.helpers.families import FAMILIES, WORDS
from turnwise.cli import app
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import MissingPackageError, ModelError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.writing import write_store
from turnwise.models import distillation as distilling
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import Pooling
from turnwise.models.backbone.static_table import STATIC_FILE, StaticTable
from turnwise.models.distillation import distil, sample_corpora
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.export import export
from turnwise.models.loading import wrap_model
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe

pytest.importorskip("model2vec")
Folder = Callable[[str], Path]
TEXTS = ["book a table please", "where is the hotel", "hello", "a taxi to the train now"]


def make_encoder(folder: Path, pooling: Pooling = "mean", **more: object) -> Encoder:
    torch.manual_seed(0)
    return TrainableEncoder(load_backbone(folder), pooling, **more).eval()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def static(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static") / "bert"
    export(make_encoder(tiny_folder("bert"), max_length=40), folder, "static", dimensions=16)
    return folder


def token_vectors(encoder: Encoder, table: Encoder) -> np.ndarray:
    """The encoder's own vector of each token of a table, or of the text that a token reads."""
    ids, composer = encoder.tokenizer.get_vocab(), encoder.composer
    sequences = [
        composer.text(np.array([ids[token]], np.int32), 9) if token in ids else encoder.tokenise([token])[0]
        for token in table.tokenizer.get_vocab()
    ]
    return encoder.encode_sequences(sequences, normalise=False)


# ---- what it computes


def test_table_equals_model2vec(tiny_folder: Folder) -> None:
    """Its own function takes the mean over token states alone, and gives the same vectors up to rounding."""
    from model2vec.distill import distill_from_model
    from transformers import AutoModel, AutoTokenizer

    folder = tiny_folder("bert")
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    theirs = distill_from_model(
        model, tokenizer, vocabulary=["hotels", "bookings"], device="cpu", pca_dims=8, quantize_to="float32"
    )
    ours = distil(make_encoder(folder), dimensions=8, words=["hotels", "bookings"])
    texts = [*TEXTS, "two hotels", "bookings of hotels", "a b c"]
    assert ours.hidden == 8
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-4)


def test_vector_is_the_mean_of_token_vectors(static: Path) -> None:
    encoder = Encoder.load(static)
    table = load_file(static / STATIC_FILE)["embeddings"]
    tokenizer = encoder.tokenizer
    for text in TEXTS:
        ids = [
            token for token in tokenizer(text, add_special_tokens=False)["input_ids"] if token != tokenizer.unk_token_id
        ]
        np.testing.assert_allclose(encoder.encode([text], normalise=False)[0], table[ids].mean(0), atol=1e-6)


@pytest.mark.parametrize("kind", ["model2vec", "sentence-transformers"])
def test_folders_of_other_libraries_load(static: Path, kind: str, tmp_path: Path) -> None:
    """Shared and weighted rows, as in model2vec; another name of the table, as in sentence-transformers."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    if kind == "model2vec":
        whole = StaticModel.from_pretrained(static)
        rows = len(whole.embedding)
        mapping = np.arange(rows) // 2
        model = StaticModel(
            vectors=whole.embedding[: mapping.max() + 1],
            weights=np.linspace(0.5, 2, rows, dtype=np.float32),
            token_mapping=mapping,
            tokenizer=whole.tokenizer,
            config=whole.config,
            normalize=True,
        )
        model.save_pretrained(tmp_path)
        expected = model.encode(TEXTS)
    else:
        SentenceTransformer(str(static), device="cpu").save(str(tmp_path))
        expected = Encoder.load(static).encode(TEXTS)
    assert not (tmp_path / "turnwise.json").exists()
    loaded = Encoder.load(tmp_path)
    assert isinstance(loaded.model, StaticTable)
    np.testing.assert_allclose(loaded.encode(TEXTS, normalise=True), expected, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_distilled(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    encoder = make_encoder(tiny_folder(family))
    export(encoder, tmp_path / "out", "static", dimensions=8)
    actual = Encoder.load(tmp_path / "out").encode(TEXTS)
    assert actual.shape == (4, 8)
    np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-5)
    assert len(np.unique(actual.round(4), axis=0)) == 4


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_every_pooling_is_distilled(pooling: Pooling, tiny_folder: Folder) -> None:
    """With all dimensions, cosines between single tokens are those of the encoder's vectors around their mean."""
    encoder = make_encoder(tiny_folder("bert"), pooling)
    table = distil(encoder, dimensions=None)
    words = [word for word in WORDS if len(table.tokenise([word])[0]) == 1][:12]
    own = encoder.encode(words, normalise=False) - token_vectors(encoder, table).mean(0)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    actual = table.encode(words)
    np.testing.assert_allclose(actual @ actual.T, own @ own.T, atol=1e-3)


# ---- what an encoder does


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS, "☃"]), max_size=12), min_size=1, max_size=9), st.integers(1, 60))
def test_vector_does_not_depend_on_the_batch(static: Path, word_lists: list[list[str]], budget: int) -> None:
    encoder = Encoder.load(static)
    texts = [" ".join(words) for words in word_lists]
    together = encoder.encode(texts, batch_tokens=budget)
    np.testing.assert_allclose(together, np.concatenate([encoder.encode([text]) for text in texts]), atol=1e-6)
    lengths = np.linalg.norm(together, axis=1)
    assert all(length == pytest.approx(1, abs=1e-5) or length == 0 for length in lengths)


def test_text_without_tokens_is_zeros(static: Path) -> None:
    encoder = Encoder.load(static)
    reports: list[tuple[int, int | None]] = []
    vectors = encoder.encode(
        ["", "☃", "hotel", "  "], progress=lambda _, done, total=None: reports.append((done, total))
    )
    assert np.flatnonzero(np.abs(vectors).sum(1)).tolist() == [2]
    assert reports[-1] == (4, 4)
    assert encoder.encode([]).shape == (0, 16)


def test_conversations_are_truncated_at_the_head_and_ignore_speakers(static: Path) -> None:
    encoder = Encoder.load(static)
    assert (encoder.max_length, encoder.normalise) == (40, True)
    one, other = [Turn("user", "hello"), Turn("system", "where to")], ["hello", "where to"]
    joined = encoder.encode(["hello where to"])[0]
    np.testing.assert_allclose(encoder.encode([one, other]), [joined, joined], atol=1e-6)
    np.testing.assert_allclose(encoder.encode([["taxi", "hotel " * 40]]), encoder.encode(["hotel"]), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(["hotel " * 40 + "taxi"]), encoder.encode(["hotel"]), atol=1e-6)


def test_static_model_can_be_saved_and_copied(static: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(static)
    expected = encoder.encode(TEXTS)
    encoder.save(tmp_path / "again")
    again = Encoder.load(tmp_path / "again")
    for each in (again, copy.deepcopy(encoder)):
        np.testing.assert_array_equal(each.encode(TEXTS), expected)
        assert encoder_fingerprint(each) == encoder_fingerprint(encoder)
    again.save(tmp_path / "again")  # onto itself
    np.testing.assert_array_equal(Encoder.load(tmp_path / "again").encode(TEXTS), expected)
    tensors = load_file(tmp_path / "again" / STATIC_FILE)
    save_file({"embeddings": tensors["embeddings"] + 1}, tmp_path / "again" / STATIC_FILE)
    assert encoder_fingerprint(Encoder.load(tmp_path / "again")) != encoder_fingerprint(encoder)


def test_exported_model_is_not_trained(static: Path, sample_world: Callable[[int], Path], tmp_path: Path) -> None:
    assert wrap_model(Encoder.load(static)).trainable is None
    recipe = load_recipe("dse", [f"backbone={static}", "steps=1"])
    with pytest.raises(ModelError, match="is exported, and cannot be trained or changed"):
        train(recipe, read_corpus(sample_world(40)), tmp_path / "model")
    with pytest.raises(ModelError, match="holds a static model, which cannot be trained"):
        load_backbone(static)


# ---- words of a corpus


def test_corpus_sample() -> None:
    turns = tuple(Turn("user", text) for text in ["Refund, refund! 12 12 12 12 12 12", "refund or tariff"])
    dialogues = [Dialogue(str(number), turns) for number in range(4)]
    assert sample_corpora([dialogues], 9, 9) == (["refund"], [turn.text for turn in turns])
    assert sample_corpora([dialogues, dialogues], 9, 0) == (["refund", "or", "tariff"], [])
    assert sample_corpora([dialogues, dialogues], 1, 1)[0] == ["refund"]
    both = [Dialogue("a", (Turn("user", "refund"), Turn("system", "done")))]
    assert sample_corpora([both], 0, 9, speakers=["system"])[1] == ["done"]
    many, few = (
        [Dialogue(str(number), (Turn("user", f"{name} {number}"),)) for number in range(count)]
        for name, count in (("many", 1000), ("few", 7))
    )
    texts = sample_corpora([many, few], 0, 100)[1]
    numbers = [int(text.split()[1]) for text in texts if text.startswith("many")]
    assert len(set(numbers)) == 100
    # from all over: among a thousand, a hundred evenly drawn ones miss a tenth of them once in 30,000 times
    assert {number // 100 for number in numbers} == set(range(10))
    assert sorted(set(texts) - {f"many {number}" for number in numbers}) == [f"few {number}" for number in range(7)]


def test_frequent_phrases(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Book a table", "book a taxi, please", "don't book a table 4 you", "a table"] * 5
    # 15 times "book a" and "a table", 10 times "book a table"; five times each those with "don't"; "taxi," is no word
    assert sorted(distilling._frequent_phrases(texts)) == ["a table", "book a", "book a table"]
    twice = sorted(distilling._frequent_phrases(texts * 2))
    assert twice == ["a table", "book a", "book a table", "don't book", "don't book a", "don't book a table"]
    monkeypatch.setattr(distilling, "_MAX_PHRASES", 2)
    assert sorted(distilling._frequent_phrases(texts)) == ["a table", "book a"]


def test_half_of_a_batch_are_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 groups of 16 equal vectors: the neighbours of a text are its group."""
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))[0].astype(np.float32)
    vectors = torch.from_numpy(np.repeat(directions, 16, axis=0))
    sample = np.random.default_rng(1).permutation(len(vectors))[:64]
    rows = distilling._with_neighbours(sample, vectors)
    assert set(sample[::2]) <= set(rows) and len(rows) == len(set(rows))
    groups = set(sample[1::32] // 16)
    assert set(rows) == set(sample[::2]) | {row for row in range(len(vectors)) if row // 16 in groups}


def fitting_data() -> tuple[np.ndarray, np.ndarray, RaggedTokens, np.ndarray]:
    """A table, one near it, texts in which 28 of 40 tokens occur, and their targets: means of the first table."""
    chance = np.random.default_rng(0)
    hidden = chance.normal(size=(40, 6)).astype(np.float32)
    start = hidden + 0.3 * chance.normal(size=hidden.shape).astype(np.float32)
    tokens = [chance.integers(28, size=length).astype(np.int32) for length in chance.integers(1, 5, 900)]
    targets = np.stack([hidden[each].mean(0) for each in tokens])
    return hidden, start, RaggedTokens.of(tokens), targets / np.linalg.norm(targets, axis=1, keepdims=True)


def similarity_error(table: np.ndarray, tokens: RaggedTokens, targets: np.ndarray) -> float:
    vectors = np.stack([table[each].mean(0) for each in tokens])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return float(np.abs(vectors @ vectors.T - targets @ targets.T).mean())


def test_fit_of_vectors_is_a_ridge_regression() -> None:
    """The solution of the normal equations; rows of tokens that no text has are only scaled."""
    _, start, tokens, targets = fitting_data()
    texts = np.zeros((len(tokens), 40))
    for row, each in enumerate(tokens):
        np.add.at(texts[row], each, 1 / np.sqrt(len(each)))
    scale = ((texts @ start) * targets).sum() / ((texts @ start) ** 2).sum()
    change = np.linalg.solve(
        texts.T @ texts + distilling._RIDGE_PENALTY * np.eye(40), texts.T @ (targets - texts @ start * scale)
    )
    fitted = distilling._fit_vectors(start, tokens, targets)
    np.testing.assert_allclose(fitted, start * scale + change, atol=1e-3)
    np.testing.assert_allclose(fitted[28:], start[28:] * scale, rtol=1e-5)


def test_fit_of_similarities_recovers_a_table_and_keeps_unused_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    _, start, tokens, targets = fitting_data()
    monkeypatch.setattr(distilling, "_LEARNING_RATE", 2e-2)
    monkeypatch.setattr(distilling, "_BATCH", 512)
    monkeypatch.setattr(distilling, "_EPOCHS", 20)
    reports: list[tuple[int, int | None]] = []
    fitted = distilling._fit_similarities(
        start, tokens, targets, "cpu", lambda _, done, total=None: reports.append((done, total))
    )
    np.testing.assert_array_equal(fitted[28:], start[28:])
    assert similarity_error(fitted, tokens, targets) < 0.5 * similarity_error(start, tokens, targets)
    assert reports[-1] == (40, 40) and len(reports) == 40  # two batches per epoch


def test_other_libraries_load_a_fitted_folder(tiny_folder: Folder, tmp_path: Path) -> None:
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    export(make_encoder(tiny_folder("bert")), tmp_path, "static", dimensions=8, texts=TEXTS * 20)
    encoder = Encoder.load(tmp_path)
    assert tokens(encoder, "where is the hotel") == ["where is the hotel"]  # a phrase
    texts = [*TEXTS, "☃ unknown ☃ hotel", "Hello! Where is the hotel?"]
    ours = encoder.encode(texts)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path), device="cpu").encode(texts), ours, atol=1e-6)
    np.testing.assert_allclose(StaticModel.from_pretrained(tmp_path).encode(texts), ours, atol=1e-6)


def tokens(encoder: Encoder, text: str) -> list[str]:
    encoding = encoder.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    return list(encoding.tokens)


def test_added_words_become_tokens(tiny_folder: Folder) -> None:
    encoder = make_encoder(tiny_folder("bert"))
    plain, table = (distil(encoder, dimensions=None, words=words) for words in ((), ("hotelbook", "hotel")))
    assert len(table.tokenizer) == len(plain.tokenizer) + 1  # one was a token before
    assert tokens(table, "a hotelbook") == [*tokens(plain, "a"), "hotelbook"]
    assert tokens(plain, "hotelbook") == ["[UNK]"]
    every = token_vectors(encoder, table)
    own = encoder.encode(["hotelbook", "hotel"], normalise=False) - every.mean(0)
    cosine = (own[0] @ own[1]) / np.linalg.norm(own, axis=1).prod()
    vectors = table.encode(["hotelbook", "hotel"])
    assert vectors[0] @ vectors[1] == pytest.approx(cosine, abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_phrases_become_tokens(family: str, tiny_folder: Folder) -> None:
    """Nothing is left of the words of a phrase, nor of the spaces around it."""
    encoder = make_encoder(tiny_folder(family))
    table = distil(encoder, dimensions=8, texts=["a table", "cheap hotel"] * 20)
    found = [token.strip() for token in tokens(table, "i want a table, a taxi or a Cheap hotel now")]
    unknown = found[3]
    assert found == ["i", "want", "a table", unknown, "a", "taxi", unknown, "a", "cheap hotel", "now"]
    assert table.tokenizer.convert_tokens_to_ids(unknown) == table.tokenizer.unk_token_id


# ---- damaged folders and unsupported requests


def test_damaged_folder_is_reported(static: Path, tmp_path: Path) -> None:
    for part, message in ((STATIC_FILE, "is missing"), ("tokenizer.json", "is missing")):
        Encoder.load(static).save(tmp_path)
        (tmp_path / part).unlink()
        with pytest.raises(ModelError, match=message):
            Encoder.load(tmp_path)
    for part, content in ((STATIC_FILE, b"no table"), ("tokenizer.json", b"{}")):
        Encoder.load(static).save(tmp_path)
        (tmp_path / part).write_bytes(content)
        with pytest.raises(ModelError, match="cannot load the model"):
            Encoder.load(tmp_path)
    Encoder.load(static).save(tmp_path)
    tensors = load_file(tmp_path / STATIC_FILE)
    save_file({"embeddings": tensors["embeddings"][:-1]}, tmp_path / STATIC_FILE)
    with pytest.raises(ModelError, match=r"token vectors for \d+ tokens"):
        Encoder.load(tmp_path)
    save_file({"others": tensors["embeddings"]}, tmp_path / STATIC_FILE)
    with pytest.raises(ModelError, match="holds no table of token vectors"):
        Encoder.load(tmp_path)


def test_unsupported_exports_are_rejected(
    static: Path, tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="has the pooling 'mean'"):
        Encoder.load(static, pooling="cls")
    for kind in ("onnx", "static"):
        with pytest.raises(ModelError, match="is already exported"):
            export(Encoder.load(static), tmp_path / "new", kind)  # type: ignore[arg-type]
    encoder = make_encoder(tiny_folder("bert"))
    with pytest.raises(ModelError, match="holds something else"):
        export(encoder, static, "onnx")  # whose files would lie beside the table's
    export(encoder, tmp_path / "again", "static", dimensions=8)
    with pytest.raises(ModelError, match=r"already holds an exported model: choose another folder, or use --force"):
        export(encoder, tmp_path / "again", "static", dimensions=4)
    assert Encoder.load(tmp_path / "again").hidden == 8
    export(encoder, tmp_path / "again", "static", dimensions=4, overwrite=True)
    assert Encoder.load(tmp_path / "again").hidden == 4
    monkeypatch.setitem(sys.modules, "model2vec.tokenizer", None)
    with pytest.raises(MissingPackageError, match=re.escape("pip install 'turnwise[static]'")):
        export(encoder, tmp_path / "new", "static")
    assert not (tmp_path / "new").exists()


def test_static_model_loads_without_model2vec(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model2vec", None)
    monkeypatch.setitem(sys.modules, "skeletoken", None)
    assert Encoder.load(static).encode(["hotel"]).shape == (1, 16)


# ---- as a user runs it


def test_the_command(tiny_folder: Folder, sample_world: Callable[[int], Path], tmp_path: Path) -> None:
    options = f"--format static --corpus {sample_world(40)} --words 50 --texts 60 --dimensions 12"
    command = ["export", str(tiny_folder("bert")), "--out", str(tmp_path / "out"), *options.split()]
    output = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).stdout)
    table = Encoder.load(tmp_path / "out")
    assert output["format"] == "static" and output["tokens"] == len(table.tokenizer)
    assert output["bytes"] == (tmp_path / "out" / STATIC_FILE).stat().st_size
    assert output["greatest_difference"] is None and output["min_cosine"] is None
    assert table.hidden == 12
    text = CliRunner().invoke(app, [*command, "--force"], catch_exceptions=False).stdout
    assert re.search(r"^tokens +\d+", text, re.MULTILINE) and "cosine" not in text
    texts = random.Random(0).choices(WORDS, k=5)
    assert np.abs(table.encode(texts)).sum() > 0


def test_turns_are_selected_by_split_and_speaker(tiny_folder: Folder, tmp_path: Path) -> None:
    stores: dict[str, dict[tuple[str | None, str], str]] = {
        "split": {("train", "user"): "kayak", ("train", "system"): "lagoon", ("valid", "speaker_1"): "meadow"},
        "unsplit": {(None, "user"): "nectar", (None, "speaker_2"): "orchid", (None, "system"): "pebble"},
    }
    command = ["export", str(tiny_folder("bert")), "--out", str(tmp_path / "out"), "--force"]
    for name, words in stores.items():
        dialogues = [
            Dialogue(f"{split} {speaker} {number}", (Turn(speaker, word),), split=split)
            for (split, speaker), word in words.items()
            for number in range(5)
        ]
        write_store(dialogues, tmp_path / name)
        command += ["--corpus", str(tmp_path / name)]
    static = [*command, "--format", "static", "--dimensions", "8", "--split", "train"]
    all_words = {word for words in stores.values() for word in words.values()}
    for speakers, expected in {
        (): {"kayak", "lagoon", "nectar", "orchid", "pebble"},
        ("user",): {"kayak", "nectar"},
        ("user", "speaker_2"): {"kayak", "nectar", "orchid"},
    }.items():
        options = [option for speaker in speakers for option in ("--speaker", speaker)]
        assert CliRunner().invoke(app, [*static, *options]).exit_code == 0
        assert all_words & Encoder.load(tmp_path / "out").tokenizer.get_vocab().keys() == expected
    bad = {
        "usr": "no turn is of the speaker 'usr'",
        "speaker_1": "no dialogue has a turn of speaker_1: select another speaker or split",
    }
    for speaker, message in bad.items():
        for options in (["--format", "static", "--texts", "0"], ["--format", "onnx-int8"]):
            done = CliRunner().invoke(app, [*command, *options, "--split", "train", "--speaker", speaker])
            assert done.exit_code == 1
            assert message in str(done.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dimensions", "8"], "needs --format static, got onnx"),
        (["--format", "static", "--words", "5"], "named with --corpus"),
        (["--speaker", "user"], "needs --format static or onnx-int8, got onnx"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", "minilm", "--out", str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", done.output)
    assert not (tmp_path / "out").exists()
