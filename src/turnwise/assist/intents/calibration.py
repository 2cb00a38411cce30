"""What makes scores mean something: a threshold for a rate of false rejection that was named, and probabilities.

Both are learnt from evidence: how like each intent texts are that the classifier has not seen, and which intent they ask for.
Texts in scope are enough. Examples of what is out of scope make the threshold tighter: for the same rate of false rejection more of
what is out of scope is turned away, as likeness to those examples is then held against a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

from turnwise.assist.intents.likeness import Numbers, Scores

#: Fewer out-of-scope examples than these say too little of what is out of scope.
LEAST_OUT_OF_SCOPE = 10

#: How much of the difference between intents their thresholds follow: among 0, a half and 1, false rejections differ least from
#: intent to intent, and most out-of-scope texts are found, at a half (CLINC150, five examples an intent).
_TAKEN = 0.5

#: Logarithms of the temperatures that are looked at.
_TEMPERATURES = (-7.0, 3.0)


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability curve: texts in bins by how sure the classifier was of its answer, without bins that have none.

    Attributes:
        confidence: the mean probability of the answers in each bin.
        accuracy: the share of them that was right.
        count: how many there are.
        ece: the expected calibration error: the mean distance of the two, weighted by the counts.
    """

    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    count: npt.NDArray[np.int64]
    ece: float


def reliability(confidence: npt.NDArray[np.floating], right: npt.NDArray[np.bool_], bins: int = 10) -> Reliability:
    """How right a classifier is where it is how sure.

    Args:
        confidence: the probability of each answer.
        right: whether it was right.
        bins: of equal width, from 0 to 1.
    """
    bin_of = np.minimum((np.asarray(confidence, np.float64) * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    known = count > 0
    mean_confidence = np.bincount(bin_of, confidence, bins)[known] / count[known]
    accuracy = np.bincount(bin_of, right, bins)[known] / count[known]
    total = int(count.sum())
    ece = float((np.abs(mean_confidence - accuracy) * count[known]).sum() / total) if total else float("nan")
    return Reliability(mean_confidence, accuracy, count[known], ece)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of texts that the classifier has not seen; (texts, intents) where not said otherwise.

    Attributes:
        likeness: of texts in scope to each intent.
        ranking: what the head ranks intents by; the likeness itself unless the head is logistic.
        truth: the number of the intent that each text asks for (texts).
        foreign: the likeness of texts in scope to the out-of-scope examples (texts); None: there are none.
        outside: the likeness of out-of-scope texts to each intent.
        outside_foreign: of these to the other out-of-scope examples (texts).
    """

    likeness: Scores
    ranking: Scores
    truth: Numbers
    foreign: Scores | None = None
    outside: Scores | None = None
    outside_foreign: Scores | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a classifier is calibrated to.

    Attributes:
        false_rejection: the rate that was named; None: it never abstains.
        threshold: what a score takes to be accepted, where intents do not have thresholds of their own; None: it never abstains.
        offsets: what is added to it for each intent; empty: nothing.
        temperature: by which what intents are ranked by is divided to make probabilities.
        caution: how much likeness to the out-of-scope examples is held against a text.
        texts: how many texts in scope it was calibrated on.
        held_out: whether these were held out for that, so that it stays in force when examples change; otherwise they are the
            examples themselves, each left out in turn, and every change calibrates anew.
        out_of_scope_recall: the share of the out-of-scope texts that it turns away; None: none were given.
        reliability: of the probabilities, on the same texts.
    """

    false_rejection: float | None
    threshold: float | None
    offsets: tuple[float, ...]
    temperature: float
    caution: float
    texts: int
    held_out: bool
    out_of_scope_recall: float | None
    reliability: Reliability

    @classmethod
    def none(cls) -> "Calibration":
        """That of a classifier which has seen nothing to calibrate on: it never abstains, and its probabilities mean little."""
        nothing = np.empty(0)
        return cls(
            None, None, (), 1.0, 0.0, 0, False, None, Reliability(nothing, nothing, np.empty(0, np.int64), float("nan"))
        )

    def moved(self, intents: Sequence[str], others: Sequence[str]) -> "Calibration":
        """The same for other intents: those that are new have no offset."""
        if not self.offsets:
            return self
        known = dict(zip(intents, self.offsets, strict=True))
        return replace(self, offsets=tuple(known.get(intent, 0.0) for intent in others))

    def thresholds(self, intents: int) -> Scores:
        """The threshold of each intent; minus infinity where the classifier never abstains."""
        if self.threshold is None:
            return np.full(intents, -np.inf)
        return self.threshold + (np.array(self.offsets) if self.offsets else np.zeros(intents))

    def probabilities(self, ranking: Scores) -> Scores:
        """Of each intent, for texts that ask for one of them (texts, intents)."""
        return np.asarray(softmax(ranking / self.temperature, axis=1))


def calibrate(evidence: Evidence, false_rejection: float | None, *, per_intent: bool, held_out: bool) -> Calibration:
    """Learns a threshold and a temperature from evidence."""
    caution = _caution(evidence)
    likeness = evidence.likeness - (0 if evidence.foreign is None else caution * evidence.foreign[:, None])
    offsets = np.zeros(likeness.shape[1])
    if per_intent:
        offsets = intent_offsets(likeness[np.arange(len(likeness)), evidence.truth], evidence.truth, likeness.shape[1])
    threshold = None if false_rejection is None else lower_quantile(_highest(likeness, offsets), false_rejection)
    recall = None
    if evidence.outside is not None and threshold is not None:
        foreign = 0 if evidence.outside_foreign is None else caution * evidence.outside_foreign[:, None]
        recall = float((_highest(evidence.outside - foreign, offsets) < threshold).mean())
    temperature = fit_temperature(evidence.ranking, evidence.truth)
    probabilities = softmax(evidence.ranking / temperature, axis=1)
    return Calibration(
        false_rejection=false_rejection,
        threshold=threshold,
        offsets=tuple(offsets.tolist()) if per_intent else (),
        temperature=temperature,
        caution=caution,
        texts=len(likeness),
        held_out=held_out,
        out_of_scope_recall=recall,
        reliability=reliability(probabilities.max(1), probabilities.argmax(1) == evidence.truth),
    )


def _highest(likeness: Scores, offsets: Scores) -> Scores:
    """How like a text is to the intent that it is most alike, less that intent's offset: what is held against the threshold."""
    best = likeness.argmax(1)
    return np.asarray(likeness[np.arange(len(likeness)), best] - offsets[best])


def lower_quantile(scores: npt.NDArray[np.floating], rate: float) -> float:
    """A number that a new score falls below with the probability `rate`.

    Of n scores and a new one like them, each is the lowest but k with the same chance: the k-th lowest is undercut with the
    probability k / (n + 1), and between two of them it goes in a straight line. Where the rate is below 1 / (n + 1), the scores do
    not reach that far, and the bound is that for a new one of a normal distribution of unknown mean and spread.
    """
    count = len(scores)
    if rate * (count + 1) >= 1:
        return float(np.quantile(scores, rate, method="weibull"))
    spread = float(np.std(scores, ddof=1)) * np.sqrt(1 + 1 / count) if count > 1 else 0.0
    return float(np.mean(scores) + student.ppf(rate, max(1, count - 1)) * spread)


def intent_offsets(own: Scores, truth: Numbers, intents: int) -> Scores:
    """How far the texts of each intent score above those of all, drawn towards 0 where an intent has few of them.

    The means of intents differ by chance, the more the fewer texts they are of: by the variance within intents over their number.
    What they differ by beyond that is the variance between intents, and a mean is believed by its share of both. Of that, half is
    taken: an intent whose texts are more alike has fewer that lie far off, but not by as much as its mean lies above the others'.

    Args:
        own: the likeness of each text to the intent that it asks for.
        truth: that intent's number.
        intents: how many there are.
    """
    counts = np.bincount(truth, minlength=intents)
    known = counts > 0
    means = np.divide(np.bincount(truth, own, intents), counts, out=np.zeros(intents), where=known)
    centre = means[known].mean()
    freedom = max(1, len(own) - int(known.sum()))
    within = float(((own - means[truth]) ** 2).sum() / freedom)
    chance = within * float((1 / counts[known]).mean())
    between = max(0.0, float(means[known].var(ddof=1)) - chance) if known.sum() > 1 else 0.0
    share = np.divide(
        between, between + within / np.maximum(counts, 1), out=np.zeros(intents), where=known & (between > 0)
    )
    return np.asarray(_TAKEN * share * (means - centre))


def fit_temperature(ranking: Scores, truth: Numbers) -> float:
    """The temperature under which the truth is likeliest.

    The truth is smoothed as in Platt's calibration, by one text that is right and one that is wrong beyond those that were seen: a
    few examples that are all told apart do not make a classifier that is always certain.
    """
    texts, intents = ranking.shape
    if intents == 1:
        return 1.0
    sure = (texts + 1) / (texts + 2)
    rows = np.arange(texts)

    def loss(logarithm: float) -> float:
        likely = log_softmax(ranking / np.exp(logarithm), axis=1)
        own = likely[rows, truth]
        others = (likely.sum(1) - own) / (intents - 1)
        return -float((sure * own + (1 - sure) * others).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_TEMPERATURES, method="bounded").x))


def _caution(evidence: Evidence) -> float:
    """How much likeness to out-of-scope examples counts against a text: what tells in from out best, by logistic regression."""
    if evidence.outside is None or evidence.foreign is None or evidence.outside_foreign is None:
        return 0.0
    if len(evidence.outside) < LEAST_OUT_OF_SCOPE:
        return 0.0
    inside = np.stack([evidence.likeness.max(1), evidence.foreign], 1)
    outside = np.stack([evidence.outside.max(1), evidence.outside_foreign], 1)
    told = LogisticRegression(C=100, class_weight="balanced").fit(
        np.concatenate([inside, outside]), np.repeat([1, 0], [len(inside), len(outside)])
    )
    likeness, foreign = told.coef_[0]
    # never more than likeness to the intents counts for it, not even where out-of-scope texts are more like these than others are
    return float(np.clip(-foreign / max(likeness, abs(foreign)), 0, 1)) if foreign else 0.0


def joined(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several folds as one."""

    def both(name: str) -> npt.NDArray[np.float64] | None:
        found = [getattr(part, name) for part in parts]
        return None if found[0] is None else np.concatenate(found)

    likeness, ranking, truth = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("likeness", "ranking", "truth")
    )
    return Evidence(likeness, ranking, truth, both("foreign"), both("outside"), both("outside_foreign"))
