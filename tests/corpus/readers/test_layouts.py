"""Tests the exact output of every reader: ids, speakers, texts, intents, acts, slots and splits."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.layouts import BASES, LAYOUTS, Layout
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.registry import READERS


def _name(layout: Layout) -> str:
    return layout.name


def test_every_reader_has_a_layout():
    assert {layout.reader for layout in LAYOUTS} == set(READERS)


def test_layout_names_are_unique():
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_folder_is_read_as_expected(layout: Layout, tmp_path: Path, try_import: Callable):
    """Nothing more, nothing less, in this order; and nothing is rejected."""
    outcome = try_import(layout.reader, layout.write(tmp_path / "in"), **layout.options)
    assert outcome.error == ""
    assert outcome.rejected == ()
    assert outcome.dialogues == layout.expected
    assert outcome.manifest["left_out"] == layout.left_out
    assert outcome.manifest["facts"] == layout.facts


@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_everything_is_accepted_rejected_or_skipped(layout: Layout, tmp_path: Path, try_import: Callable):
    """The manifest's figures add up where nothing is rejected."""
    manifest = try_import(layout.reader, layout.write(tmp_path / "in"), **layout.options).manifest
    left_out = manifest["left_out"]
    whole = left_out.get("dialogues of blocked workers", 0)
    turns = sum(
        left_out.get(name, 0)
        for name in (
            "utterances of blocked workers",
            "API calls as targets",
            "turns of a shorter moment of the same conversation",
        )
    )
    assert manifest["read"] == {
        "dialogues": manifest["dialogues"] + whole,
        "utterances": manifest["utterances"] + turns,
    }


@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_manifest_names_reader_options_and_inputs(layout: Layout, tmp_path: Path, try_import: Callable):
    """Inputs go by their names under the folder, never by this machine's paths."""
    manifest = try_import(layout.reader, layout.write(tmp_path / "in"), **layout.options).manifest
    assert manifest["reader"] == layout.reader
    assert manifest["options"] == layout.options
    assert {file["name"] for file in manifest["inputs"]} <= set(layout.files)
    assert layout.main_file in {file["name"] for file in manifest["inputs"]}
    for file in manifest["inputs"]:
        assert file["bytes"] == len(layout.files[file["name"]])
        assert len(file["sha256"]) == 64


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if len(layout.files) == 1], ids=_name)
def test_file_reads_like_its_folder(layout: Layout, tmp_path: Path, try_import: Callable):
    """Naming the file itself gives the same turns; only ids that hold the path under the folder may differ."""
    folder = layout.write(tmp_path / "in")
    outcome = try_import(layout.reader, folder / layout.main_file, **layout.options)
    assert [dialogue.turns for dialogue in outcome.dialogues] == [dialogue.turns for dialogue in layout.expected]


@pytest.mark.parametrize("reader", READERS)
def test_windows_line_ends_change_nothing(reader: str, tmp_path: Path, try_import: Callable):
    layout = BASES[reader]
    if layout.main_file.endswith((".gz", ".parquet")):
        pytest.skip("binary")
    outcome = try_import(
        reader, layout.write(tmp_path / "in", layout.content.replace(b"\n", b"\r\n")), **layout.options
    )
    assert outcome.dialogues == layout.expected


@pytest.mark.parametrize("reader", [name for name, spec in READERS.items() if spec.encoding == "utf-8"])
def test_byte_order_mark_changes_nothing(reader: str, tmp_path: Path, try_import: Callable):
    """Editors and spreadsheets put one before the first character."""
    layout = BASES[reader]
    content = layout.content.removeprefix(b"\xef\xbb\xbf")
    outcome = try_import(reader, layout.write(tmp_path / "in", b"\xef\xbb\xbf" + content), **layout.options)
    assert outcome.dialogues == layout.expected
    assert outcome.rejected == ()


@pytest.mark.parametrize("reader", READERS)
def test_unknown_option_is_an_error_that_lists_the_options(reader: str, tmp_path: Path):
    layout = BASES[reader]
    with pytest.raises(CorpusError, match="has no option 'colour'") as error:
        import_corpus(reader, layout.write(tmp_path / "in"), tmp_path / "out", colour="red")
    assert all(option in str(error.value) for option in READERS[reader].options)
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


@pytest.mark.parametrize("form", ["text", "json"])
def test_multiwoz_reads_the_given_form(form: str, tmp_path: Path, try_import: Callable):
    """Both forms may lie under one folder; without a word the text is read."""
    text, parts, _ = (layout for layout in LAYOUTS if layout.reader == "multiwoz")
    folder = parts.write(text.write(tmp_path / "in"))
    expected = text.expected if form == "text" else parts.expected
    assert try_import("multiwoz", folder, form=form).dialogues == expected
    assert try_import("multiwoz", folder).dialogues == text.expected


def test_gsim_reads_the_given_form(tmp_path: Path, try_import: Callable):
    unified, original = (layout for layout in LAYOUTS if layout.reader == "gsim_m2m")
    folder = original.write(unified.write(tmp_path / "in"))
    assert try_import("gsim_m2m", folder).dialogues == unified.expected
    assert try_import("gsim_m2m", folder, form="unified").dialogues == unified.expected
    assert try_import("gsim_m2m", folder, form="original").dialogues == original.expected


def test_surrounding_space_is_stripped_and_slots_move(tmp_path: Path, try_import: Callable):
    """`text[start:end] == value` holds in the store whatever the source's margins."""
    for layout in LAYOUTS:
        for dialogue in try_import(layout.reader, layout.write(tmp_path / layout.name), **layout.options).dialogues:
            for spoken in dialogue.turns:
                assert spoken.text == spoken.text.strip()
                assert all(spoken.text[slot.start : slot.end] == slot.value for slot in spoken.slots)
