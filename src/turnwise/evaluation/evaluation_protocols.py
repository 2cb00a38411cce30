"""Protocols: which task is run in which way on which data sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from turnwise.evaluation.tasks.coherence import coherence, coherence_heads
from turnwise.evaluation.tasks.compression import compressed_geometry, compressed_intents
from turnwise.evaluation.tasks.fine_tuning import (
    ACTIONS,
    INTENTS,
    RESPONSES,
    fine_tuned_actions,
    fine_tuned_intents,
    fine_tuned_responses,
)
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

    def seeds(self, usual: int) -> int:
        """Return the number of runs with different samples, which the effort may limit."""
        return self.effort.seeds or usual

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


# ---- kinds of protocols


def _frozen(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol on the vectors of a data set."""
    return Protocol(task, datasets, lambda inputs: evaluate(inputs.encoder, inputs.data))


def _compressed(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol on the vectors of a data set and of its templates."""
    return Protocol(task, datasets, lambda inputs: evaluate(inputs.encoder, inputs.variants, inputs.data), "variants")


def _probed(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol that trains a layer on frozen vectors."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        return evaluate(inputs.encoder, inputs.data, seeds=inputs.seeds(_PROBE_SEEDS), steps=inputs.effort.steps)

    return Protocol(task, datasets, run)


def _fine_tuned(
    task: str,
    datasets: Catalogue,
    evaluate: Callable[..., list[Outcome]],
    settings: FineTuningSettings,
    seeds: int,
) -> Protocol:
    """Return a protocol that trains the encoder."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        options: dict[str, Any] = {"seeds": inputs.seeds(seeds), "settings": inputs.limit_steps(settings)}
        if inputs.effort.shots is not None and task == "responses":
            options["shots"] = (inputs.effort.shots,)
        return evaluate(inputs.trainable, inputs.data, **options, progress=inputs.progress)

    return Protocol(task, datasets, run, "weights")


def _ranked(evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol that ranks labelled candidates, by a re-ranker if there is one."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        return evaluate(inputs.model.scorer or inputs.encoder, inputs.data.test, inputs.data.name)

    return Protocol("reranking", candidate_datasets, run, "scores")


def _known(datasets: Mapping[str, Dataset[Any]]) -> Catalogue:
    """Return a catalogue that does not depend on the folder of data sets."""
    return lambda data: datasets


# ---- protocols of their own


def _run_prototypes(inputs: ProtocolInput) -> list[Outcome]:
    return prototype_intents(inputs.encoder, inputs.data, seeds=inputs.seeds(10))


def _run_nearest(inputs: ProtocolInput) -> list[Outcome]:
    """Classify by nearest neighbours; without out-of-scope utterances too, where they are an intent in the paper."""
    encoder, data = inputs.encoder, inputs.data
    outcomes = nearest_intents(encoder, data, neighbours=NEIGHBOURS)
    if data.out_of_scope.test:
        outcomes += nearest_intents(encoder, data, include_out_of_scope=False)
    return outcomes


def _run_out_of_scope(inputs: ProtocolInput) -> list[Outcome]:
    encoder, data, seeds = inputs.encoder, inputs.data, inputs.seeds(10)
    outcomes = detect_out_of_scope(encoder, data, seeds=seeds)
    if data.out_of_scope.train:
        outcomes += detect_out_of_scope(encoder, data, seeds=seeds, authors=True)
    return outcomes


def _run_answers(inputs: ProtocolInput) -> list[Outcome]:
    return rank_answers(inputs.encoder, inputs.data.pairs, inputs.data.name, pools=("random", "chunks"))


def _run_histories(inputs: ProtocolInput, setting: str = "0-shot similarity, history") -> list[Outcome]:
    return rank_responses(inputs.encoder, inputs.data.test, inputs.data.name, setting=setting)


def _run_coherence(inputs: ProtocolInput) -> list[Outcome]:
    scorer = inputs.model.scorer
    model = cast(Reranker, scorer) if coherence_heads(scorer) else inputs.encoder
    return coherence(model, inputs.data.test, inputs.data.name, progress=inputs.progress)


def _dialogue_datasets(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Return the candidate data sets without those that share the dialogues of another."""
    repeated = ("irc_ubuntu_100", "dailydialog_plusplus_adversarial")
    return {name: dataset for name, dataset in candidate_datasets(data).items() if name not in repeated}


_run_next_turns = partial(_run_histories, setting="0-shot similarity, next turn")
_questions, _actions = _known(QUESTION_DATASETS), _known(ACTION_DATASETS)

#: The protocols that need no application, by name.
PROTOCOLS: dict[str, Protocol] = {
    "prototypes": Protocol("intents", intent_datasets, _run_prototypes),
    "nearest": Protocol("intents", intent_datasets, _run_nearest),
    "compressed nearest": _compressed("intents", intent_datasets, compressed_intents),
    "logistic": _frozen("intents", intent_datasets, logistic_intents),
    "fine-tuned intents": _fine_tuned("intents", intent_datasets, fine_tuned_intents, INTENTS, 10),
    "out-of-scope": Protocol("out-of-scope", out_of_scope_datasets, _run_out_of_scope),
    "answers": Protocol("responses", _questions, _run_answers),
    "histories": Protocol("responses", candidate_datasets, _run_histories),
    "next turns": Protocol("responses", next_turn_datasets, _run_next_turns),
    "fine-tuned responses": _fine_tuned("responses", _questions, fine_tuned_responses, RESPONSES, 5),
    "candidates": _ranked(rerank),
    "adversarial candidates": _ranked(rerank_adversarial),
    "coherence": Protocol("coherence", _dialogue_datasets, _run_coherence, "heads"),
    "fine-tuned actions": _fine_tuned("actions", _actions, fine_tuned_actions, ACTIONS, 5),
    "probed actions": _probed("actions", _actions, probe_actions),
    "probed inference": _probed("inference", _known(INFERENCE_DATASETS), probe_inference),
    "retrieval": _frozen("retrieval", retrieval_datasets, evaluate_retrieval),
    "similarity": _frozen("sts", _known(SIMILARITY_DATASETS), evaluate_similarity),
    "closeness": _frozen("nli", _known(TRIPLET_DATASETS), evaluate_nli),
    "geometry": _frozen("geometry", intent_datasets, geometry),
    "compressed geometry": _compressed("geometry", intent_datasets, compressed_geometry),
    "isotropy": _frozen("geometry", conversation_datasets, isotropy),
}


def all_protocols() -> dict[str, Protocol]:
    """Return the protocols of all registered tasks by name."""
    protocols: dict[str, Protocol] = {}
    for task in registry.known_names("task"):
        protocols |= registry.find("task", task)
    return protocols
