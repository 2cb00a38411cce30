"""The registry of protocols: which task is run in which way on which data sets.

Packages above this one add theirs with `register_protocol`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from turnwise.core.progress import Progress
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.evaluation.datasets.candidates import QUESTION_DATASETS, candidate_datasets
from turnwise.evaluation.datasets.conversations import conversation_datasets
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.dialogue_labels import ACTION_DATASETS, INFERENCE_DATASETS
from turnwise.evaluation.datasets.intents import intent_datasets, out_of_scope_datasets
from turnwise.evaluation.datasets.retrieval import retrieval_datasets
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS, TRIPLET_DATASETS
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks import fine_tuning
from turnwise.evaluation.tasks.coherence import coherence, coherence_heads
from turnwise.evaluation.tasks.compression import compressed_geometry, compressed_intents
from turnwise.evaluation.tasks.geometry import geometry
from turnwise.evaluation.tasks.intents import logistic_intents, nearest_intents, prototype_intents
from turnwise.evaluation.tasks.isotropy import isotropy
from turnwise.evaluation.tasks.out_of_scope import detect_out_of_scope
from turnwise.evaluation.tasks.probing import probe_actions, probe_inference
from turnwise.evaluation.tasks.responses import rank_answers, rank_responses, rerank, rerank_adversarial
from turnwise.evaluation.tasks.similarity import evaluate_nli, evaluate_retrieval, evaluate_similarity
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest
from turnwise.models.reranker import Reranker
from turnwise.training.finetuning import FineTuningSettings

#: Returns the data sets of a protocol; a folder of data sets may hold more than the known ones.
Catalogue = Callable[[Path | None], Mapping[str, Dataset[Any]]]

#: k of TaDSE's Figure 6.
NEIGHBOURS = (1, 3, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits that shorten protocols; results report them.

    Attributes:
        seeds: runs with different samples; None: as in the paper.
        steps: maximum training steps, of the encoder or of a layer on its vectors; None: as in the paper.
        shots: pairs of a response fine-tuning run; None: as in the paper.
    """

    seeds: int | None = None
    steps: int | None = None
    shots: int | None = None


#: Evaluates a model on a data set's contents.
Run = Callable[[ModelUnderTest, Any, Effort, Progress], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to evaluate.

    Attributes:
        task: the task it belongs to.
        datasets: what it can be run on.
        needs: vectors, scores of candidates (by cosine, if need be), coherence heads (or vectors), weights to train,
            template vectors in addition, or both vectors and a re-ranker's scores.
        run: evaluates a model on a data set.
        timed: whether it also measures time; it then gets a model without a vector cache.
        add_plots: adds plots of its metrics to the results.
    """

    task: str
    datasets: Catalogue
    needs: Literal["vectors", "scores", "heads", "weights", "templates", "both"]
    run: Run
    timed: bool = False
    add_plots: Callable[[Results], None] | None = None

    def supports(self, model: ModelUnderTest) -> bool:
        """Return whether a model has what the protocol needs."""
        return {
            "vectors": model.encoder is not None,
            "scores": model.encoder is not None or model.scorer is not None,
            "heads": model.encoder is not None or bool(coherence_heads(model.scorer)),
            "weights": model.trainable is not None,
            "templates": bool(model.templates),
            "both": model.encoder is not None and model.scorer is not None,
        }[self.needs]


# ---- parts of a model; a protocol is only run on models that it supports


def encoder_of(model: ModelUnderTest) -> SupportsEncode:
    """Return the encoder of a model that a protocol with `needs` 'vectors' or 'both' is run on."""
    assert model.encoder is not None
    return model.encoder


def scorer_of(model: ModelUnderTest) -> SupportsScore:
    """Return the re-ranker of a model that a protocol with `needs` 'both' is run on."""
    assert model.scorer is not None
    return model.scorer


def _scorer_or_encoder(model: ModelUnderTest) -> SupportsEncode | SupportsScore:
    return model.scorer or encoder_of(model)


def _heads_or_encoder(model: ModelUnderTest) -> SupportsEncode | Reranker:
    return cast(Reranker, model.scorer) if coherence_heads(model.scorer) else encoder_of(model)


def _trainable(model: ModelUnderTest) -> Encoder:
    assert model.trainable is not None
    return model.trainable


def _limit_steps(settings: FineTuningSettings, effort: Effort) -> FineTuningSettings:
    return settings if effort.steps is None else replace(settings, steps=effort.steps)


# ---- protocols of more than one expression


def _run_out_of_scope(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    variants = (False, True) if data.out_of_scope.train else (False,)
    seeds = effort.seeds or 10
    return [
        outcome
        for authors in variants
        for outcome in detect_out_of_scope(encoder_of(model), data, seeds=seeds, authors=authors)
    ]


def _run_answers(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    random = rank_answers(encoder_of(model), data.pairs, data.name)
    return random + rank_answers(encoder_of(model), data.pairs, data.name, pool="chunks")


def _run_fine_tuned_responses(model: ModelUnderTest, data: Any, effort: Effort, progress: Progress) -> list[Outcome]:
    return fine_tuning.fine_tuned_responses(
        _trainable(model),
        data.pairs,
        data.name,
        shots=(500, 1000) if effort.shots is None else (effort.shots,),
        seeds=effort.seeds or 5,
        settings=_limit_steps(fine_tuning.RESPONSES, effort),
        progress=progress,
    )


def _max_length(dataset: str) -> int:
    """Return the maximum tokens of a text in DialogueCSE: 50 in its corpora of short turns, else 100."""
    return 50 if dataset.endswith(("_ecd", "_mdc")) else 100


def _dialogue_datasets(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Return the candidate data sets without those that share the dialogues of another."""
    repeated = ("irc_ubuntu_100", "dailydialog_plusplus_adversarial")
    return {name: dataset for name, dataset in candidate_datasets(data).items() if name not in repeated}


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
        lambda model, data, effort, progress: fine_tuning.fine_tuned_intents(
            _trainable(model),
            data,
            seeds=effort.seeds or 10,
            settings=_limit_steps(fine_tuning.INTENTS, effort),
            progress=progress,
        ),
    ),
    "out-of-scope": Protocol("out-of-scope", out_of_scope_datasets, "vectors", _run_out_of_scope),
    "answers": Protocol("responses", lambda data: QUESTION_DATASETS, "vectors", _run_answers),
    "histories": Protocol(
        "responses",
        candidate_datasets,
        "vectors",
        lambda model, data, effort, progress: rank_responses(encoder_of(model), data.test, data.name),
    ),
    "fine-tuned responses": Protocol("responses", lambda data: QUESTION_DATASETS, "weights", _run_fine_tuned_responses),
    "candidates": Protocol(
        "reranking",
        candidate_datasets,
        "scores",
        lambda model, data, effort, progress: rerank(_scorer_or_encoder(model), data.test, data.name),
    ),
    "adversarial candidates": Protocol(
        "reranking",
        candidate_datasets,
        "scores",
        lambda model, data, effort, progress: rerank_adversarial(_scorer_or_encoder(model), data.test, data.name),
    ),
    "coherence": Protocol(
        "coherence",
        _dialogue_datasets,
        "heads",
        lambda model, data, effort, progress: coherence(
            _heads_or_encoder(model), data.test, data.name, progress=progress
        ),
    ),
    "fine-tuned actions": Protocol(
        "actions",
        lambda data: ACTION_DATASETS,
        "weights",
        lambda model, data, effort, progress: fine_tuning.fine_tuned_actions(
            _trainable(model),
            data,
            seeds=effort.seeds or 5,
            settings=_limit_steps(fine_tuning.ACTIONS, effort),
            progress=progress,
        ),
    ),
    "probed actions": Protocol(
        "actions",
        lambda data: ACTION_DATASETS,
        "vectors",
        lambda model, data, effort, progress: probe_actions(encoder_of(model), data, steps=effort.steps),
    ),
    "probed inference": Protocol(
        "inference",
        lambda data: INFERENCE_DATASETS,
        "vectors",
        lambda model, data, effort, progress: probe_inference(encoder_of(model), data, steps=effort.steps),
    ),
    "retrieval": Protocol(
        "retrieval",
        retrieval_datasets,
        "vectors",
        lambda model, data, effort, progress: evaluate_retrieval(
            encoder_of(model), data, max_length=_max_length(data.name)
        ),
    ),
    "similarity": Protocol(
        "sts",
        lambda data: SIMILARITY_DATASETS,
        "vectors",
        lambda model, data, effort, progress: evaluate_similarity(
            encoder_of(model), data, max_length=_max_length(data.name)
        ),
    ),
    "closeness": Protocol(
        "nli",
        lambda data: TRIPLET_DATASETS,
        "vectors",
        lambda model, data, effort, progress: evaluate_nli(encoder_of(model), data),
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
