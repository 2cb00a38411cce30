"""Protocols: which task is run in which way on which data sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from turnwise.core import registry
from turnwise.core.progress import Progress
from turnwise.evaluation.datasets.candidates import QUESTION_DATASETS, candidate_datasets, next_turn_datasets
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.dialogues import ACTION_DATASETS, INFERENCE_DATASETS, conversation_datasets
from turnwise.evaluation.datasets.intents import intent_datasets, out_of_scope_datasets
from turnwise.evaluation.datasets.retrieval import retrieval_datasets
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS, TRIPLET_DATASETS
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks import coherence, compression, fine_tuning, geometry, intents, out_of_scope, probing
from turnwise.evaluation.tasks import responses as ranking
from turnwise.models.loading import ModelUnderTest
from turnwise.training.finetuning import FineTuningSettings

#: Returns the data sets of a protocol; a folder of data sets may hold more than the known ones.
Catalogue = Callable[[Path | None], Mapping[str, Dataset[Any]]]

NEIGHBOURS = (1, 3, 5, 10, 20, 50)  # k of TaDSE's Figure 6

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

    model: Any  # a `ModelUnderTest`
    data: Any
    effort: Effort
    progress: Progress

    def seeds(self, usual: int) -> int:
        """Return the number of runs with different samples, which the effort may limit."""
        return self.effort.seeds or usual


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
            "heads": model.encoder is not None or bool(coherence.coherence_heads(model.scorer)),
            "weights": model.trainable is not None,
            "variants": bool(model.variants),
            "both": model.encoder is not None and model.scorer is not None,
        }[self.needs]


def _frozen(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol on the vectors of a data set."""
    return Protocol(task, datasets, lambda inputs: evaluate(inputs.model.encoder, inputs.data))


def _compressed(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol on the vectors of a data set and of its templates."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        templates = {name: each.encoder for name, each in inputs.model.variants.items()}
        return evaluate(inputs.model.encoder, templates, inputs.data)

    return Protocol(task, datasets, run, "variants")


def _probed(task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol that trains a layer on frozen vectors."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        return evaluate(inputs.model.encoder, inputs.data, seeds=inputs.seeds(_PROBE_SEEDS), steps=inputs.effort.steps)

    return Protocol(task, datasets, run)


def _fine_tuned(
    task: str, datasets: Catalogue, evaluate: Callable[..., list[Outcome]], settings: FineTuningSettings, seeds: int
) -> Protocol:
    """Return a protocol that trains the encoder."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        limited = settings if inputs.effort.steps is None else replace(settings, steps=inputs.effort.steps)
        options: dict[str, Any] = {"seeds": inputs.seeds(seeds), "settings": limited}
        if inputs.effort.shots is not None and task == "responses":
            options["shots"] = (inputs.effort.shots,)
        return evaluate(inputs.model.trainable, inputs.data, **options, progress=inputs.progress)

    return Protocol(task, datasets, run, "weights")


def _ranked(evaluate: Callable[..., list[Outcome]]) -> Protocol:
    """Return a protocol that ranks labelled candidates, by a re-ranker if there is one."""

    def run(inputs: ProtocolInput) -> list[Outcome]:
        return evaluate(inputs.model.scorer or inputs.model.encoder, inputs.data.test, inputs.data.name)

    return Protocol("reranking", candidate_datasets, run, "scores")


def _known(datasets: Mapping[str, Dataset[Any]]) -> Catalogue:
    """Return a catalogue that does not depend on the folder of data sets."""
    return lambda data: datasets


def _run_prototypes(inputs: ProtocolInput) -> list[Outcome]:
    return intents.prototype_intents(inputs.model.encoder, inputs.data, seeds=inputs.seeds(10))


def _run_nearest(inputs: ProtocolInput) -> list[Outcome]:
    """Classify by nearest neighbours; without out-of-scope utterances too, where they are an intent in the paper."""
    encoder, data = inputs.model.encoder, inputs.data
    outcomes = intents.nearest_intents(encoder, data, neighbours=NEIGHBOURS)
    if data.out_of_scope.test:
        outcomes += intents.nearest_intents(encoder, data, include_out_of_scope=False)
    return outcomes


def _run_out_of_scope(inputs: ProtocolInput) -> list[Outcome]:
    encoder, data, seeds = inputs.model.encoder, inputs.data, inputs.seeds(10)
    outcomes = out_of_scope.detect_out_of_scope(encoder, data, seeds=seeds)
    if data.out_of_scope.train:
        outcomes += out_of_scope.detect_out_of_scope(encoder, data, seeds=seeds, authors=True)
    return outcomes


def _run_answers(inputs: ProtocolInput) -> list[Outcome]:
    return ranking.rank_answers(inputs.model.encoder, inputs.data.pairs, inputs.data.name, pools=("random", "chunks"))


def _run_histories(inputs: ProtocolInput, kind: str = "history") -> list[Outcome]:
    setting = f"0-shot similarity, {kind}"
    return ranking.rank_responses(inputs.model.encoder, inputs.data.test, inputs.data.name, setting=setting)


def _run_coherence(inputs: ProtocolInput) -> list[Outcome]:
    scorer = inputs.model.scorer
    model = scorer if coherence.coherence_heads(scorer) else inputs.model.encoder
    return coherence.coherence(model, inputs.data.test, inputs.data.name, progress=inputs.progress)


def _dialogue_datasets(data: Path | None) -> Mapping[str, Dataset[Any]]:
    """Return the candidate data sets without those that share the dialogues of another."""
    repeated = ("irc_ubuntu_100", "dailydialog_plusplus_adversarial")
    return {name: dataset for name, dataset in candidate_datasets(data).items() if name not in repeated}


_questions, _actions = _known(QUESTION_DATASETS), _known(ACTION_DATASETS)

#: The protocols that need no application, by name.
PROTOCOLS: dict[str, Protocol] = {
    "prototypes": Protocol("intents", intent_datasets, _run_prototypes),
    "nearest": Protocol("intents", intent_datasets, _run_nearest),
    "compressed nearest": _compressed("intents", intent_datasets, compression.compressed_intents),
    "logistic": _frozen("intents", intent_datasets, intents.logistic_intents),
    "fine-tuned intents": _fine_tuned(
        "intents", intent_datasets, fine_tuning.fine_tuned_intents, fine_tuning.INTENTS, 10
    ),
    "out-of-scope": Protocol("out-of-scope", out_of_scope_datasets, _run_out_of_scope),
    "answers": Protocol("responses", _questions, _run_answers),
    "histories": Protocol("responses", candidate_datasets, _run_histories),
    "next turns": Protocol("responses", next_turn_datasets, partial(_run_histories, kind="next turn")),
    "fine-tuned responses": _fine_tuned(
        "responses", _questions, fine_tuning.fine_tuned_responses, fine_tuning.RESPONSES, 5
    ),
    "candidates": _ranked(ranking.rerank),
    "adversarial candidates": _ranked(ranking.rerank_adversarial),
    "coherence": Protocol("coherence", _dialogue_datasets, _run_coherence, "heads"),
    "fine-tuned actions": _fine_tuned("actions", _actions, fine_tuning.fine_tuned_actions, fine_tuning.ACTIONS, 5),
    "probed actions": _probed("actions", _actions, probing.probe_actions),
    "probed inference": _probed("inference", _known(INFERENCE_DATASETS), probing.probe_inference),
    "retrieval": _frozen("retrieval", retrieval_datasets, ranking.evaluate_retrieval),
    "similarity": _frozen("sts", _known(SIMILARITY_DATASETS), ranking.evaluate_similarity),
    "closeness": _frozen("nli", _known(TRIPLET_DATASETS), ranking.evaluate_nli),
    "geometry": _frozen("geometry", intent_datasets, geometry.geometry),
    "compressed geometry": _compressed("geometry", intent_datasets, compression.compressed_geometry),
    "isotropy": _frozen("geometry", conversation_datasets, geometry.isotropy),
}


def all_protocols() -> dict[str, Protocol]:
    """Return the protocols of all registered tasks by name."""
    protocols: dict[str, Protocol] = {}
    for task in registry.known_names("task"):
        protocols |= registry.find("task", task)
    return protocols
