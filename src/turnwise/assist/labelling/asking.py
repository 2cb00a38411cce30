"""Which utterances to ask a person about next: those whose label helps most.

A label helps with the utterance itself as far as it is unsure, and with those around it as far as they are unsure too and nothing
near them has been judged yet. With k(r, s) the likeness of two utterances, from 0 (not alike) to 1 (the same),
the worth of asking about r is

    u(r) · Σ_s u(s) · n(s) · max(0, k(r, s) − c(s))

- u is how unsure an utterance is: 1 less the margin between the likeliest label and its rival, where the rivals are all other
  labels, groups that have no name yet, and "none of these". What most likely belongs to a group without a name is wholly unsure.
- n is how much an utterance counts: 1 + ln of how often it was said.
- c(s) is how well s is covered: its likeness to the most alike utterance that has been judged, or was just chosen. So questions
  differ from each other and from what was asked before.

Questions are chosen one by one, each the best given those before it. Where there are many utterances, sums run over a
sample, and questions are chosen among others that are drawn by how unsure they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from turnwise.assist.labelling.grouping import NONE, Grouping

#: Utterances over which sums run, and among which questions are chosen.
SAMPLE = 2_000

#: Utterances by which it is measured how alike all are to each other.
_PAIRS = 1_000

#: The share of pairs that are surely of different kinds, as long as no kind makes up seven eighths of all.
_DIFFERENT = 0.25

#: From this cosine on, two are the same but for rounding.
_SAME = 0.999

#: A label is e times likelier than another for so much of the way from "not alike" to "the same".
_STEP = 1 / 8

#: So much worth has a question where everything is covered: the most unsure one comes first then.
_LITTLE = 1e-6

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Question:
    """An utterance whose label would help.

    Attributes:
        row: which one.
        text: what was said.
        guess: the label that it seems to have; None: nothing alike has a label.
        reason: why it is asked about, in a sentence.
    """

    row: int
    text: str
    guess: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the labels so far say of utterances.

    Attributes:
        guess: the likeliest label's place among `names`; NONE: a group without a name, or nothing, is likelier.
        rival: the next likeliest label's place; NONE: no label is.
        unsure: from 0, beyond doubt, to 1.
        names: the labels.
    """

    guess: npt.NDArray[np.int64]
    rival: npt.NDArray[np.int64]
    unsure: npt.NDArray[np.float64]
    names: tuple[str, ...]

    def label(self, place: int) -> str | None:
        """The label at a place; None where that is NONE."""
        return None if place == NONE else self.names[place]


class Asker:
    """Chooses questions over vectors that do not change, while labels do.

    Attributes:
        alike: the cosine from which on two utterances are alike.
    """

    def __init__(self, vectors: npt.NDArray[np.floating], counts: npt.NDArray[np.integer], seed: int = 0):
        """Measures how alike the vectors are to each other.

        Args:
            vectors: of the utterances (rows, size); they need not be normalised.
            counts: how often each was said.
            seed: of the sample.
        """
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._vectors: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
        self._counts = counts
        rows = len(vectors)
        random = np.random.default_rng(seed)
        drawn = random.permutation(rows)[:SAMPLE]
        self._sample = np.sort(drawn)
        self.alike = _alike(self._vectors[drawn[:_PAIRS]])
        self._luck = random.gumbel(size=rows)

    def ask(self, texts: Sequence[str], state: Grouping, count: int) -> list[Question]:
        """Questions, the most helpful first; fewer where there are no more utterances that nobody has judged.

        Args:
            texts: of the rows.
            state: the labels so far.
            count: how many.
        """
        opinion = self.opinion(state.groups, state.names)
        asked = []
        for row in self.choose(opinion, state.confirmed, count).tolist():
            label = state.names.get(int(state.groups[row]))
            asked.append(
                Question(row, texts[row], opinion.label(opinion.guess[row]), self._reason(row, opinion, label))
            )
        return asked

    def _reason(self, row: int, opinion: Opinion, label: str | None) -> str:
        guess, rival = opinion.label(opinion.guess[row]), opinion.label(opinion.rival[row])
        like = self.like(row)
        stands = f"it stands for {like:,} utterances alike" if like > 1 else "nothing else is like it"
        if guess is None:
            why = (
                "Nothing like it has a label yet"
                if rival is None
                else f"It is like nothing that has a label, {rival} at best"
            )
        elif label is not None and guess != label:
            why = f"It is labelled {label} and is more like {guess}"
        elif rival is None:
            why = f"It may be {guess}, or something that has no name yet"
        else:
            why = f"It may be {guess} or {rival}"
        return f"{why}; {stands}."

    def opinion(self, groups: npt.NDArray[np.int32], names: Mapping[int, str]) -> Opinion:
        """What is thought of every utterance, by the centres of labels and of groups without a name.

        Args:
            groups: of every row.
            names: of the groups that have one.
        """
        labels = tuple(sorted({names[int(group)] for group in np.unique(groups) if int(group) in names}))
        nameless = [int(group) for group in np.unique(groups) if group != NONE and int(group) not in names]
        place = {label: number for number, label in enumerate(labels)}
        classes = {group: len(labels) + number for number, group in enumerate(nameless)}
        numbers, inverse = np.unique(groups, return_inverse=True)
        class_of = np.array([place[names[g]] if g in names else classes.get(g, NONE) for g in numbers.tolist()])[
            inverse
        ]
        centres = _centres(self._vectors, class_of, len(labels) + len(nameless))
        # "none of these" lies where likeness begins: what is far from all centres is unsure
        cosines = np.column_stack([self._vectors @ centres.T, np.full(len(groups), self.alike, np.float32)])
        scores = np.exp((cosines - cosines.max(1, keepdims=True)).astype(np.float64) / ((1 - self.alike) * _STEP))
        chances = scores / scores.sum(1, keepdims=True)
        return _opinion(chances, labels)

    def choose(self, opinion: Opinion, confirmed: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int64]:
        """The rows to ask about, the most helpful first; fewer where there are no more that nobody has judged.

        Args:
            opinion: what is thought of the utterances.
            confirmed: those that have been judged and are not asked about again.
            count: how many.
        """
        open_rows = np.flatnonzero(~confirmed)
        # the greatest sums with Gumbel's noise are a draw without replacement, here by how unsure utterances are
        luck = np.log(opinion.unsure[open_rows] + _LITTLE) + self._luck[open_rows]
        candidates = np.sort(open_rows[np.argsort(-luck, kind="stable")[:SAMPLE]])
        sample = self._sample
        mass = opinion.unsure[sample] * (1 + np.log(self._counts[sample]))
        likeness = self._likeness(self._vectors[candidates], self._vectors[sample])
        judged = self._likeness(self._vectors[confirmed], self._vectors[sample])
        covered = judged.max(0, initial=0.0)
        chosen: list[int] = []
        free = np.ones(len(candidates), np.bool_)
        for _ in range(min(count, len(candidates))):
            gains = np.maximum(likeness - covered, 0) @ mass
            best = int(np.argmax(np.where(free, (gains + _LITTLE) * (opinion.unsure[candidates] + _LITTLE), -1.0)))
            free[best] = False
            covered = np.maximum(covered, likeness[best])
            chosen.append(int(candidates[best]))
        return np.array(chosen, np.int64)

    def like(self, row: int) -> int:
        """How many utterances are alike to one, repeats and itself counted."""
        near = self._vectors @ self._vectors[row] >= self.alike
        near[row] = True
        return int(self._counts[near].sum())

    def _likeness(self, some: Vectors, others: Vectors) -> Vectors:
        likeness: Vectors = some @ others.T
        likeness -= np.float32(self.alike)
        likeness /= np.float32(1 - self.alike)
        return np.maximum(likeness, 0, out=likeness)


def _alike(vectors: Vectors) -> float:
    """The cosine from which on two are alike: halfway from pairs of different kinds to an utterance and its nearest other."""
    if len(vectors) < 2:
        return _SAME
    cosines = vectors @ vectors.T
    apart = np.quantile(cosines[np.triu_indices(len(vectors), 1)], _DIFFERENT)
    np.fill_diagonal(cosines, -1)
    return min(float(apart + np.median(cosines.max(1))) / 2, _SAME)


def _centres(vectors: Vectors, classes: npt.NDArray[np.int64], number: int) -> Vectors:
    """The directions of the means of classes (number, size); rows of the class NONE are in none."""
    rows = np.flatnonzero(classes != NONE)
    members = csr_matrix((np.ones(len(rows), np.float32), (classes[rows], rows)), shape=(number, len(vectors)))
    sums = np.asarray(members @ vectors)
    directions: Vectors = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return directions


def _opinion(chances: npt.NDArray[np.float64], labels: tuple[str, ...]) -> Opinion:
    """Reads chances: the first columns are the labels', the others those of groups without a name and of none of these."""
    rows = np.arange(len(chances))
    none = np.full(len(chances), NONE)
    if not labels:
        return Opinion(none, none, np.ones(len(chances)), labels)
    best = chances[:, : len(labels)].argmax(1)
    others = chances.copy()
    others[rows, best] = 0
    margin = np.maximum(chances[rows, best] - others.max(1), 0)
    rival = others.argmax(1)
    return Opinion(np.where(margin > 0, best, NONE), np.where(rival < len(labels), rival, NONE), 1 - margin, labels)
