"""Protocols: which task is run in which way on which data sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from turnwise.core import registry
from turnwise.core.progress import Progress
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.evaluation.datasets.candidates import QUESTION_DATASETS, candidate_datasets, next_turn_datasets
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
from turnwise.evaluation.tasks.geometry import geometry, isotropy
from turnwise.evaluation.tasks.intents import logistic_intents, nearest_intents, prototype_intents
from turnwise.evaluation.tasks.out_of_scope import detect_out_of_scope
from turnwise.evaluation.tasks.probing import probe_actions, probe_inference
from turnwise.evaluation.tasks.responses import rank_answers, rank_responses, rerank, rerank_adversarial
from turnwise.evaluation.tasks.similarity import evaluate_nli, evaluate_retrieval, evaluate_similarity
from turnwise.models.loading import ModelUnderTest
from turnwise.models.reranker import Reranker
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.training.finetuning import FineTuningSettings

#: Returns the data sets of a protocol; a folder of data sets may hold more than the known ones.
Catalogue = Callable[[Path | None], Mapping[str, Dataset[Any]]]

#: k of TaDSE's Figure 6.
NEIGHBOURS = (1, 3, 5, 10, 20, 50)

#: Probes per data set. The paper does not say how many it trained; with one, a point of chance would be invisible.
_PROBE_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits that shorten protocols (None: as in the paper); results report them."""

    seeds: int | None = None  # runs with different samples
    steps: int | None = None  # maximum training steps, of the encoder or of a layer on its vectors
    shots: int | None = None  # pairs of a response fine-tuning run


@dataclass(frozen=True, slots=True)
class ProtocolInput:
    """What a protocol is run on: a model that has what it needs, and the contents of a data set."""

    model: ModelUnderTest
    data: Any
    effort: Effort
    progress: Progress

    @property
    def encoder(self) -> SupportsEncode:
        """Return the model's encoder."""
        return cast(SupportsEncode, self.model.encoder)

    @property
    def variants(self) -> dict[str, SupportsEncode]:
        """Return the encoders of the model's variants by name."""
        return {name: cast(SupportsEncode, each.encoder) for name, each in self.model.variants.items()}

    @property
    def scorer(self) -> SupportsScore:
        """Return the model's re-ranker."""
        return cast(SupportsScore, self.model.scorer)

    @property
    def trainable(self) -> TrainableEncoder:
        """Return the encoder that fine-tuning starts from."""
        return cast(TrainableEncoder, self.model.trainable)

    def limit_steps(self, settings: FineTuningSettings) -> FineTuningSettings:
        """Return settings with the steps of the effort."""
        return settings if self.effort.steps is None else replace(settings, steps=self.effort.steps)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to evaluate a task."""

    task: str
    datasets: Catalogue  # what it can be run on
    run: Callable[[ProtocolInput], list[Outcome]]
    #: Vectors; scores of candidates (by cosine, if need be); coherence heads (or vectors); weights to train; the
    #: encoders of templates in addition; both vectors and a re-ranker's scores.
    needs: Literal["vectors", "scores", "heads", "weights", "variants", "both"] = "vectors"
    timed: bool = False  # whether it also measures time; it then gets a model without a vector cache
    add_plots: Callable[[Results], None] | None = None  # adds plots of its metrics to the results

    def supports(self, model: ModelUnderTest) -> bool:
        """Return whether a model has what the protocol needs."""
        return {
            "vectors": model.encoder is not None,
            "scores": model.encoder is not None or model.scorer is not None,
            "heads": model.encoder is not None or bool(coherence_heads(model.scorer)),
            "weights": model.trainable is not None,
            "variants": bool(model.variants),
            "both": model.encoder is not None and model.scorer is not None,
        }[self.needs]


# ---- protocols of more than one expression


def _run_nearest(inputs: ProtocolInput) -> list[Outcome]:
    """Classify by nearest neighbours; without out-of-scope utterances too, where they are an intent in the paper."""
    encoder, data = inputs.encoder, inputs.data
    outcomes = nearest_intents(encoder, data, neighbours=NEIGHBOURS)
    if data.out_of_scope.test:
        outcomes += nearest_intents(encoder, data, include_out_of_scope=False)
    return outcomes


def _run_out_of_scope(inputs: ProtocolInput) -> list[Outcome]:
    encoder, data, seeds = inputs.encoder, inputs.data, inputs.effort.seeds or 10
    outcomes = detect_out_of_scope(encoder, data, seeds=seeds)
    if data.out_of_scope.train:
        outcomes += detect_out_of_scope(encoder, data, seeds=seeds, authors=True)
    return outcomes


def _run_reranking(
    inputs: ProtocolInput, evaluate: Callable[[SupportsEncode | SupportsScore, Any, str], list[Outcome]]
) -> list[Outcome]:
    return evaluate(inputs.model.scorer or inputs.encoder, inputs.data.test, inputs.data.name)


def _run_coherence(inputs: ProtocolInput) -> list[Outcome]:
    scorer = inputs.model.scorer
    model = cast(Reranker, scorer) if coherence_heads(scorer) else inputs.encoder
    return coherence(model, inputs.data.test, inputs.data.name, progress=inputs.progress)


def _run_fine_tuned_intents(inputs: ProtocolInput) -> list[Outcome]:
    seeds, settings = inputs.effort.seeds or 10, inputs.limit_steps(fine_tuning.INTENTS)
    return fine_tuning.fine_tuned_intents(
        inputs.trainable, inputs.data, seeds=seeds, settings=settings, progress=inputs.progress
    )


def _run_fine_tuned_actions(inputs: ProtocolInput) -> list[Outcome]:
    seeds, settings = inputs.effort.seeds or 5, inputs.limit_steps(fine_tuning.ACTIONS)
    return fine_tuning.fine_tuned_actions(
        inputs.trainable, inputs.data, seeds=seeds, settings=settings, progress=inputs.progress
    )


def _run_fine_tuned_responses(inputs: ProtocolInput) -> list[Outcome]:
    effort, data = inputs.effort, inputs.data
    return fine_tuning.fine_tuned_responses(
        inputs.trainable,
        data.pairs,
        data.name,
        shots=(500, 1000) if effort.shots is None else (effort.shots,),
        seeds=effort.seeds or 5,
        settings=inputs.limit_steps(fine_tuning.RESPONSES),
        progress=inputs.progress,
    )


def _dialogue_datasets(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Return the candidate data sets without those that share the dialogues of another."""
    repeated = ("irc_ubuntu_100", "dailydialog_plusplus_adversarial")
    return {name: dataset for name, dataset in candidate_datasets(data).items() if name not in repeated}


#: The protocols that need no application, by name.
PROTOCOLS: dict[str, Protocol] = {
    "prototypes": Protocol(
        "intents",
        intent_datasets,
        lambda inputs: prototype_intents(inputs.encoder, inputs.data, seeds=inputs.effort.seeds or 10),
    ),
    "nearest": Protocol("intents", intent_datasets, _run_nearest),
    "compressed nearest": Protocol(
        "intents",
        intent_datasets,
        lambda inputs: compressed_intents(inputs.encoder, inputs.variants, inputs.data),
        "variants",
    ),
    "logistic": Protocol("intents", intent_datasets, lambda inputs: logistic_intents(inputs.encoder, inputs.data)),
    "fine-tuned intents": Protocol("intents", intent_datasets, _run_fine_tuned_intents, "weights"),
    "out-of-scope": Protocol("out-of-scope", out_of_scope_datasets, _run_out_of_scope),
    "answers": Protocol(
        "responses",
        lambda data: QUESTION_DATASETS,
        lambda inputs: rank_answers(inputs.encoder, inputs.data.pairs, inputs.data.name, pools=("random", "chunks")),
    ),
    "histories": Protocol(
        "responses",
        candidate_datasets,
        lambda inputs: rank_responses(inputs.encoder, inputs.data.test, inputs.data.name),
    ),
    "next turns": Protocol(
        "responses",
        next_turn_datasets,
        lambda inputs: rank_responses(
            inputs.encoder, inputs.data.test, inputs.data.name, setting="0-shot similarity, next turn"
        ),
    ),
    "fine-tuned responses": Protocol("responses", lambda data: QUESTION_DATASETS, _run_fine_tuned_responses, "weights"),
    "candidates": Protocol("reranking", candidate_datasets, lambda inputs: _run_reranking(inputs, rerank), "scores"),
    "adversarial candidates": Protocol(
        "reranking", candidate_datasets, lambda inputs: _run_reranking(inputs, rerank_adversarial), "scores"
    ),
    "coherence": Protocol("coherence", _dialogue_datasets, _run_coherence, "heads"),
    "fine-tuned actions": Protocol("actions", lambda data: ACTION_DATASETS, _run_fine_tuned_actions, "weights"),
    "probed actions": Protocol(
        "actions",
        lambda data: ACTION_DATASETS,
        lambda inputs: probe_actions(
            inputs.encoder, inputs.data, seeds=inputs.effort.seeds or _PROBE_SEEDS, steps=inputs.effort.steps
        ),
    ),
    "probed inference": Protocol(
        "inference",
        lambda data: INFERENCE_DATASETS,
        lambda inputs: probe_inference(
            inputs.encoder, inputs.data, seeds=inputs.effort.seeds or _PROBE_SEEDS, steps=inputs.effort.steps
        ),
    ),
    "retrieval": Protocol(
        "retrieval", retrieval_datasets, lambda inputs: evaluate_retrieval(inputs.encoder, inputs.data)
    ),
    "similarity": Protocol(
        "sts", lambda data: SIMILARITY_DATASETS, lambda inputs: evaluate_similarity(inputs.encoder, inputs.data)
    ),
    "closeness": Protocol(
        "nli", lambda data: TRIPLET_DATASETS, lambda inputs: evaluate_nli(inputs.encoder, inputs.data)
    ),
    "geometry": Protocol("geometry", intent_datasets, lambda inputs: geometry(inputs.encoder, inputs.data)),
    "compressed geometry": Protocol(
        "geometry",
        intent_datasets,
        lambda inputs: compressed_geometry(inputs.encoder, inputs.variants, inputs.data),
        "variants",
    ),
    "isotropy": Protocol("geometry", conversation_datasets, lambda inputs: isotropy(inputs.encoder, inputs.data)),
}


def all_protocols() -> dict[str, Protocol]:
    """Return the protocols of all registered tasks by name."""
    protocols: dict[str, Protocol] = {}
    for task in registry.known_names("task"):
        protocols |= registry.find("task", task)
    return protocols
