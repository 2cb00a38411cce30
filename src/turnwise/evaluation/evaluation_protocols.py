"""The protocols: which task is run in which way on which kind of data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from turnwise.assist.intents.abstention_task import abstain
from turnwise.assist.responses.selection_task import select
from turnwise.core.progress import Progress
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.evaluation.datasets.actions import ACTION_DATASETS
from turnwise.evaluation.datasets.candidates import candidate_datasets
from turnwise.evaluation.datasets.constructed import retrieval_datasets
from turnwise.evaluation.datasets.conversations import conversation_datasets
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.inference import INFERENCE_DATASETS
from turnwise.evaluation.datasets.intents import intent_datasets
from turnwise.evaluation.datasets.questions import QUESTION_DATASETS
from turnwise.evaluation.datasets.similarity import SIMILARITY_DATASETS
from turnwise.evaluation.datasets.triplets import TRIPLET_DATASETS
from turnwise.evaluation.outcomes import Outcome
from turnwise.evaluation.tasks.coherence import coherence, heads_of
from turnwise.evaluation.tasks.compressed import compressed_geometry, compressed_intents
from turnwise.evaluation.tasks.finetuned import (
    ACTIONS,
    INTENTS,
    RESPONSES,
    fine_tuned_actions,
    fine_tuned_intents,
    fine_tuned_responses,
)
from turnwise.evaluation.tasks.geometry import geometry
from turnwise.evaluation.tasks.intents import logistic_intents, nearest_intents, prototype_intents
from turnwise.evaluation.tasks.isotropy import isotropy
from turnwise.evaluation.tasks.probing import probe_actions, probe_inference
from turnwise.evaluation.tasks.reranking import rerank, rerank_adversarial
from turnwise.evaluation.tasks.responses import rank_answers, rank_responses
from turnwise.evaluation.tasks.retrieval import retrieve
from turnwise.evaluation.tasks.scope import detect_out_of_scope
from turnwise.evaluation.tasks.similarity import correlate
from turnwise.evaluation.tasks.triplets import nearer
from turnwise.models.coherence import SupportsCoherence
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest
from turnwise.training.finetuning import FineTuning

#: The data sets that a protocol can be run on; a folder of data sets may hold more than the known ones.
Catalogue = Callable[[Path | None], Mapping[str, Dataset[Any]]]

#: k of TaDSE's Figure 6.
NEIGHBOURS = (1, 3, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of a protocol is run: all of it, unless somebody is in a hurry and says so; results state it.

    Attributes:
        seeds: runs of what is drawn or trained several times; None: as the paper has it.
        steps: of one training at most, be it of the encoder or of a layer on its vectors; None: as the paper has it.
        shots: pairs of a response fine-tuning run; None: as the paper has it.
    """

    seeds: int | None = None
    steps: int | None = None
    shots: int | None = None


#: What a protocol is handed: the model, a data set's contents, how much to do, whom to tell.
Run = Callable[[ModelUnderTest, Any, Effort, Progress], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to measure.

    Attributes:
        task: which task it belongs to.
        datasets: what it can be run on.
        needs: vectors, scores of candidates (by cosine, if need be), heads that look at turns (or vectors), weights to train,
            vectors of templates besides, or both vectors and a re-ranker's scores.
        run: judges a model on a data set.
        timed: whether it measures time, too: it is then given a model that keeps no vectors.
    """

    task: str
    datasets: Catalogue
    needs: Literal["vectors", "scores", "heads", "weights", "templates", "both"]
    run: Run
    timed: bool = False

    def suits(self, model: ModelUnderTest) -> bool:
        """Whether a model has what it takes."""
        return {
            "vectors": model.encoder is not None,
            "scores": model.encoder is not None or model.scorer is not None,
            "heads": model.encoder is not None or bool(heads_of(model.scorer)),
            "weights": model.trainable is not None,
            "templates": bool(model.templates),
            "both": model.encoder is not None and model.scorer is not None,
        }[self.needs]


# ---- what a model has: a protocol is run only on models that suit it


def _vectors(model: ModelUnderTest) -> SupportsEncode:
    assert model.encoder is not None
    return model.encoder


def _scorer(model: ModelUnderTest) -> SupportsScore:
    assert model.scorer is not None
    return model.scorer


def _scores(model: ModelUnderTest) -> SupportsEncode | SupportsScore:
    return model.scorer or _vectors(model)


def _heads(model: ModelUnderTest) -> SupportsEncode | SupportsCoherence:
    return cast(SupportsCoherence, model.scorer) if heads_of(model.scorer) else _vectors(model)


def _weights(model: ModelUnderTest) -> Encoder:
    assert model.trainable is not None
    return model.trainable


def _cut(settings: FineTuning, effort: Effort) -> FineTuning:
    return settings if effort.steps is None else replace(settings, steps=effort.steps)


# ---- protocols of more than one line


def _scope(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    seeds = effort.seeds or 10
    outcomes = detect_out_of_scope(_vectors(model), data, seeds=seeds)
    return outcomes + (
        detect_out_of_scope(_vectors(model), data, seeds=seeds, authors=True) if data.out_of_scope.train else []
    )


def _answers(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    random = rank_answers(_vectors(model), data.pairs, data.name)
    return random + rank_answers(_vectors(model), data.pairs, data.name, pool="chunks")


def _tuned_responses(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    shots = (500, 1000) if effort.shots is None else (effort.shots,)
    settings = _cut(RESPONSES, effort)
    return fine_tuned_responses(
        _weights(model),
        data.pairs,
        data.name,
        shots=shots,
        seeds=effort.seeds or 5,
        settings=settings,
        progress=progress,
    )


def _longest(dataset: str) -> int:
    """Tokens of a text in DialogueCSE: 50 in its corpora of short turns, else 100."""
    return 50 if dataset.endswith(("_ecd", "_mdc")) else 100


def _with_scope(data: Path | None) -> Mapping[str, Dataset[Any]]:
    return {
        name: dataset
        for name, dataset in intent_datasets(data).items()
        if name == "sample" or name.startswith("clinc150")
    }


def _with_dialogues(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Without those that have the dialogues of another, with other candidates."""
    again = ("irc_ubuntu_100", "dailydialog_plusplus_adversarial")
    return {name: dataset for name, dataset in candidate_datasets(data).items() if name not in again}


def _always(known: Mapping[str, Dataset[Any]]) -> Catalogue:
    return lambda data: known


PROTOCOLS: dict[str, Protocol] = {
    "prototypes": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: prototype_intents(_vectors(model), data, seeds=effort.seeds or 10),
    ),
    "nearest": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: nearest_intents(
            _vectors(model), data, neighbours=NEIGHBOURS, marks=model.marks
        ),
    ),
    "compressed nearest": Protocol(
        "intents",
        intent_datasets,
        "templates",
        lambda model, data, effort, progress: compressed_intents(
            _vectors(model), model.templates, data, marks=model.marks
        ),
    ),
    "logistic": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: logistic_intents(_vectors(model), data),
    ),
    "fine-tuned intents": Protocol(
        "intents",
        intent_datasets,
        "weights",
        lambda model, data, effort, progress: fine_tuned_intents(
            _weights(model), data, seeds=effort.seeds or 10, settings=_cut(INTENTS, effort), progress=progress
        ),
    ),
    "out-of-scope": Protocol("out-of-scope", _with_scope, "vectors", _scope),
    "abstention": Protocol(
        "abstention",
        _with_scope,
        "vectors",
        lambda model, data, effort, progress: abstain(
            _vectors(model), data, seeds=effort.seeds or 10, progress=progress
        ),
    ),
    "answers": Protocol("responses", _always(QUESTION_DATASETS), "vectors", _answers),
    "histories": Protocol(
        "responses",
        candidate_datasets,
        "vectors",
        lambda model, data, effort, progress: rank_responses(_vectors(model), data.test, data.name),
    ),
    "fine-tuned responses": Protocol("responses", _always(QUESTION_DATASETS), "weights", _tuned_responses),
    "candidates": Protocol(
        "reranking",
        candidate_datasets,
        "scores",
        lambda model, data, effort, progress: rerank(_scores(model), data.test, data.name),
    ),
    "adversarial candidates": Protocol(
        "reranking",
        candidate_datasets,
        "scores",
        lambda model, data, effort, progress: rerank_adversarial(_scores(model), data.test, data.name),
    ),
    "selection": Protocol(
        "selection",
        candidate_datasets,
        "both",
        lambda model, data, effort, progress: select(
            _vectors(model), _scorer(model), data.test, data.name, progress=progress
        ),
        timed=True,
    ),
    "coherence": Protocol(
        "coherence",
        _with_dialogues,
        "heads",
        lambda model, data, effort, progress: coherence(_heads(model), data.test, data.name, progress=progress),
    ),
    "fine-tuned actions": Protocol(
        "actions",
        _always(ACTION_DATASETS),
        "weights",
        lambda model, data, effort, progress: fine_tuned_actions(
            _weights(model), data, seeds=effort.seeds or 5, settings=_cut(ACTIONS, effort), progress=progress
        ),
    ),
    "probed actions": Protocol(
        "actions",
        _always(ACTION_DATASETS),
        "vectors",
        lambda model, data, effort, progress: probe_actions(_vectors(model), data, steps=effort.steps),
    ),
    "probed inference": Protocol(
        "inference",
        _always(INFERENCE_DATASETS),
        "vectors",
        lambda model, data, effort, progress: probe_inference(_vectors(model), data, steps=effort.steps),
    ),
    "retrieval": Protocol(
        "retrieval",
        retrieval_datasets,
        "vectors",
        lambda model, data, effort, progress: retrieve(_vectors(model), data, max_length=_longest(data.name)),
    ),
    "similarity": Protocol(
        "sts",
        _always(SIMILARITY_DATASETS),
        "vectors",
        lambda model, data, effort, progress: correlate(_vectors(model), data, max_length=_longest(data.name)),
    ),
    "closeness": Protocol(
        "nli", _always(TRIPLET_DATASETS), "vectors", lambda model, data, effort, progress: nearer(_vectors(model), data)
    ),
    "geometry": Protocol(
        "geometry", intent_datasets, "vectors", lambda model, data, effort, progress: geometry(_vectors(model), data)
    ),
    "compressed geometry": Protocol(
        "geometry",
        intent_datasets,
        "templates",
        lambda model, data, effort, progress: compressed_geometry(_vectors(model), model.templates, data),
    ),
    "isotropy": Protocol(
        "geometry",
        conversation_datasets,
        "vectors",
        lambda model, data, effort, progress: isotropy(_vectors(model), data),
    ),
}

#: The tasks, in the order in which reports have them.
TASKS = tuple(dict.fromkeys(protocol.task for protocol in PROTOCOLS.values()))
