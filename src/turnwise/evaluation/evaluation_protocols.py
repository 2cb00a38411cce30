"""The protocols: which task is run in which way on which kind of data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

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
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results
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
from turnwise.training.finetuning import FineTuningSettings

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
        add_plots: adds plots of its metrics to the results.
    """

    task: str
    datasets: Catalogue
    needs: Literal["vectors", "scores", "heads", "weights", "templates", "both"]
    run: Run
    timed: bool = False
    add_plots: Callable[[Results], None] | None = None

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


def encoder_of(model: ModelUnderTest) -> SupportsEncode:
    """Return the encoder of a model that a protocol with `needs` 'vectors' or 'both' is run on."""
    assert model.encoder is not None
    return model.encoder


def scorer_of(model: ModelUnderTest) -> SupportsScore:
    """Return the re-ranker of a model that a protocol with `needs` 'both' is run on."""
    assert model.scorer is not None
    return model.scorer


def _scores(model: ModelUnderTest) -> SupportsEncode | SupportsScore:
    return model.scorer or encoder_of(model)


def _heads(model: ModelUnderTest) -> SupportsEncode | SupportsCoherence:
    return cast(SupportsCoherence, model.scorer) if heads_of(model.scorer) else encoder_of(model)


def _weights(model: ModelUnderTest) -> Encoder:
    assert model.trainable is not None
    return model.trainable


def _cut(settings: FineTuningSettings, effort: Effort) -> FineTuningSettings:
    return settings if effort.steps is None else replace(settings, steps=effort.steps)


# ---- protocols of more than one line


def _scope(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    seeds = effort.seeds or 10
    outcomes = detect_out_of_scope(encoder_of(model), data, seeds=seeds)
    return outcomes + (
        detect_out_of_scope(encoder_of(model), data, seeds=seeds, authors=True) if data.out_of_scope.train else []
    )


def _answers(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    random = rank_answers(encoder_of(model), data.pairs, data.name)
    return random + rank_answers(encoder_of(model), data.pairs, data.name, pool="chunks")


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


def out_of_scope_datasets(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Return the intent data sets that have out-of-scope utterances."""
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


#: The registered protocols by name.
PROTOCOLS: dict[str, Protocol] = {
    "prototypes": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: prototype_intents(encoder_of(model), data, seeds=effort.seeds or 10),
    ),
    "nearest": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: nearest_intents(
            encoder_of(model), data, neighbours=NEIGHBOURS, marks=model.marks
        ),
    ),
    "compressed nearest": Protocol(
        "intents",
        intent_datasets,
        "templates",
        lambda model, data, effort, progress: compressed_intents(
            encoder_of(model), model.templates, data, marks=model.marks
        ),
    ),
    "logistic": Protocol(
        "intents",
        intent_datasets,
        "vectors",
        lambda model, data, effort, progress: logistic_intents(encoder_of(model), data),
    ),
    "fine-tuned intents": Protocol(
        "intents",
        intent_datasets,
        "weights",
        lambda model, data, effort, progress: fine_tuned_intents(
            _weights(model), data, seeds=effort.seeds or 10, settings=_cut(INTENTS, effort), progress=progress
        ),
    ),
    "out-of-scope": Protocol("out-of-scope", out_of_scope_datasets, "vectors", _scope),
    "answers": Protocol("responses", _always(QUESTION_DATASETS), "vectors", _answers),
    "histories": Protocol(
        "responses",
        candidate_datasets,
        "vectors",
        lambda model, data, effort, progress: rank_responses(encoder_of(model), data.test, data.name),
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
        lambda model, data, effort, progress: probe_actions(encoder_of(model), data, steps=effort.steps),
    ),
    "probed inference": Protocol(
        "inference",
        _always(INFERENCE_DATASETS),
        "vectors",
        lambda model, data, effort, progress: probe_inference(encoder_of(model), data, steps=effort.steps),
    ),
    "retrieval": Protocol(
        "retrieval",
        retrieval_datasets,
        "vectors",
        lambda model, data, effort, progress: retrieve(encoder_of(model), data, max_length=_longest(data.name)),
    ),
    "similarity": Protocol(
        "sts",
        _always(SIMILARITY_DATASETS),
        "vectors",
        lambda model, data, effort, progress: correlate(encoder_of(model), data, max_length=_longest(data.name)),
    ),
    "closeness": Protocol(
        "nli",
        _always(TRIPLET_DATASETS),
        "vectors",
        lambda model, data, effort, progress: nearer(encoder_of(model), data),
    ),
    "geometry": Protocol(
        "geometry", intent_datasets, "vectors", lambda model, data, effort, progress: geometry(encoder_of(model), data)
    ),
    "compressed geometry": Protocol(
        "geometry",
        intent_datasets,
        "templates",
        lambda model, data, effort, progress: compressed_geometry(encoder_of(model), model.templates, data),
    ),
    "isotropy": Protocol(
        "geometry",
        conversation_datasets,
        "vectors",
        lambda model, data, effort, progress: isotropy(encoder_of(model), data),
    ),
}


def register_protocol(name: str, protocol: Protocol) -> None:
    """Make a protocol available to `evaluate`; registering it again replaces it."""
    PROTOCOLS[name] = protocol


def task_names() -> tuple[str, ...]:
    """Return the tasks of all registered protocols, in the order in which reports list them."""
    return tuple(dict.fromkeys(protocol.task for protocol in PROTOCOLS.values()))
