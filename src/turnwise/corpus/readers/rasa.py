"""Rasa's training data: examples, stories, rules and responses in YAML; examples and recorded conversations in JSON."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.core.errors import first_line
from turnwise.corpus.readers.shared.annotations import Span, slot_spans
from turnwise.corpus.readers.shared.chat_exports import NO_TEXT
from turnwise.corpus.readers.shared.fields import (
    optional,
    optional_time,
    require,
    require_id,
    require_object,
    require_text,
)
from turnwise.corpus.readers.shared.files import json_records
from turnwise.corpus.readers.shared.message_logs import MessageLog
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json

_KEYS = ("nlu", "stories", "rules", "responses")  # the keys of a file that this reader reads
_OTHER_SECTIONS = ("synonym", "regex", "lookup")  # sections of `nlu:` without utterances

#: `[value](entity)`, `[value](entity:synonym)` or `[value]{"entity": …}`.
_ENTITY = re.compile(r"\[([^\[\]]+)\](?:\(([^()\[\]:]+)(?::([^()\[\]]*))?\)|(\{[^{}]*\}))")

#: A heading or an action in Rasa's former Markdown format.
_MARKDOWN = re.compile(r"^##[ \t]*(?:intent|synonym|regex|lookup)[ \t]*:|^[ \t]+- (?:utter|action)_", re.MULTILINE)

_MAX_DEPTH = 50  # deeper YAML is no training data; composing it could exhaust the stack
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as fast
_NULL = "tag:yaml.org,2002:null"


_JSON = ("*.json", "*.jsonl")
_JSON_KEYS = ("rasa_nlu_data", "sender_id")  # files that this reader reads begin with one of them


def read(source: CorpusSource) -> Dialogues:
    """Read `nlu.yml`, `stories.yml`, `rules.yml` and `domain.yml`, or any .yml files with these contents.

    Each example is a dialogue of one user turn with its intent, and its entities as slots; `faq/ask_name` stays one
    intent. An entity with a role is the slot 'entity.role'. Synonyms and groups of entities are left out.

    A story or rule is a dialogue if all its user steps have a text and a bot step has one, either by `bot:` or by an
    action with a response (the first text is used). Of other stories, each user text is a dialogue of one turn; steps
    without a text are left out. Files named `test_….yml` have the split 'test', `training_data.yml` has 'train'.

    JSON files are examples (`rasa_nlu_data`, Rasa 1 and 2), or trackers and their events: `{sender_id, events}` as of
    the HTTP API and MongoDB (Rasa 1 to 3), or one event per line. A dialogue ends where a session starts.
    """
    paths = source.files("*.yml", "*.yaml", "*.md", *_JSON)
    documents = [path for path in paths if path.suffix in (".json", ".jsonl")]
    files = [(path, _read_sections(source, path)) for path in paths if path not in documents]
    responses: dict[str, str] = {}
    for path, sections in files:
        for key, node in sections:
            if key == "responses":
                responses |= _read_responses(source, path, node)
    for path, sections in files:
        file = _TrainingFile(source, path, responses)
        for key, node in sections:
            items: list[yaml.Node] = []
            with source.guard(path, _line(node)):
                items = _sequence(node) if key != "responses" and node.tag != _NULL else []
            for item in items:
                yield from file.read_examples(item) if key == "nlu" else file.read_story(item)
    trackers = _Trackers(source)
    for path in documents:
        if path == source.root or any(f'"{key}"' in source.read_start(path) for key in _JSON_KEYS):
            yield from _read_document(source, path, trackers)
    yield from trackers.log.dialogues()


class _Utterance(NamedTuple):
    """A text with its line; None if the file names only its intent or action."""

    line: int
    speaker: str
    text: str | None
    intent: str | None = None


class _TrainingFile:
    """Reads the sections of one file."""

    def __init__(self, source: CorpusSource, path: Path, responses: dict[str, str]):
        self._source, self._path, self._responses = source, path, responses
        #: Test stories, and the parts that `rasa data split nlu` writes.
        self._split = "test" if path.name.startswith("test_") else "train" if path.stem == "training_data" else None
        self._count = 0

    def read_examples(self, section: yaml.Node) -> Dialogues:
        """Read an item under `nlu:`."""
        examples: list[_Utterance] = []
        with self._source.guard(self._path, _line(section)):
            examples = list(self._section_examples(section))
        for example in examples:
            yield from self._dialogue([example])

    def read_story(self, story: yaml.Node) -> Dialogues:
        """Read an item under `stories:` or `rules:`."""
        steps: list[_Utterance] = []
        with self._source.guard(self._path, _line(story)):
            steps = self._story_steps(story)
        users = [step for step in steps if step.speaker == USER]
        bot_texts = [step for step in steps if step.speaker == SYSTEM and step.text]
        if users and bot_texts and all(step.text for step in users):
            yield from self._dialogue([step for step in steps if step.text])
            return
        self._source.skipped["bot texts of stories in which a user text is missing"] += len(bot_texts)
        for step in users:
            if step.text:
                yield from self._dialogue([step])

    def _section_examples(self, section: yaml.Node) -> Iterator[_Utterance]:
        fields = _mapping(section)
        if "intent" not in fields:
            kind = next((kind for kind in _OTHER_SECTIONS if kind in fields), None)
            if kind is None:
                raise ValueError(f"expected a section with 'intent', {', '.join(map(repr, _OTHER_SECTIONS))}")
            self._source.skipped[f"{kind} sections"] += 1
            return
        intent, node = _text(fields["intent"]), fields["examples"]
        if not isinstance(node, yaml.SequenceNode):
            yield from self._block_examples(node, intent)
            return
        for item in node.value:  # a text, or an object with a text
            with self._source.guard(self._path, _line(item)):
                fields = {"text": item} if isinstance(item, yaml.ScalarNode) else _mapping(item)
                own_intent = _text(fields["intent"]) if "intent" in fields else intent
                yield _Utterance(_text_line(fields["text"]), USER, _text(fields["text"]), own_intent)

    def _block_examples(self, node: yaml.Node, intent: str) -> Iterator[_Utterance]:
        """Read examples that are lines of one text, each after a dash."""
        first, step = _text_line(node), int(_style(node) == "|")
        for number, text in enumerate(_text(node).splitlines()):
            line, example = first + number * step, text[1:].strip()
            if not text.strip():
                continue
            if text.startswith("-") and example:
                yield _Utterance(line, USER, example, intent)
            else:
                reason = "the example is empty" if text.startswith("-") else "an example must start with '- '"
                self._source.reject(self._path, line, "turn", reason, text=text)

    def _story_steps(self, story: yaml.Node) -> list[_Utterance]:
        """Return the user and bot steps of a story; those without a text are counted as left out."""
        steps: list[_Utterance] = []
        intent = ""
        for node in _sequence(_mapping(story)["steps"]):
            if isinstance(node, yaml.ScalarNode):  # the '...' of a rule
                continue
            fields = _mapping(node)
            alternatives = [_mapping(each) for each in _sequence(fields["or"])] if "or" in fields else [fields]
            for step in alternatives:
                if "user" in step or "intent" in step:
                    steps.append(self._user_step(node, step))
                    intent = steps[-1].intent or ""
                elif "bot" in step:
                    steps.append(_Utterance(_text_line(step["bot"]), SYSTEM, _text(step["bot"])))
                elif "action" in step:
                    steps.append(self._action_step(node, _text(step["action"]), intent))
            if len(alternatives) > 1:  # which of them is said is open, so the story is no dialogue
                steps.append(_Utterance(_line(node), USER, None))
        return steps

    def _user_step(self, node: yaml.Node, step: dict[str, yaml.Node]) -> _Utterance:
        intent = _text(step["intent"]).removeprefix("/") if "intent" in step else None
        text = _text(step["user"]).strip() if "user" in step else ""
        if not text or text.startswith("/"):  # '/greet' stands for the intent
            self._source.skipped["user steps without a text"] += 1
            return _Utterance(_line(node), USER, None, intent)
        return _Utterance(_text_line(step["user"]), USER, text, intent)

    def _action_step(self, node: yaml.Node, action: str, intent: str) -> _Utterance:
        """Return the response to an action; `utter_faq` stands for the response to the intent `faq/…` before it."""
        is_retrieval = action == f"utter_{intent.partition('/')[0]}"
        text = self._responses.get(action) or (self._responses.get(f"utter_{intent}") if is_retrieval else None)
        self._source.skipped["actions without a text"] += text is None
        return _Utterance(_line(node), SYSTEM, text)

    def _dialogue(self, utterances: Sequence[_Utterance]) -> Dialogues:
        self._count += 1
        with self._source.dialogue(self._path, utterances[0].line, self._split) as builder:
            builder.id = f"{self._source.relative_name(self._path)}/{self._count}"
            for each in utterances:
                text, spans = self._parse_entities(each.text or "") if each.speaker == USER else (each.text or "", [])
                builder.add_turn(each.speaker, text, each.intent, spans=spans, line=each.line)
        yield from builder.result()

    def _parse_entities(self, example: str) -> tuple[str, list[Span]]:
        """Return the text of an example without annotations, and the spans of its entities."""
        pieces: list[tuple[str, str]] = []
        position = 0
        for match in _ENTITY.finditer(example):
            value, name, synonym, attributes = match.groups()
            if attributes:
                name, synonym = self._parse_attributes(attributes)
            self._source.skipped["synonyms of entities"] += synonym not in (None, "", value)
            pieces += [(example[position : match.start()], ""), (value, name)]
            position = match.end()
        pieces.append((example[position:], ""))
        text = "".join(piece for piece, _ in pieces)
        return text, slot_spans(pieces, text)

    def _parse_attributes(self, attributes: str) -> tuple[str, str]:
        """Return the slot and the synonym of an entity that is annotated with a JSON object."""
        fields = parse_json(attributes)
        name = require_text(fields, "entity")
        self._source.skipped["groups of entities"] += "group" in fields
        role = require_text(fields, "role") if "role" in fields else ""
        return (f"{name}.{role}" if role else name), str(fields.get("value", ""))


# ---- files


def _read_sections(source: CorpusSource, path: Path) -> list[tuple[str, yaml.Node]]:
    """Return the sections of a file by their keys; a file that cannot be read is rejected."""
    if path.suffix == ".md" and path != source.root and not _MARKDOWN.search(source.read_start(path)):
        return []  # documentation
    text = source.read_text(path)
    if text is None:
        return []
    if path.suffix == ".md":
        advice = "convert it to YAML by `rasa data convert nlu -f yaml` of Rasa 2"
        source.reject(path, None, "file", f"Rasa's former Markdown format is not supported: {advice}")
        return []
    try:
        root = _compose(text)
        sections = [] if root is None else [(key, node) for key, node in _pairs(root) if key in _KEYS]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        parts = (getattr(error, "context", None), getattr(error, "problem", None))
        problem, line = ", ".join(filter(None, parts)) or first_line(error), None if mark is None else mark.line + 1
        source.reject(path, line, "file", f"not valid YAML: {problem}; the file was not read")
        return []
    except ValueError as error:
        source.reject(path, 1, "file", str(error))
        return []
    if not sections and path == source.root:
        source.reject(path, 1, "file", f"the file has none of the keys {', '.join(_KEYS)}")
    return sections


def _read_responses(source: CorpusSource, path: Path, node: yaml.Node) -> dict[str, str]:
    """Return the first text of each response; a response may have none, such as a picture."""
    responses = {}
    with source.guard(path, _line(node)):
        for name, variations in [] if node.tag == _NULL else _pairs(node):
            with source.guard(path, _line(variations)):
                fields = map(_mapping, _sequence(variations))
                text = next((_text(each["text"]) for each in fields if "text" in each), None)
                if text is not None:
                    responses[name] = text
    return responses


# ---- JSON


def _read_document(source: CorpusSource, path: Path, trackers: "_Trackers") -> Dialogues:
    """Yield the examples of a file; add the trackers and events in it."""
    for line, record in json_records(source, path):
        with source.guard(path, line):
            if not isinstance(record, dict) or not any(key in record for key in _JSON_KEYS):
                raise ValueError(f"expected an object with {' or '.join(map(repr, _JSON_KEYS))}")
            if "sender_id" in record:
                events = require(record, "events", list) if "events" in record else [record]
                for event in events:
                    trackers.log.at(path, line)
                    trackers.add(require_id(record, "sender_id"), require_object(event, "the event"))
                continue
            examples = require(require(record, "rasa_nlu_data", dict), "common_examples", list)
            for number, example in enumerate(examples, 1):
                with source.dialogue(path, line) as builder:
                    builder.id = f"{source.relative_name(path)}/{number}"
                    text = require_text(example, "text")
                    entities = optional(example, "entities", list)
                    for each in entities:
                        value = text[require(each, "start", int) : require(each, "end", int)]
                        source.skipped["synonyms of entities"] += each.get("value", value) != value
                    intent = optional(example, "intent", str) or None
                    builder.add_turn(USER, text, intent, spans=[_json_span(each) for each in entities])
                yield from builder.result()


def _json_span(entity: dict[str, Any]) -> Span:
    name, role = require_text(entity, "entity"), optional(entity, "role", str)
    return (f"{name}.{role}" if role else name), entity["start"], entity["end"]


class _Trackers:
    """Adds the events of recorded conversations to a log; a session is a dialogue."""

    def __init__(self, source: CorpusSource):
        self.log = MessageLog(source)
        self._sessions: dict[str, int] = {}  # how many have started, by sender
        self._spoken: set[str] = set()  # names of sessions with a message

    def add(self, sender: str, event: dict[str, Any]) -> None:
        """Add an event, if it is a message."""
        session = self._sessions.get(sender, 1)
        name = sender if session == 1 else f"{sender}/{session}"
        kind = event.get("event")
        if kind == "session_started":
            self._sessions[sender] = session + (name in self._spoken)
        if kind not in ("user", "bot"):
            return
        self._spoken.add(name)
        time, text = optional_time(event, "timestamp"), optional(event, "text", str).strip()
        if not text or (kind == "user" and text.startswith("/")):  # '/greet' stands for the intent
            self.log.leave_out(name, time, "user steps without a text" if kind == "user" else NO_TEXT)
            return
        parsed = optional(optional(event, "parse_data", dict), "intent", dict)
        intent = optional(parsed, "name", str) or None if kind == "user" else None
        self.log.add(name, time, kind, text, intent=intent)


# ---- YAML nodes, which know their lines


def _compose(text: str) -> yaml.Node | None:
    """Return the root of a YAML document; raise a ValueError if it is nested too deeply."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError("the YAML is nested too deeply to be training data")
    root: yaml.Node | None = yaml.compose(text, _LOADER)
    return root


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _style(node: yaml.Node) -> str | None:
    return node.style if isinstance(node, yaml.ScalarNode) else None


def _text_line(node: yaml.Node) -> int:
    """Return the line of a text; a block begins after the line of its `|` or `>`."""
    return _line(node) + (_style(node) in ("|", ">"))


def _pairs(node: yaml.Node) -> list[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"expected keys and values, got {_describe(node)}")
    return [(_text(key), value) for key, value in node.value]


def _mapping(node: yaml.Node) -> dict[str, yaml.Node]:
    return dict(_pairs(node))


def _sequence(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"expected a list, got {_describe(node)}")
    return list(node.value)


def _text(node: yaml.Node) -> str:
    """Return a text as it is written: Rasa reads `yes` and `no` as texts, not as booleans."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL or not node.value.strip():
        raise ValueError(f"expected a text, got {_describe(node)}")
    return str(node.value)


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "a text" if node.value.strip() and node.tag != _NULL else "nothing"
    return "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"
