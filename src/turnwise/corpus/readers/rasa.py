"""Rasa's training data in YAML: examples of intents (`nlu.yml`), stories and rules, and the responses of the domain."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.core.errors import first_line
from turnwise.corpus.readers.shared.annotations import Span, slot_spans
from turnwise.corpus.readers.shared.fields import require_text
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


def read(source: CorpusSource) -> Dialogues:
    """Read `nlu.yml`, `stories.yml`, `rules.yml` and `domain.yml`, or any .yml files with these contents.

    Each example is a dialogue of one user turn with its intent, and its entities as slots; `faq/ask_name` stays one
    intent. An entity with a role is the slot 'entity.role'. Synonyms and groups of entities are left out.

    A story or rule is a dialogue if all its user steps have a text and a bot step has one, either by `bot:` or by an
    action with a response (the first text is used). Of other stories, each user text is a dialogue of one turn; steps
    without a text are left out. Files named `test_….yml` have the split 'test', `training_data.yml` has 'train'.
    """
    files = [(path, _read_sections(source, path)) for path in source.files("*.yml", "*.yaml", "*.md")]
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
