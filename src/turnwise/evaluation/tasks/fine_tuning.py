"""Fine-tuning on a few examples, as DSE evaluates it: intents, responses and dialogue actions.

Every run starts from the same weights, learns from a small training set, is stopped by a validation set of the same
size, and is evaluated once on the test set, with the weights of the best validation. The given encoder is not changed.

What the paper leaves open is as in the authors' code: how many validations without improvement end a run, and their
metric (accuracy; the mean of the Top-k accuracies; the mean of micro and macro F1). Where the code departs from the
paper we follow the paper: validations come every 10 or 30 steps even if an epoch is longer, and responses are learnt
with SimCLR's loss. Dropout on attention weights, which the paper does not mention, is off.
"""

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from turnwise.core.dialogue import response_turns
from turnwise.core.errors import DatasetError
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.datasets.candidates import QuestionData
from turnwise.evaluation.datasets.dialogues import ActionData
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import number_intents, sample_few_shot
from turnwise.evaluation.tasks.responses import rank_answers
from turnwise.evaluation.tasks.scoring import accuracy, binarise_labels, f1_outcomes, logit_f1_scores
from turnwise.models.backbone.inputs import ROLE_TOKENS
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.encoder import TextOrTurns
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.losses import simclr
from turnwise.training.finetuning import (
    BatchLoss,
    FineTuningSettings,
    ValidationScore,
    WeightSnapshot,
    compute_outputs,
    fine_tune,
    linear_head,
)

#: The paper's settings (Appendix B.1), with the patience of the authors' code: five validations that are at least 10
#: steps and an epoch apart, three that are 50 steps apart (fifteen of 10), and three that are at least 30 steps and an
#: epoch apart.
INTENTS = FineTuningSettings(50, 16, 3e-5, evaluate_every=10, patience=5, max_length=64, dropout=0.1)
RESPONSES = FineTuningSettings(50, 100, 3e-5, evaluate_every=10, patience=15, max_length=128)
ACTIONS = FineTuningSettings(100, 32, 5e-5, evaluate_every=30, patience=3, max_length=32, dropout=0.2)

TEMPERATURE = 0.05  # SimCLR's τ, which the paper does not give: that of its own loss

Rows = npt.NDArray[np.int64]
Pairs = Sequence[tuple[str, str]]


def fine_tuned_intents(
    encoder: TrainableEncoder,
    data: IntentData,
    *,
    shots: Sequence[int] = (1, 5),
    seeds: int = 10,
    settings: FineTuningSettings = INTENTS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Compute the accuracy after training on k utterances per intent, sampled as for prototypes."""
    tuner = _FineTuner(encoder, settings)
    labels = [example.intent for example in data.train]
    classes, truth = number_intents(data.train, data.test)
    tokens = tuner.tokenise([example.text for example in data.train])
    test = tuner.tokenise([example.text for example in data.test])
    targets = torch.from_numpy(classes).to(tuner.device)
    outcomes = []
    for number, count in enumerate(shots):
        correct = np.empty((seeds, len(test)))
        for seed in range(seeds):
            progress(f"fine-tuning on {data.name}", number * seeds + seed, len(shots) * seeds)
            rows = _sample_rows(labels, count, seed, data.name)
            head = tuner.fit_classifier(tokens, targets, rows, classes.max() + 1, seed)
            correct[seed] = compute_outputs(tuner.encoder, head, test).argmax(1).cpu().numpy() == truth
        outcomes.append(Outcome("intents", data.name, f"{count}-shot fine-tuned", "accuracy", correct))
    return outcomes


def fine_tuned_responses(
    encoder: TrainableEncoder,
    data: QuestionData,
    *,
    shots: Sequence[int] = (500, 1000),
    seeds: int = 5,
    settings: FineTuningSettings = RESPONSES,
    candidates: int = 100,
    progress: Progress = silent,
) -> list[Outcome]:
    """Compute the Top-k accuracy of a question's answer among others after training on k pairs.

    The second half of the pairs, in a fixed random order, is the test set of all runs. From the first half each seed
    samples k pairs to learn from and k for validation. Ranking is that of `rank_answers`, with the same test candidates
    in every run.
    """
    pairs, dataset = data.pairs, data.name
    order = np.random.default_rng(0).permutation(len(pairs))
    rest, test = order[: len(pairs) // 2], [pairs[row] for row in order[len(pairs) // 2 :]]
    if len(rest) < 2 * max(shots):
        raise DatasetError(
            f"{dataset} has {len(pairs)} pairs: {max(shots)}-shot fine-tuning needs at least {4 * max(shots)}"
        )
    tuner = _FineTuner(encoder, settings)
    questions = tuner.tokenise([question for question, _ in pairs])
    answers = tuner.tokenise([response_turns(answer) for _, answer in pairs])
    outcomes = []
    for number, count in enumerate(shots):
        runs: list[list[Outcome]] = []
        for seed in range(seeds):
            progress(f"fine-tuning on {dataset}", number * seeds + seed, len(shots) * seeds)
            sample = np.random.default_rng(seed).permutation(rest)[: 2 * count]
            examples = [(questions[row], answers[row]) for row in sample[:count]]
            tuner.fit_pairs(examples, [pairs[row] for row in sample[count:]], candidates, seed)
            runs.append(rank_answers(tuner.encoder, test, dataset, candidates=candidates))
        for same_metric in zip(*runs, strict=True):
            evidence = np.concatenate([outcome.evidence for outcome in same_metric])
            outcomes.append(Outcome("responses", dataset, f"{count}-shot fine-tuned", same_metric[0].metric, evidence))
    return outcomes


def fine_tuned_actions(
    encoder: TrainableEncoder,
    data: ActionData,
    *,
    shots: Sequence[int] = (10, 20),
    seeds: int = 5,
    settings: FineTuningSettings = ACTIONS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Compute micro and macro F1 of the next system actions, predicted from the history's newest tokens.

    An action is predicted if its sigmoid is above 0.5. Macro F1 is the mean over all actions of the data set; those
    that neither occur nor are predicted count as 0.

    Each turn follows [SYS] or [USR], as in the paper. Training examples are sampled from all turns, but only the last
    example of each dialogue is tested: the sizes of the paper's training and test sets fit only that.
    """
    tuner = _FineTuner(encoder, settings)
    if tuner.encoder.style != "roles":
        tuner.add_role_tokens()
    train, test = data.train, [example for example in data.test if example.last]
    if not test:
        raise DatasetError(f"{data.name} has no test example that is the last of its dialogue: mark some")
    train_actions = [example.actions for example in train]
    train_tokens, test_tokens = (tuner.tokenise([example.turns for example in split]) for split in (train, test))
    targets = torch.from_numpy(binarise_labels(train_actions, data.actions)).to(tuner.device, torch.float32)
    truth = binarise_labels([example.actions for example in test], data.actions)
    outcomes = []
    for number, count in enumerate(shots):
        predicted = np.empty((seeds, *truth.shape), np.bool_)
        for seed in range(seeds):
            progress(f"fine-tuning on {data.name}", number * seeds + seed, len(shots) * seeds)
            rows = _sample_rows(train_actions, count, seed, data.name)
            head = tuner.fit_classifier(train_tokens, targets, rows, truth.shape[1], seed)
            predicted[seed] = (compute_outputs(tuner.encoder, head, test_tokens) > 0).cpu().numpy()
        outcomes += f1_outcomes("actions", data.name, f"{count}-shot fine-tuned", predicted, truth)
    return outcomes


class _FineTuner:
    """A copy of an encoder that goes back to its initial weights before each run."""

    def __init__(self, encoder: TrainableEncoder, settings: FineTuningSettings):
        self.encoder = copy.deepcopy(encoder)
        self.device = encoder.backbone.device
        self._settings = settings
        self._start = WeightSnapshot(self.encoder)

    def add_role_tokens(self) -> None:
        """Add the tokens that name a speaker; their vectors start near the mean of all."""
        torch.manual_seed(0)
        self.encoder.backbone.add_tokens(tuple(ROLE_TOKENS.values()))
        self.encoder.style = "roles"
        self._start = WeightSnapshot(self.encoder)

    def tokenise(self, inputs: Sequence[TextOrTurns]) -> Sequence[Tokens]:
        return self.encoder.tokenise(inputs, self._settings.max_length)

    def fit_classifier(
        self, tokens: Sequence[Tokens], targets: torch.Tensor, rows: tuple[Rows, Rows], size: int, seed: int
    ) -> nn.Module:
        """Fit the encoder and a linear layer, which is returned; targets are classes, or flags of several labels."""
        support, validation = rows
        flags, own_targets, held_out_targets = targets.is_floating_point(), targets[support], targets[validation]
        head = linear_head(self.encoder.hidden, size, self._settings.dropout, seed).to(self.device)
        held_out = [tokens[row] for row in validation]

        def loss(outputs: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            compute = binary_cross_entropy_with_logits if flags else cross_entropy
            return compute(outputs[0], own_targets[batch])

        def validate(encoder: TrainableEncoder, head: nn.Module) -> float:
            logits = compute_outputs(encoder, head, held_out)
            scores = logit_f1_scores(logits, held_out_targets) if flags else accuracy(logits, held_out_targets)
            return float(np.mean(scores))

        self._fit(head, [(tokens[row],) for row in support], loss, validate, seed)
        return head

    def fit_pairs(
        self, examples: Sequence[tuple[Tokens, Tokens]], validation: Pairs, candidates: int, seed: int
    ) -> None:
        """Fit the encoder to pairs with SimCLR's loss, validated by ranking among as many answers as there are."""
        candidates = min(candidates, len({answer for _, answer in validation}))

        def validate(encoder: TrainableEncoder, head: nn.Module) -> float:
            outcomes = rank_answers(encoder, validation, "validation", candidates=candidates)
            return float(np.mean([outcome.evidence.mean() for outcome in outcomes]))

        def loss(outputs: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return simclr(outputs[0], outputs[1], TEMPERATURE)

        self._fit(nn.Identity(), examples, loss, validate, seed)

    def _fit(
        self, head: nn.Module, examples: Sequence[Sequence[Tokens]], loss: BatchLoss, score: ValidationScore, seed: int
    ) -> None:
        self._start.restore()
        fine_tune(self.encoder, head, examples, loss, settings=self._settings, score=score, seed=seed)


def _sample_rows(labels: Sequence[str | Sequence[str]], shots: int, seed: int, dataset: str) -> tuple[Rows, Rows]:
    """Sample training and validation rows; raises DatasetError if there are none for validation."""
    rows = sample_few_shot(labels, shots, seed)
    if not len(rows[1]):
        raise DatasetError(
            f"{dataset} has no label with two training examples: nothing is left to validate fine-tuning with"
        )
    return rows
