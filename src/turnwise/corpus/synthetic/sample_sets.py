"""Labelled sets from the sample world: intents, response selection, consistency and similarity of texts.

Each is split as the dialogues are: phrasings of the one split never occur in another.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from turnwise.core.dialogue import SYSTEM, Dialogue, Slot, Turn
from turnwise.corpus.synthetic.content import SPLITS, Intent, Template, World, load_world, pick
from turnwise.corpus.synthetic.conversation import CONTRADICTIONS, OUT_OF_SCOPE, Conversation
from turnwise.corpus.synthetic.line import Filling, Line
from turnwise.corpus.synthetic.sample import draw_split

UTTERANCES = {"train": 20, "valid": 5, "test": 10}
OUT_OF_SCOPE_UTTERANCES = {"train": 50, "valid": 50, "test": 250}
RELATIONS = ("entailment", "neutral", "contradiction")

#: Pairs of texts that each kind of `text_pairs` gets for an intent.
_PAIRS = {"train": 9, "valid": 2, "test": 3}
#: After so many drawings that gave nothing new, the phrasings are taken to be exhausted.
_PATIENCE = 200
#: System turns from which negatives are drawn, and how many have to be there before the first drawing.
_POOL = 4096
_POOL_START = 512


@dataclass(frozen=True, slots=True)
class LabelledUtterance:
    """A request with its intent; `template` is its text with each slot value replaced by the slot's name in braces."""

    text: str
    intent: str
    split: str
    domain: str
    slots: tuple[Slot, ...]
    template: str


@dataclass(frozen=True, slots=True)
class ResponseExample:
    """A context and possible next turns; `candidates[positive]` is what was really said."""

    context: tuple[str, ...]
    candidates: tuple[str, ...]
    positive: int
    split: str | None


@dataclass(frozen=True, slots=True)
class InferenceExample:
    """A conversation up to a statement of the system, and whether that statement is consistent with the rest.

    Attributes:
        turns: the last one is the statement in question.
        consistent: whether it fits.
        kind: why not: 'query' misses what the user asked, 'history' conflicts with what was said before.
        split: 'train', 'valid' or 'test'.
    """

    turns: tuple[Turn, ...]
    consistent: bool
    kind: str | None
    split: str


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two requests, how similar they are (0 to 5), and how the second relates to the first."""

    first: str
    second: str
    score: float
    relation: str
    split: str


@dataclass(frozen=True, slots=True)
class TextTriplet:
    """A request, the same request in other words, and that one with another value."""

    anchor: str
    entailment: str
    contradiction: str
    split: str


def labelled_utterances(seed: int) -> Iterator[LabelledUtterance]:
    """Requests for every intent and some out of scope, each text once.

    Args:
        seed: another seed gives other values and wordings of the same phrasings.

    Yields:
        About 20, 5 and 10 an intent in the splits 'train', 'valid' and 'test'; 50, 50 and 250 out of scope.
    """
    world = load_world()
    seen: set[str] = set()
    for split in SPLITS:
        for intent in world.intents.values():
            rng = Random(f"turnwise:utterances:{seed}:{split}:{intent.name}")
            yield from _utterances(
                world, rng, intent.phrasings[split], UTTERANCES[split], intent.name, intent.domain, split, seen
            )
        rng = Random(f"turnwise:utterances:{seed}:{split}:{OUT_OF_SCOPE}")
        templates = tuple(request.template for request in world.out_of_scope[split])
        count = OUT_OF_SCOPE_UTTERANCES[split]
        yield from _utterances(world, rng, templates, count, OUT_OF_SCOPE, OUT_OF_SCOPE, split, seen)


def _utterances(
    world: World,
    rng: Random,
    templates: tuple[Template, ...],
    count: int,
    intent: str,
    domain: str,
    split: str,
    seen: set[str],
) -> Iterator[LabelledUtterance]:
    found = 0
    for attempt in range(count + _PATIENCE):
        template = templates[attempt % len(templates)]
        line = Line(rng, noisy=rng.random() < 0.15)
        # A phrasing without a place has few wordings, so when drawings begin to repeat, more are introduced by an opener.
        if rng.random() < (0.15 if attempt < count else 0.6):
            line.add(pick(rng, world.user["opener"]), {})
        line.add(template, _draw(world, rng, template.places))
        text = line.text()
        key = text.strip().casefold()
        if key in seen:
            continue
        seen.add(key)
        slots = tuple(line.slots)
        yield LabelledUtterance(text, intent, split, domain, slots, _as_template(text, slots))
        found += 1
        if found == count:
            return


def _draw(world: World, rng: Random, places: Iterable[str]) -> dict[str, Filling]:
    return {place: (place, "", world.slot_types[place].draw(rng)) for place in places}


def _as_template(text: str, slots: tuple[Slot, ...]) -> str:
    parts: list[str] = []
    position = 0
    for slot in slots:
        parts.append(f"{text[position : slot.start]}{{{slot.name}}}")
        position = slot.end
    return "".join(parts) + text[position:]


@dataclass(slots=True)
class _Pool:
    """System turns of one split, and the dialogues that wait until there are enough of them."""

    texts: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_POOL))
    waiting: deque[tuple[int, Dialogue]] = field(default_factory=deque)


def response_examples(dialogues: Iterable[Dialogue], seed: int, candidates: int = 10) -> Iterator[ResponseExample]:
    """Which of some texts is the next turn of the system?

    Each dialogue gives one example, at a system turn of more than three words. The others are system turns of other dialogues
    of the same split, drawn from the last few thousand, so that memory stays bounded however long the stream is.

    Args:
        dialogues: read once, in their order.
        seed: for the drawings.
        candidates: texts to choose from in held-out splits; in 'train' there are two, as in public files of this task.

    Yields:
        Examples, split by split as far as each has been read.

    Raises:
        ValueError: where there are too few different system turns to choose from.
    """
    if candidates < 2:
        raise ValueError(f"a choice needs two candidates or more, not {candidates}")
    rng = Random(f"turnwise:responses:{seed}")
    pools: dict[str | None, _Pool] = {}
    for number, dialogue in enumerate(dialogues):
        pool = pools.setdefault(dialogue.split, _Pool())
        pool.waiting.append((number, dialogue))
        pool.texts.extend((number, turn.text) for turn in dialogue.turns if _is_response(turn))
        while pool.waiting and len(pool.texts) >= _POOL_START:
            yield from _responses(rng, *pool.waiting.popleft(), pool.texts, candidates)
    for pool in pools.values():
        # A split that ended before its pool was full may need the turns of the others.
        texts = (
            pool.texts if len(pool.texts) >= _POOL_START else [text for other in pools.values() for text in other.texts]
        )
        while pool.waiting:
            yield from _responses(rng, *pool.waiting.popleft(), texts, candidates)


def _is_response(turn: Turn) -> bool:
    return turn.speaker == SYSTEM and len(turn.text.split()) > 3


def _responses(
    rng: Random, number: int, dialogue: Dialogue, texts: deque[tuple[int, str]] | list[tuple[int, str]], candidates: int
) -> Iterator[ResponseExample]:
    positions = [position for position, turn in enumerate(dialogue.turns) if position and _is_response(turn)]
    if not positions:
        return
    position = pick(rng, positions)
    truth = dialogue.turns[position].text
    wanted = 1 if dialogue.split == "train" else candidates - 1
    chosen: list[str] = []
    taken = {truth.strip().casefold()}
    for _ in range(wanted * _PATIENCE):
        origin, text = pick(rng, texts)
        key = text.strip().casefold()
        if origin != number and key not in taken:
            taken.add(key)
            chosen.append(text)
            if len(chosen) == wanted:
                break
    else:
        raise ValueError(
            f"dialogue {dialogue.id!r}: the other dialogues hold too few different system turns for {wanted} negatives"
        )
    positive = int(rng.random() * (wanted + 1))
    chosen.insert(positive, truth)
    context = tuple(earlier.text for earlier in dialogue.turns[:position])
    yield ResponseExample(context, tuple(chosen), positive, dialogue.split)


def inference_examples(count: int, seed: int) -> Iterator[InferenceExample]:
    """Conversations that end in a statement which fits or contradicts; every other one contradicts.

    Both kinds of contradiction are equally frequent, and consistent examples end in the same places of a conversation, so
    that neither length nor position gives the label away.

    Args:
        count: how many.
        seed: another seed gives other conversations.
    """
    world = load_world()
    for index in range(count):
        rng = Random(f"turnwise:inference:{seed}:{index}")
        consistent = index % 2 == 0
        conversation = Conversation(
            world, rng, draw_split(rng), CONTRADICTIONS[index // 2 % 2], contradict=not consistent
        )
        assert conversation.statement is not None
        turns = tuple(conversation.turns[: conversation.statement + 1])
        yield InferenceExample(turns, consistent, conversation.contradiction, conversation.split)


def text_pairs(seed: int) -> Iterator[TextPair]:
    """Pairs of requests with a graded similarity and the relation between them; each pair once.

    Same request, same values: 5 (entailment), or 4 where one says less; same request, other values: 3 (contradiction);
    another request of the same domain: 1.5 (neutral); another domain: 0 (neutral).

    Args:
        seed: another seed gives other values and partners.
    """
    world = load_world()
    seen: set[tuple[str, str]] = set()
    for split in SPLITS:
        for intent in world.intents.values():
            rng = Random(f"turnwise:pairs:{seed}:{split}:{intent.name}")
            for make in (_equivalent, _paraphrase, _conflict, _neighbour, _stranger):
                found = 0
                for _ in range(_PATIENCE):
                    pair = make(world, rng, intent, split)
                    if pair is None or pair.first == pair.second or (pair.first, pair.second) in seen:
                        continue
                    seen.add((pair.first, pair.second))
                    yield pair
                    found += 1
                    if found == _PAIRS[split]:
                        break


def text_triplets(seed: int) -> Iterator[TextTriplet]:
    """Requests with a paraphrase that keeps every value and one that changes a value; each request once.

    Both are made in the same way, of another phrasing or, where a phrasing has no counterpart, by an opener, so that nothing but
    the value tells them apart.

    Args:
        seed: another seed gives other values and wordings.
    """
    world = load_world()
    seen: set[str] = set()
    for split in SPLITS:
        for intent in world.intents.values():
            rng = Random(f"turnwise:triplets:{seed}:{split}:{intent.name}")
            found = 0
            for _ in range(_PATIENCE):
                triplet = _triplet(world, rng, intent, split)
                if triplet is None or triplet.anchor in seen:
                    continue
                seen.add(triplet.anchor)
                yield triplet
                found += 1
                if found == _PAIRS[split]:
                    break


def _triplet(world: World, rng: Random, intent: Intent, split: str) -> TextTriplet | None:
    first = pick(rng, intent.phrasings[split])
    if not first.places:
        return None
    values = _draw(world, rng, first.places)
    changed = pick(rng, first.places)
    contrary = {**values, **_draw(world, rng, [changed])}
    if contrary[changed] == values[changed]:
        return None
    others = [
        other for other in intent.phrasings[split] if other is not first and set(other.places) == set(first.places)
    ]

    def again(values: dict[str, Filling]) -> str:
        line = Line(rng)
        if not others:
            line.add(pick(rng, world.user["opener"]), {})
        line.add(pick(rng, others or [first]), values)
        return line.text()

    return TextTriplet(_text(rng, first, values), again(values), again(contrary), split)


def _text(rng: Random, template: Template, values: dict[str, Filling]) -> str:
    line = Line(rng)
    line.add(template, values)
    return line.text()


def _paraphrase(world: World, rng: Random, intent: Intent, split: str) -> TextPair | None:
    """The same values in other words; where one text names values that the other leaves out, it says more."""
    first, second = rng.sample(intent.phrasings[split], 2)
    places, others = set(first.places), set(second.places)
    if places == others:
        return None
    values = _draw(world, rng, (*first.places, *second.places))
    relation = "entailment" if others and others < places else "neutral"
    return TextPair(_text(rng, first, values), _text(rng, second, values), 4.0, relation, split)


def _equivalent(world: World, rng: Random, intent: Intent, split: str) -> TextPair | None:
    """The same values in other words; a phrasing without a counterpart is worded and introduced in another way."""
    first = pick(rng, intent.phrasings[split])
    others = [other for other in intent.phrasings[split] if set(other.places) == set(first.places)]
    second = pick(rng, others)
    values = _draw(world, rng, first.places)
    line = Line(rng)
    if second is first:
        line.add(pick(rng, world.user["opener"]), {})
    line.add(second, values)
    return TextPair(_text(rng, first, values), line.text(), 5.0, "entailment", split)


def _conflict(world: World, rng: Random, intent: Intent, split: str) -> TextPair | None:
    first, second = pick(rng, intent.phrasings[split]), pick(rng, intent.phrasings[split])
    shared = [place for place in first.places if place in second.places]
    if not shared:
        return None
    values = _draw(world, rng, (*first.places, *second.places))
    changed = pick(rng, shared)
    other = {**values, **_draw(world, rng, [changed])}
    if other[changed] == values[changed]:
        return None
    return TextPair(_text(rng, first, values), _text(rng, second, other), 3.0, "contradiction", split)


def _neighbour(world: World, rng: Random, intent: Intent, split: str) -> TextPair | None:
    other = pick(rng, world.domains[intent.domain].intents)
    return _unrelated(world, rng, intent, other, split, 1.5) if other is not intent else None


def _stranger(world: World, rng: Random, intent: Intent, split: str) -> TextPair | None:
    other = pick(rng, tuple(world.intents.values()))
    return _unrelated(world, rng, intent, other, split, 0.0) if other.domain != intent.domain else None


def _unrelated(world: World, rng: Random, intent: Intent, other: Intent, split: str, score: float) -> TextPair:
    first, second = pick(rng, intent.phrasings[split]), pick(rng, other.phrasings[split])
    values = _draw(world, rng, (*first.places, *second.places))
    return TextPair(_text(rng, first, values), _text(rng, second, values), score, "neutral", split)
