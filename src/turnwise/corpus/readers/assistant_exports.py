"""Exports of Dialogflow, Amazon Lex, LUIS and CLU: each utterance is a dialogue of one user turn."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.core.dialogue import OUT_OF_SCOPE, USER
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.annotations import Span, slot_spans, split_of, utf16_spans
from turnwise.corpus.readers.shared.fields import require, require_text
from turnwise.corpus.readers.shared.files import unpacked
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_ES_PHRASES = re.compile(r"(.+)_usersays_([A-Za-z]+(?:-[A-Za-z0-9]+)*)\.json")
_CX_PHRASES = "trainingPhrases"
_LEX_INTENT = "Intent.json"
_LEX_PLACEHOLDER = re.compile(r"\{[^{}]+\}")
_NONE_INTENT = "None"  # LUIS' and CLU's intent of utterances that belong to no other intent


# ---- Dialogflow


class _PhraseFile(NamedTuple):
    """The training phrases of an intent in one language."""

    path: Path
    language: str
    intent: str  # the intent's name as it is in the path
    definition: Path  # the file with the intent's own settings
    is_cx: bool


def _phrase_file(path: Path) -> _PhraseFile | None:
    if path.parent.name == _CX_PHRASES:
        folder = path.parent.parent
        return _PhraseFile(path, path.stem, folder.name, folder / f"{folder.name}.json", is_cx=True)
    if match := _ES_PHRASES.fullmatch(path.name):
        return _PhraseFile(path, match[2], match[1], path.with_name(f"{match[1]}.json"), is_cx=False)
    return None


def read_dialogflow(source: CorpusSource, *, language: str = "") -> Dialogues:
    """Read the training phrases of an agent, exported as a .zip file or unpacked.

    Dialogflow ES: `intents/NAME_usersays_LANGUAGE.json`; CX: `intents/NAME/trainingPhrases/LANGUAGE.json`. Annotated
    parts are slots, named by their parameter. Phrases of fallback intents are negative examples: they have the intent
    'out_of_scope'. Template phrases ('@sys.city:city') are left out.

    Options:
        language: the language to read, such as 'en'; needed if the agent has several.
    """
    with unpacked(source, "*.json") as source:
        paths = source.files("*_usersays_*.json", f"{_CX_PHRASES}/*.json")
        files = [file for file in map(_phrase_file, paths) if file]
        if not files:
            raise CorpusError("no training phrases: expected the folder of an agent, or a file NAME_usersays_en.json")
        selected = _select("language", language, {file.language for file in files})
        for file in files:
            if file.language == selected:
                yield from _read_phrases(source, file)
        _describe_intents_without_phrases(source, [file for file in files if file.is_cx and file.language == selected])


def _read_phrases(source: CorpusSource, file: _PhraseFile) -> Dialogues:
    intent = _dialogflow_intent(source, file)
    parts_key, slot_key = ("parts", "parameterId") if file.is_cx else ("data", "alias")
    for number, line, phrase in _phrases(source, file):
        if isinstance(phrase, dict) and phrase.get("isTemplate") is True:
            source.skipped["template phrases"] += 1
            continue
        with source.dialogue(file.path, line) as builder:
            builder.id = f"{source.relative_name(file.path)}/{phrase.get('id') or number}"
            pieces = [(part["text"], part.get(slot_key) or "") for part in phrase[parts_key]]
            text = "".join(piece for piece, _ in pieces)
            if not text.strip():
                raise ValueError("the phrase is empty")
            builder.add_turn(USER, text, intent, spans=slot_spans(pieces, text))
        yield from builder.result()


def _phrases(source: CorpusSource, file: _PhraseFile) -> Iterator[tuple[int, int, Any]]:
    """Yield the phrases of a file, each with its number and line."""
    if not file.is_cx:
        for number, (line, phrase) in enumerate(source.json_array(file.path), 1):
            yield number, line, phrase
        return
    lists = [(line, value) for line, (key, value) in source.json_object(file.path) if key == _CX_PHRASES]
    if not lists:
        source.reject(file.path, 1, "file", f"{_CX_PHRASES!r} is missing")
    for line, phrases in lists:
        for number, phrase in _numbered(source, file.path, line, _CX_PHRASES, phrases):
            yield number, line, phrase


def _dialogflow_intent(source: CorpusSource, file: _PhraseFile) -> str:
    """Return the intent's name; 'out_of_scope' for a fallback intent."""
    if source.root.is_file() or not file.definition.is_file():
        return file.intent
    fields = dict(entry for _, entry in source.json_object(file.definition))
    if fields.get("isFallback" if file.is_cx else "fallbackIntent") is True:
        return OUT_OF_SCOPE
    name = fields.get("displayName" if file.is_cx else "name")
    intent = name if isinstance(name, str) and name.strip() else file.intent
    source.describe_intent(intent, fields.get("description") if file.is_cx else None)
    return intent


def _describe_intents_without_phrases(source: CorpusSource, files: Sequence[_PhraseFile]) -> None:
    read = {file.definition for file in files}
    folders = {file.definition.parents[1] for file in files} if source.root.is_dir() else ()
    for path in sorted({path for folder in folders for path in folder.glob("*/*.json")} - read):
        if path.stem == path.parent.name:
            _dialogflow_intent(source, _PhraseFile(path, "", path.stem, path, is_cx=True))


# ---- Amazon Lex


def read_lex(source: CorpusSource, *, locale: str = "") -> Dialogues:
    """Read the sample utterances of a bot, exported as a .zip file or unpacked.

    Lex V2: `BotLocales/LOCALE/Intents/NAME/Intent.json`; V1: one JSON file for a bot or an intent. An export has no
    values of slots: placeholders such as '{City}' stay in the text as they are written, and the import reports how many
    utterances have some. Answers to the prompts of slots are not read.

    Options:
        locale: the locale to read, such as 'en_US'; needed if the bot has several.
    """
    with unpacked(source, "*.json") as source:
        files = source.files("*.json")
        if intent_files := [path for path in files if path.name == _LEX_INTENT]:
            selected = _select("locale", locale, {_lex_locale(path) for path in intent_files})
            files = [path for path in intent_files if _lex_locale(path) == selected]
        for path in files:
            entries = {key: (line, value) for line, (key, value) in source.json_object(path)}
            read_file = _read_lex_v2 if path.name == _LEX_INTENT else _read_lex_v1
            yield from read_file(source, path, entries)


def _lex_locale(path: Path) -> str:
    """Return the folder under `BotLocales`; '' if the export is not that of a whole bot."""
    parents = [parent.name for parent in path.parents]
    return parents[parents.index("BotLocales") - 1] if "BotLocales" in parents else ""


def _read_lex_v2(source: CorpusSource, path: Path, entries: dict[str, tuple[int, Any]]) -> Dialogues:
    name = entries.get("name", (1, None))[1]
    intent = name if isinstance(name, str) and name.strip() else path.parent.name
    if "parentIntentSignature" not in entries:  # built-in intents have no utterances
        source.describe_intent(intent, entries.get("description", (1, None))[1])
    return _read_lex_intent(source, path, intent, *entries.get("sampleUtterances", (1, None)))


def _read_lex_v1(source: CorpusSource, path: Path, entries: dict[str, tuple[int, Any]]) -> Dialogues:
    if "resource" not in entries:
        source.reject(path, 1, "file", "neither an intent of Lex V2 (Intent.json) nor a Lex V1 export ('resource')")
        return
    line, resource = entries["resource"]
    with source.guard(path, line):
        for intent in require(resource, "intents", list) if "intents" in resource else [resource]:
            with source.guard(path, line):
                name = require_text(intent, "name")
                source.describe_intent(name, intent.get("description"))
                yield from _read_lex_intent(source, path, name, line, intent.get("sampleUtterances"))


def _read_lex_intent(source: CorpusSource, path: Path, intent: str, line: int, utterances: Any) -> Dialogues:
    if utterances is None:
        source.skipped["intents without sample utterances"] += 1
        return
    for number, item in _numbered(source, path, line, "sampleUtterances", utterances):
        with source.dialogue(path, line) as builder:
            builder.id = f"{source.relative_name(path)}/{intent}/{number}"
            text = item if isinstance(item, str) else require_text(item, "utterance")
            if _LEX_PLACEHOLDER.search(text):
                source.count_fact("utterances with placeholders of slots, kept as written")
            builder.add_turn(USER, text, intent)
        yield from builder.result()


# ---- LUIS and CLU


def read_luis(source: CorpusSource) -> Dialogues:
    """Read LUIS apps, and projects of its successor CLU (Conversational Language Understanding), as JSON files.

    Entities are slots: an entity with a role is the slot 'entity.role'; nested entities are left out, and so are
    patterns. Their offsets count UTF-16 code units. Utterances of the intent 'None' belong to no other intent: they
    have the intent 'out_of_scope'. CLU's `dataset` is the split.
    """
    for path in source.files("*.json"):
        lists: list[tuple[int, Any, bool]] = []
        for line, (key, value) in source.json_object(path):
            if key == "utterances":
                lists.append((line, value, False))
            elif key == "assets":
                with source.guard(path, line):
                    lists.append((line, value["utterances"], True))
                    for intent in value.get("intents") or ():
                        if (name := require_text(intent, "category")) != _NONE_INTENT:
                            source.describe_intent(name, intent.get("description"))
            elif key == "patterns" and isinstance(value, list):
                source.skipped["patterns"] += len(value)
        if not lists:
            source.reject(path, 1, "file", "no utterances: expected 'utterances' (LUIS) or 'assets' (CLU)")
        for line, utterances, is_clu in lists:
            for number, record in _numbered(source, path, line, "utterances", utterances):
                yield from _read_luis_utterance(source, path, line, number, record, is_clu)


def _read_luis_utterance(
    source: CorpusSource, path: Path, line: int, number: int, record: Any, is_clu: bool
) -> Dialogues:
    with source.dialogue(path, line) as builder:
        builder.id = f"{source.relative_name(path)}/{number}"
        text, intent = require_text(record, "text"), require_text(record, "intent")
        if record.get("dataset") is not None:
            builder.split = split_of(require_text(record, "dataset"))
        entities = record.get("entities") or []
        if any(entity.get("children") for entity in entities):
            source.skipped["utterances whose nested entities are left out"] += 1
        spans = [_entity_span(entity, is_clu) for entity in entities]
        intent = OUT_OF_SCOPE if intent == _NONE_INTENT else intent
        builder.add_turn(USER, text, intent, spans=list(utf16_spans(text, spans)))
    yield from builder.result()


def _entity_span(entity: Any, is_clu: bool) -> Span:
    if is_clu:
        start = require(entity, "offset", int)
        return require_text(entity, "category"), start, start + require(entity, "length", int)
    name, role = require_text(entity, "entity"), entity.get("role")
    start, last = require(entity, "startPos", int), require(entity, "endPos", int)
    return (f"{name}.{role}" if role else name), start, last + 1


# ---- shared


def _numbered(source: CorpusSource, path: Path, line: int, key: str, values: Any) -> Iterator[tuple[int, Any]]:
    """Yield the numbered elements of a list; another type is rejected."""
    if isinstance(values, list):
        yield from enumerate(values, 1)
    else:
        source.reject(path, line, "file", f"{key!r} must be a list, got {type(values).__name__}")


def _select(option: str, value: str, available: set[str]) -> str:
    """Return the only available value, or the requested one; raise a CorpusError if there is none or are several."""
    names = ", ".join(sorted(available))
    if value and value not in available:
        raise CorpusError(f"{option} must be one of {names}, got {value!r}")
    if not value and len(available) > 1:
        raise CorpusError(f"the export has {names}: choose one by --set {option}={min(available)}")
    return value or next(iter(available))
