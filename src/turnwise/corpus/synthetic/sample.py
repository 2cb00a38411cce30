"""The sample world: dialogues and labelled data sets made from a seed, to try everything without a download.

Users make requests in ten domains; the system asks for what it needs, confirms, acts or fails, and occasionally
contradicts itself. Dialogue `i` depends only on the seed and `i`, so a longer sample begins with a shorter one. Each
set is split as the dialogues are: phrasings of one split never occur in another.

STORE/                                     the store
STORE/intents/{train,valid,test}.jsonl     text, intent, domain, slots, template; including the intent 'out_of_scope'
STORE/responses/{train,valid,test}.txt     label<TAB>turn…<TAB>response, as in response-selection files
STORE/inference/{train,valid,test}.jsonl   dialogues that contradict themselves or do not
STORE/pairs/{train,valid,test}.jsonl       two texts, their similarity (0 to 5), and the relation between them
STORE/triplets/{train,valid,test}.jsonl    a text, a paraphrase, and a contradiction
"""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from turnwise.core.dialogue import OUT_OF_SCOPE, SYSTEM, USER, Dialogue, Slot, Turn
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.templates import Template
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter, provenance
from turnwise.corpus.synthetic.conversation import CONTRADICTIONS, SampleConversation
from turnwise.corpus.synthetic.world import (
    SPLITS,
    Filling,
    Intent,
    LineBuilder,
    Phrasing,
    draw_values,
    load_world,
    pick,
)

SOURCE = "sample"
_CONTRADICTION_PROBABILITY = 0.02

UTTERANCES = {"train": 20, "valid": 5, "test": 10}
OUT_OF_SCOPE_UTTERANCES = {"train": 50, "valid": 50, "test": 250}

RESPONSE_DIALOGUES = 200  # the minimum number of dialogues for the response set, so that there are enough negatives
_PAIRS_PER_INTENT = {"train": 9, "valid": 2, "test": 3}  # pairs of each kind, and triplets, per intent
_MAX_ATTEMPTS = 200  # attempts without a new text after which the phrasings are considered exhausted
#: System turns that negatives are sampled from: their maximum number, and how many the first sample needs.
_POOL_SIZE = 4096
_MIN_POOL_SIZE = 512

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LabelledUtterance:
    """A request with its intent; in `template`, slot values are replaced by the names of their slots in braces."""

    text: str
    intent: str
    split: str
    domain: str
    slots: tuple[Slot, ...]
    template: str


class ResponseExample(NamedTuple):
    """A context and candidates of the next turn; `candidates[positive]` is the true one."""

    context: tuple[str, ...]
    candidates: tuple[str, ...]
    positive: int
    split: str | None


@dataclass(frozen=True, slots=True)
class ConsistencyExample:
    """A conversation up to a statement of the system, and whether that statement is consistent with the rest."""

    turns: tuple[Turn, ...]
    consistent: bool
    kind: str | None  # of contradiction: 'query' misses the question, 'history' conflicts with an earlier turn
    split: str


@dataclass(frozen=True, slots=True)
class RequestPair:
    """Two requests, their similarity (0 to 5), and the relation of the second to the first."""

    first: str
    second: str
    score: float
    relation: str
    split: str


@dataclass(frozen=True, slots=True)
class RequestTriplet:
    """A request, a paraphrase, and a paraphrase with another value."""

    anchor: str
    entailment: str
    contradiction: str
    split: str


def _sample_split(rng: Random) -> str:
    number = rng.random()
    return "train" if number < 0.8 else "valid" if number < 0.9 else "test"


def sample_conversation(seed: int, index: int) -> SampleConversation:
    """Return the conversation of dialogue `index`."""
    rng = Random(f"turnwise:{seed}:{index}")
    split = _sample_split(rng)
    kind = pick(rng, CONTRADICTIONS) if rng.random() < _CONTRADICTION_PROBABILITY else None
    return SampleConversation(rng, split, kind, contradict=kind is not None)


def sample_dialogues(count: int, seed: int) -> Iterator[Dialogue]:
    """Yield the first `count` dialogues for a seed, with the ids 'sample-000000', 'sample-000001', …."""
    for index in range(count):
        conversation = sample_conversation(seed, index)
        yield Dialogue(f"sample-{index:06d}", tuple(conversation.turns), source=SOURCE, split=conversation.split)


def _distinct(items: Iterable[Item], key: Callable[[Item], Hashable], seen: set[Any], count: int) -> Iterator[Item]:
    """Yield the first `count` items whose keys are new."""
    new = (item for item in items if key(item) not in seen)
    for item in islice(new, count):
        seen.add(key(item))
        yield item


def labelled_utterances(seed: int) -> Iterator[LabelledUtterance]:
    """Yield distinct requests for every intent and out of scope; `UTTERANCES` has their numbers by split."""
    world = load_world()
    seen: set[str] = set()
    for split in SPLITS:
        requests = [
            (intent.name, intent.domain, intent.phrasings[split], UTTERANCES[split])
            for intent in world.intents.values()
        ]
        out_of_scope = tuple(request.phrasing for request in world.out_of_scope[split])
        requests.append((OUT_OF_SCOPE, OUT_OF_SCOPE, out_of_scope, OUT_OF_SCOPE_UTTERANCES[split]))
        for intent, domain, phrasings, count in requests:
            rng = Random(f"turnwise:utterances:{seed}:{split}:{intent}")
            lines = _request_lines(rng, phrasings, count)
            for line in _distinct(lines, lambda line: line.text().strip().casefold(), seen, count):
                text, slots = line.text(), tuple(line.slots)
                template = Template.from_turn(Turn(USER, text, slots=slots)).text(names=True)
                yield LabelledUtterance(text, intent, split, domain, slots, template)


def _request_lines(rng: Random, phrasings: Sequence[Phrasing], count: int) -> Iterator[LineBuilder]:
    for attempt in range(count + _MAX_ATTEMPTS):
        line = LineBuilder(rng, noisy=rng.random() < 0.15)
        # a phrasing without placeholders has few wordings, so when texts begin to repeat, more of them get an opener
        if rng.random() < (0.15 if attempt < count else 0.6):
            line.add(pick(rng, load_world().user["opener"]), {})
        phrasing = phrasings[attempt % len(phrasings)]
        line.add(phrasing, draw_values(rng, phrasing.placeholders))
        yield line


def response_examples(dialogues: Iterable[Dialogue], seed: int, candidates: int = 10) -> Iterator[ResponseExample]:
    """Yield response-selection examples: which candidate is the next turn of the system?

    Each dialogue gives one example, at a system turn of more than three words, with `candidates` candidates in held-out
    splits and two in 'train', as in public data sets. Negatives are sampled from the last few thousand system turns of
    other dialogues of the same split, so that memory is bounded; a ValueError says that there are too few.
    """
    if candidates < 2:
        raise ValueError(f"candidates must be at least 2, got {candidates}")
    rng = Random(f"turnwise:responses:{seed}")
    # by split: the newest system turns, and the dialogues that wait until there are enough of these
    texts: defaultdict[str | None, deque[tuple[int, str]]] = defaultdict(lambda: deque(maxlen=_POOL_SIZE))
    waiting: defaultdict[str | None, deque[tuple[int, Dialogue]]] = defaultdict(deque)
    for number, dialogue in enumerate(dialogues):
        pool, queue = texts[dialogue.split], waiting[dialogue.split]
        pool.extend((number, turn.text) for turn in dialogue.turns if _is_response(turn))
        queue.append((number, dialogue))
        while queue and len(pool) >= _MIN_POOL_SIZE:
            yield from _responses(rng, *queue.popleft(), pool, candidates)
    for split, queue in waiting.items():
        # a split that ended before its pool was large enough uses the turns of all splits
        enough = len(texts[split]) >= _MIN_POOL_SIZE
        turns = texts[split] if enough else [turn for pool in texts.values() for turn in pool]
        for number, dialogue in queue:
            yield from _responses(rng, number, dialogue, turns, candidates)


def _is_response(turn: Turn) -> bool:
    return turn.speaker == SYSTEM and len(turn.text.split()) > 3


def _responses(
    rng: Random, number: int, dialogue: Dialogue, texts: Sequence[tuple[int, str]], candidates: int
) -> Iterator[ResponseExample]:
    positions = [position for position, turn in enumerate(dialogue.turns) if position and _is_response(turn)]
    if not positions:
        return
    position = pick(rng, positions)
    truth = dialogue.turns[position].text
    count = 1 if dialogue.split == "train" else candidates - 1

    sample = (pick(rng, texts) for _ in range(count * _MAX_ATTEMPTS))
    others = (text for origin, text in sample if origin != number)
    responses = list(_distinct(others, lambda text: text.strip().casefold(), {truth.strip().casefold()}, count))
    if len(responses) < count:
        raise ValueError(
            f"dialogue {dialogue.id!r}: the other dialogues have too few different system turns for {count} negatives"
        )
    positive = int(rng.random() * (count + 1))
    responses.insert(positive, truth)
    context = tuple(earlier.text for earlier in dialogue.turns[:position])
    yield ResponseExample(context, tuple(responses), positive, dialogue.split)


def inference_examples(count: int, seed: int) -> Iterator[ConsistencyExample]:
    """Yield conversations that end in a consistent or, every second time, a contradictory statement."""
    for index in range(count):
        rng = Random(f"turnwise:inference:{seed}:{index}")
        consistent = index % 2 == 0
        kind = CONTRADICTIONS[index // 2 % 2]
        conversation = SampleConversation(rng, _sample_split(rng), kind, contradict=not consistent)
        assert conversation.statement is not None
        turns = tuple(conversation.turns[: conversation.statement + 1])
        yield ConsistencyExample(turns, consistent, conversation.contradiction, conversation.split)


def text_pairs(seed: int) -> Iterator[RequestPair]:
    """Yield distinct pairs of requests with a graded similarity and the relation between them.

    Same intent and values: 5 (entailment), or 4 if one says less; same intent, other values: 3 (contradiction); another
    intent of the same domain: 1.5 (neutral); another domain: 0 (neutral).
    """
    seen: set[tuple[str, str]] = set()
    for sampler in _samplers("pairs", seed):
        kinds = (sampler.equivalent, sampler.paraphrase, sampler.conflict, sampler.same_domain, sampler.other_domain)
        for kind in kinds:
            pairs = (kind() for _ in range(_MAX_ATTEMPTS))
            different = (pair for pair in pairs if pair is not None and pair.first != pair.second)
            count = _PAIRS_PER_INTENT[sampler.split]
            yield from _distinct(different, lambda pair: (pair.first, pair.second), seen, count)


def text_triplets(seed: int) -> Iterator[RequestTriplet]:
    """Yield distinct requests with two paraphrases made alike: one keeps every value, one changes a value."""
    seen: set[str] = set()
    for sampler in _samplers("triplets", seed):
        triplets = (triplet for _ in range(_MAX_ATTEMPTS) if (triplet := sampler.triplet()) is not None)
        yield from _distinct(triplets, lambda triplet: triplet.anchor, seen, _PAIRS_PER_INTENT[sampler.split])


def _samplers(purpose: str, seed: int) -> Iterator["_RequestSampler"]:
    for split in SPLITS:
        for intent in load_world().intents.values():
            yield _RequestSampler(intent, split, Random(f"turnwise:{purpose}:{seed}:{split}:{intent.name}"))


class _RequestSampler:
    """Random pairs and triplets of requests, of one intent and in the phrasings of one split; None if one fails."""

    def __init__(self, intent: Intent, split: str, rng: Random):
        self.intent = intent
        self.split = split
        self.rng = rng
        self.phrasings = intent.phrasings[split]

    def equivalent(self) -> RequestPair | None:
        """Return the same values in other words; a phrasing without a counterpart gets an opener."""
        first = pick(self.rng, self.phrasings)
        second = pick(self.rng, self._with_same_slots(first))
        values = draw_values(self.rng, first.placeholders)
        rephrased = self._text(second, values, opener=second is first)
        return RequestPair(self._text(first, values), rephrased, 5.0, "entailment", self.split)

    def paraphrase(self) -> RequestPair | None:
        """Return the same values in other words, one text naming values that the other leaves out."""
        first, second = self.rng.sample(self.phrasings, 2)
        placeholders, others = set(first.placeholders), set(second.placeholders)
        if placeholders == others:
            return None
        relation = "entailment" if others and others < placeholders else "neutral"
        return self._pair(first, second, 4.0, relation)

    def conflict(self) -> RequestPair | None:
        """Return two texts with different values of one slot."""
        first, second = pick(self.rng, self.phrasings), pick(self.rng, self.phrasings)
        shared = [slot for slot in first.placeholders if slot in second.placeholders]
        return self._pair(first, second, 3.0, "contradiction", shared) if shared else None

    def same_domain(self) -> RequestPair | None:
        """Return a request, and one of another intent of the domain."""
        other = pick(self.rng, load_world().domains[self.intent.domain].intents)
        return self._unrelated(other, 1.5) if other is not self.intent else None

    def other_domain(self) -> RequestPair | None:
        """Return a request, and one of another domain."""
        other = pick(self.rng, tuple(load_world().intents.values()))
        return self._unrelated(other, 0.0) if other.domain != self.intent.domain else None

    def _unrelated(self, other: Intent, score: float) -> RequestPair | None:
        first, second = pick(self.rng, self.phrasings), pick(self.rng, other.phrasings[self.split])
        return self._pair(first, second, score, "neutral")

    def _pair(
        self, first: Phrasing, second: Phrasing, score: float, relation: str, changed: Sequence[str] = ()
    ) -> RequestPair | None:
        """Return two texts with the same values but for one of the changed slots; None if its value is the same."""
        values = draw_values(self.rng, (*first.placeholders, *second.placeholders))
        others = self._change_value(values, changed) if changed else values
        if changed and others == values:
            return None
        return RequestPair(self._text(first, values), self._text(second, others), score, relation, self.split)

    def triplet(self) -> RequestTriplet | None:
        """Return a request, a paraphrase with its values, and one with another value."""
        first = pick(self.rng, self.phrasings)
        if not first.placeholders:
            return None
        values = draw_values(self.rng, first.placeholders)
        contrary = self._change_value(values, first.placeholders)
        if contrary == values:
            return None
        others = [other for other in self._with_same_slots(first) if other is not first]
        anchor = self._text(first, values)
        entailment, contradiction = (self._text(others or [first], each, not others) for each in (values, contrary))
        return RequestTriplet(anchor, entailment, contradiction, self.split)

    def _with_same_slots(self, phrasing: Phrasing) -> list[Phrasing]:
        return [other for other in self.phrasings if set(other.placeholders) == set(phrasing.placeholders)]

    def _change_value(self, values: dict[str, Filling], slots: Sequence[str]) -> dict[str, Filling]:
        """Draw the value of one of the slots again, which may give the same value."""
        return {**values, **draw_values(self.rng, [pick(self.rng, slots)])}

    def _text(self, phrasing: Phrasing | list[Phrasing], values: dict[str, Filling], opener: bool = False) -> str:
        """Return the text of a phrasing, or of a random one of several."""
        line = LineBuilder(self.rng)
        if opener:
            line.add(pick(self.rng, load_world().user["opener"]), {})
        line.add(pick(self.rng, phrasing) if isinstance(phrasing, list) else phrasing, values)
        return line.text()


# ---- the folder


def write_sample(out: Path, dialogues: int, seed: int, progress: Progress = silent) -> Store:
    """Write the sample world of that size and seed; the same seed gives the same bytes."""
    with StoreWriter(out) as writer:
        for number, dialogue in enumerate(sample_dialogues(dialogues, seed), 1):
            writer.write(dialogue)
            if number % 100 == 0:
                progress("dialogues", number, dialogues)
        options = {"dialogues": dialogues, "seed": seed}
        store = writer.commit(provenance("sample", options, asdict(writer.counts), licence="Apache-2.0"))
    source = store if dialogues >= RESPONSE_DIALOGUES else sample_dialogues(RESPONSE_DIALOGUES, seed)
    responses = (
        (str(example.split), "\t".join((str(int(position == example.positive)), *example.context, candidate)))
        for example in response_examples(source, seed)
        for position, candidate in enumerate(example.candidates)
    )
    data_sets = (
        ("intents", "jsonl", _json_lines(labelled_utterances(seed))),
        ("responses", "txt", responses),
        ("inference", "jsonl", _json_lines(inference_examples(2_000, seed))),
        ("pairs", "jsonl", _json_lines(text_pairs(seed))),
        ("triplets", "jsonl", _json_lines(text_triplets(seed))),
    )
    for number, (name, suffix, lines) in enumerate(data_sets):
        progress("labelled sets", number, len(data_sets))
        _write_splits(out / name, suffix, lines)
    return store


def _json_lines(examples: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for example in examples:
        record = asdict(example)
        yield record.pop("split"), json.dumps(record, ensure_ascii=False)


def _write_splits(folder: Path, suffix: str, rows: Iterable[tuple[str, str]]) -> None:
    """Write rows, each with its split, to one file per split; a file is renamed once it is complete."""
    folder.mkdir(exist_ok=True)
    names = {split: folder / f"{split}.{suffix}" for split in SPLITS}
    with ExitStack() as stack:
        parts = {split: stack.enter_context(replacing(name)) for split, name in names.items()}
        files = {split: stack.enter_context(part.open("w", encoding="utf-8")) for split, part in parts.items()}
        for split, row in rows:
            files[split].write(row + "\n")
