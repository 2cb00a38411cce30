"""Tests the exact output of every reader: ids, speakers, texts, intents, acts, slots and splits."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.layouts import BASES, LAYOUTS, Layout, layout_named
from tests.helpers.reading import read_directly
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.registry import READERS

#: What is left out, and still counted as read.
COUNTED = ("API calls as targets", "turns of a shorter moment of the same conversation")

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
each_base = pytest.mark.parametrize("layout", BASES.values(), ids=BASES)


def test_every_reader_has_a_layout():
    assert set(BASES) == set(READERS)


@each_layout
def test_layout_is_read_as_expected(layout: Layout, imported: Callable):
    """Exactly these dialogues in this order; the counts of the manifest add up, inputs go by relative names."""
    outcome = imported(layout)
    assert outcome.rejected == ()
    assert outcome.dialogues == layout.expected
    manifest, left_out = outcome.manifest, outcome.manifest["left_out"]
    assert (left_out, manifest["facts"]) == (layout.left_out, layout.facts)
    assert (manifest["reader"], manifest["options"]) == (layout.reader, layout.options)
    assert manifest["read"] == {
        "dialogues": manifest["dialogues"],
        "utterances": manifest["utterances"] + sum(left_out.get(name, 0) for name in COUNTED),
    }
    inputs = {file["name"]: file for file in manifest["inputs"]}
    assert layout.main in inputs
    assert {name: file["bytes"] for name, file in inputs.items()} == {name: len(layout.files[name]) for name in inputs}
    assert all(len(file["sha256"]) == 64 for file in inputs.values())


@pytest.mark.parametrize("layout", [it for it in LAYOUTS if len(it.files) == 1], ids=lambda layout: layout.name)
def test_file_reads_like_its_folder(layout: Layout, tmp_path: Path):
    dialogues, _, _ = read_directly(layout.reader, layout.write(tmp_path) / layout.main, **layout.options)
    assert [dialogue.turns for dialogue in dialogues] == [dialogue.turns for dialogue in layout.expected]


@each_base
def test_windows_line_ends_and_byte_order_mark_change_nothing(layout: Layout, tmp_path: Path):
    content = layout.content.removeprefix(b"\xef\xbb\xbf")
    folder = layout.write(tmp_path / "lines", layout.content.replace(b"\n", b"\r\n"))
    assert read_directly(layout.reader, folder, **layout.options)[0] == layout.expected
    if READERS[layout.reader].encoding == "utf-8":
        folder = layout.write(tmp_path / "mark", b"\xef\xbb\xbf" + content)
        dialogues, rejections, _ = read_directly(layout.reader, folder, **layout.options)
        assert (dialogues, rejections) == (layout.expected, [])


def test_unknown_option_is_an_error_that_lists_the_options(tmp_path: Path):
    with pytest.raises(CorpusError, match="has no option 'colour'") as error:
        import_corpus("table", BASES["table"].write(tmp_path / "in"), tmp_path / "out", colour="red")
    assert all(option in str(error.value) for option in READERS["table"].options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("reader", READERS)
def test_every_option_is_explained(reader: str):
    spec = READERS[reader]
    assert spec.help
    assert all(f"{option}:" in spec.help for option in spec.options)
    assert all(parameter.default is not inspect.Parameter.empty for parameter in spec.options.values())


@pytest.mark.parametrize(
    ("reader", "options"),
    [
        ("multiwoz", {"form": "xml"}),
        ("gsim_m2m", {"form": "xml"}),
        ("nli", {"form": "xml"}),
        ("clinc150", {"form": "xml"}),
        ("massive", {"locale": "*"}),
        ("hwu64_kfold", {"fold": "*"}),
        ("convokit", {"order": "random"}),
        ("dialogflow", {"language": "xx"}),
        ("lex", {"locale": "xx"}),
        ("text", {"speakers": {"bob": "boss"}}),
        ("table", {"speakers": {"bob": "speaker_0"}}),
        ("convokit", {"speakers": {"bob": ""}}),
    ],
)
def test_invalid_option_value(reader: str, options: dict, tmp_path: Path):
    with pytest.raises(CorpusError, match=r"must be|map to"):
        import_corpus(reader, BASES[reader].write(tmp_path / "in"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("reader", "variants", "default"),
    [
        ("multiwoz", {"text": "text", "json": "json-by-split"}, "text"),
        ("gsim_m2m", {"unified": "unified", "original": "original"}, "unified"),
    ],
)
def test_one_form_of_a_corpus_is_read(reader: str, variants: dict[str, str], default: str, tmp_path: Path):
    """Both forms may be in one folder; each of them, or the default, is read alone."""
    layouts = {form: layout_named(f"{reader} {name}") for form, name in variants.items()}
    for layout in layouts.values():
        layout.write(tmp_path)
    for form, layout in layouts.items():
        assert read_directly(reader, tmp_path, form=form)[0] == layout.expected
    assert read_directly(reader, tmp_path)[0] == layouts[default].expected
