"""Fine-tuning on a few examples, as DSE measures it: intents, responses and dialogue actions.

Every run starts from the same weights, learns from a small training set, is stopped by a validation set of the same size, and is
measured once on the test set, with the weights of the best validation. The encoder that comes in is left as it is.

What the paper leaves open is as in the authors' code: how many validations without improvement end a run, and what is compared in
them (accuracy; the mean of the Top-k accuracies; the mean of Micro and Macro F1). Where the code departs from the paper we follow
the paper: validations come every 10 or 30 steps even if an epoch is longer, and responses are learnt with SimCLR's loss. Dropout
on attention weights, of which the paper does not speak, is off.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from turnwise.core.dialogue import response_turns
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.datasets.actions import ActionData
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import few_shot, numbered
from turnwise.evaluation.tasks.multilabel import f1_outcomes, f1_scores, flags
from turnwise.evaluation.tasks.responses import rank_answers
from turnwise.models.backbone.inputs import ROLE_TOKENS
from turnwise.models.backbone.stream import Tokens
from turnwise.models.encoder import Encoder, TextOrTurns
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

#: The paper's settings (Appendix B.1), with the patience of the authors' code: five validations that are at least 10 steps and an
#: epoch apart, three that are 50 steps apart (fifteen of 10), and three that are at least 30 steps and an epoch apart.
INTENTS = FineTuningSettings(50, 16, 3e-5, evaluate_every=10, patience=5, max_length=64, dropout=0.1)
RESPONSES = FineTuningSettings(50, 100, 3e-5, evaluate_every=10, patience=15, max_length=128)
ACTIONS = FineTuningSettings(100, 32, 5e-5, evaluate_every=30, patience=3, max_length=32, dropout=0.2)

#: SimCLR's τ, which the paper does not say: that of its own loss.
TEMPERATURE = 0.05

Rows = npt.NDArray[np.int64]
Pairs = Sequence[tuple[str, str]]


def fine_tuned_intents(
    encoder: Encoder,
    data: IntentData,
    *,
    shots: Sequence[int] = (1, 5),
    seeds: int = 10,
    settings: FineTuningSettings = INTENTS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Accuracy of a linear layer on the encoder's vectors, both trained on k utterances an intent; an outcome a number of shots.

    Each seed draws as the prototypes' do (`few_shot`): k utterances an intent to learn from, and k to validate with.

    Args:
        encoder: where runs start.
        data: intents.
        shots: k.
        seeds: runs.
        settings: how to fine-tune.
        progress: told how many runs are done.

    Raises:
        DatasetError: if no intent has a second utterance to validate with.
    """
    runs = _Runs(encoder, settings)
    labels = [utterance.intent for utterance in data.train]
    classes, truth = numbered(data.train, data.test)
    tokens = runs.tokens([utterance.text for utterance in data.train])
    test = runs.tokens([utterance.text for utterance in data.test])
    targets = torch.from_numpy(classes).to(runs.device)
    outcomes = []
    for turn, count in enumerate(shots):
        right = np.empty((seeds, len(test)))
        for seed in range(seeds):
            progress(f"fine-tuning on {data.name}", turn * seeds + seed, len(shots) * seeds)
            drawn = _checked(few_shot(labels, count, seed), data.name)
            head = runs.classifier(tokens, targets, drawn, cross_entropy, _accuracy, classes.max() + 1, seed)
            right[seed] = compute_outputs(runs.encoder, head, test).argmax(1).cpu().numpy() == truth
        outcomes.append(Outcome("intents", data.name, f"{count}-shot fine-tuned", "accuracy", right))
    return outcomes


def fine_tuned_responses(
    encoder: Encoder,
    pairs: Pairs,
    dataset: str,
    *,
    shots: Sequence[int] = (500, 1000),
    seeds: int = 5,
    settings: FineTuningSettings = RESPONSES,
    candidates: int = 100,
    progress: Progress = silent,
) -> list[Outcome]:
    """Top-k accuracy of a question's answer among others', after training on k pairs.

    The second half of the pairs, in an order drawn once, is the test set of all runs. From the first half each seed draws k pairs
    to learn from and k to validate with. Ranking is `rank_answers`', in the test with the same candidates for every run.

    Args:
        encoder: where runs start.
        pairs: questions and their answers.
        dataset: its name, for the results.
        shots: k.
        seeds: runs.
        settings: how to fine-tune.
        candidates: of a question, the right one included.
        progress: told how many runs are done.

    Raises:
        DatasetError: if there are too few pairs.
    """
    order = np.random.default_rng(0).permutation(len(pairs))
    rest, test = order[: len(pairs) // 2], [pairs[row] for row in order[len(pairs) // 2 :]]
    if len(rest) < 2 * max(shots):
        raise DatasetError(
            f"{dataset} has {len(pairs)} pairs: {max(shots)}-shot fine-tuning takes {4 * max(shots)} at least"
        )
    runs = _Runs(encoder, settings)
    questions = runs.tokens([question for question, _ in pairs])
    answers = runs.tokens([response_turns(answer) for _, answer in pairs])
    outcomes = []
    for turn, count in enumerate(shots):
        found: list[list[Outcome]] = []
        for seed in range(seeds):
            progress(f"fine-tuning on {dataset}", turn * seeds + seed, len(shots) * seeds)
            drawn = np.random.default_rng(seed).permutation(rest)[: 2 * count]
            examples = [(questions[row], answers[row]) for row in drawn[:count]]
            runs.pairs(examples, [pairs[row] for row in drawn[count:]], candidates, seed)
            found.append(rank_answers(runs.encoder, test, dataset, candidates=candidates))
        for same in zip(*found, strict=True):
            evidence = np.concatenate([outcome.evidence for outcome in same])
            outcomes.append(Outcome("responses", dataset, f"{count}-shot fine-tuned", same[0].metric, evidence))
    return outcomes


def fine_tuned_actions(
    encoder: Encoder,
    data: ActionData,
    *,
    shots: Sequence[int] = (10, 20),
    seeds: int = 5,
    settings: FineTuningSettings = ACTIONS,
    roles: bool = True,
    last_only: bool = True,
    progress: Progress = silent,
) -> list[Outcome]:
    """Micro and Macro F1 of the next system actions, predicted from the history's newest tokens; two outcomes a number of shots.

    An action is predicted where its sigmoid is above 0.5. Macro F1 is the mean over all actions of the data set, also those that
    neither occur nor are predicted, which count as 0.

    Args:
        encoder: where runs start.
        data: histories and the actions that follow.
        shots: k examples an action (`few_shot_actions`).
        seeds: runs.
        settings: how to fine-tune.
        roles: each turn stands behind [SYS] or [USR], as the paper says; False: turns are joined as the encoder joins them, which
            for one with separators is what the authors' code does to all models but TOD-BERT.
        last_only: of each dialogue only the last example is trained and tested on: the paper's test sets are as large as that.
        progress: told how many runs are done.

    Raises:
        DatasetError: if there is nothing to validate or to test with.
    """
    runs = _Runs(encoder, settings)
    if roles and runs.encoder.style != "roles":
        runs.add_roles()
    splits = [[example for example in split if example.last or not last_only] for split in (data.train, data.test)]
    if not splits[1]:
        raise DatasetError(f"{data.name} has no test example that is the last of its dialogue: mark some, or use all")
    actions = [[example.actions for example in split] for split in splits]
    tokens, test = (runs.tokens([example.turns for example in split]) for split in splits)
    labels, truth = (flags(each, data.actions) for each in actions)
    targets = torch.from_numpy(labels).to(runs.device, torch.float32)
    outcomes = []
    for turn, count in enumerate(shots):
        predicted = np.empty((seeds, *truth.shape), np.bool_)
        for seed in range(seeds):
            progress(f"fine-tuning on {data.name}", turn * seeds + seed, len(shots) * seeds)
            drawn = _checked(few_shot_actions(actions[0], count, seed), data.name)
            head = runs.classifier(
                tokens, targets, drawn, binary_cross_entropy_with_logits, _mean_f1, truth.shape[1], seed
            )
            predicted[seed] = (compute_outputs(runs.encoder, head, test) > 0).cpu().numpy()
        outcomes += f1_outcomes("actions", data.name, f"{count}-shot fine-tuned", predicted, truth)
    return outcomes


def few_shot_actions(actions: Sequence[Sequence[str]], shots: int, seed: int) -> tuple[Rows, Rows]:
    """Training and validation examples, none of them twice.

    Of the examples that have an action, min(2k, n) are drawn, action by action in alphabetical order; those that an earlier action
    has drawn are dropped, so there may be fewer; the larger half of the others is for training.
    """
    random = np.random.default_rng(seed)
    members: dict[str, list[int]] = defaultdict(list)
    for index, each in enumerate(actions):
        for action in set(each):
            members[action].append(index)
    taken: set[int] = set()
    support: list[int] = []
    validation: list[int] = []
    for action in sorted(members):
        drawn = [row for row in random.permutation(members[action])[: 2 * shots].tolist() if row not in taken]
        taken.update(drawn)
        half = (len(drawn) + 1) // 2
        support += drawn[:half]
        validation += drawn[half:]
    return np.array(support, np.int64), np.array(validation, np.int64)


class _Runs:
    """Runs that start from the same weights: a copy of an encoder that goes back to them before each."""

    def __init__(self, encoder: Encoder, settings: FineTuningSettings):
        self.encoder = copy.deepcopy(encoder)
        self.device = encoder.backbone.device
        self._settings = settings
        self._start = WeightSnapshot(self.encoder)

    def add_roles(self) -> None:
        """Teaches the copy the tokens that name a speaker; their vectors start as the mean of all, give or take a little chance."""
        torch.manual_seed(0)
        self.encoder.backbone.add_tokens(tuple(ROLE_TOKENS.values()))
        self.encoder.style = "roles"
        self._start = WeightSnapshot(self.encoder)

    def tokens(self, inputs: Sequence[TextOrTurns]) -> Sequence[Tokens]:
        """What goes into the encoder."""
        return self.encoder.tokenise(inputs, self._settings.max_length)

    def classifier(
        self,
        tokens: Sequence[Tokens],
        targets: torch.Tensor,
        drawn: tuple[Rows, Rows],
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        measure: Callable[[torch.Tensor, torch.Tensor], float],
        size: int,
        seed: int,
    ) -> nn.Module:
        """Fits the encoder and a linear layer, which it gives, to some of the tokens' targets, validated by others."""
        support, validation = drawn
        head = linear_head(self.encoder.hidden, size, self._settings.dropout, seed).to(self.device)
        own, asked = targets[support], targets[validation]
        held_out = [tokens[row] for row in validation]

        def score(encoder: Encoder, head: nn.Module) -> float:
            return measure(compute_outputs(encoder, head, held_out), asked)

        def batch_loss(said: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return loss(said[0], own[rows])

        self._fit(head, [(tokens[row],) for row in support], batch_loss, score, seed)
        return head

    def pairs(self, examples: Sequence[tuple[Tokens, Tokens]], validation: Pairs, candidates: int, seed: int) -> None:
        """Fits the encoder to pairs by SimCLR's loss, validated by ranking (fewer candidates where answers are fewer)."""
        candidates = min(candidates, len({answer for _, answer in validation}))

        def score(encoder: Encoder, head: nn.Module) -> float:
            found = rank_answers(encoder, validation, "validation", candidates=candidates)
            return float(np.mean([outcome.evidence.mean() for outcome in found]))

        def batch_loss(said: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return simclr(said[0], said[1], TEMPERATURE)

        self._fit(nn.Identity(), examples, batch_loss, score, seed)

    def _fit(
        self,
        head: nn.Module,
        examples: Sequence[Sequence[Tokens]],
        loss: BatchLoss,
        score: ValidationScore,
        seed: int,
    ) -> None:
        self._start.restore()
        fine_tune(self.encoder, head, examples, loss, settings=self._settings, score=score, seed=seed)


def _checked(drawn: tuple[Rows, Rows], dataset: str) -> tuple[Rows, Rows]:
    if not len(drawn[1]):
        raise DatasetError(
            f"{dataset} has no label with two training examples: nothing is left to validate fine-tuning with"
        )
    return drawn


def _accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return float((logits.argmax(1) == targets).float().mean())


def _mean_f1(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """The mean of Micro and Macro F1."""
    return float(np.mean(f1_scores((logits > 0).cpu().numpy(), (targets > 0).cpu().numpy())))
