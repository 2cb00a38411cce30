"""The loop: any objectives, any backbone, one machine or several; exact, resumable, watched.

A step is: prepared batches in (made ahead by threads) → each objective's loss and gradients (in one pass, or chunked with cached
gradients) → the mean over processes → clip → optimiser. Chance is drawn anew for every step from (seed, step), so a run that was
killed and resumed ends with the weights of one that was not.
"""

import contextlib
import gc
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from turnwise.core.files import write_whole
from turnwise.core.plots import write_chart
from turnwise.core.progress import Progress, silent
from turnwise.corpus.store import Corpus
from turnwise.models.backbone.stream import to_device
from turnwise.models.encoder import COMPRESSION
from turnwise.objectives.objective import BatchStates, Figures, Objective, Prepared
from turnwise.training import TrainingError, TrainingInterruptedError
from turnwise.training.batches import Feed, prepared_steps
from turnwise.training.checkpoint import (
    BEST,
    CHECKPOINTS,
    FIRST,
    TRAINED,
    CheckpointError,
    Checkpoints,
    claim,
    expect_trained,
    latest_checkpoint,
    load_checkpoint,
    reading,
)
from turnwise.training.disk_cache import TrainingCorpus, corpus_identity
from turnwise.training.distributed import LONGEST_WAIT, Processes
from turnwise.training.encoding import BatchStep, TokenPart, TokenStep
from turnwise.training.examples import extract_examples
from turnwise.training.hard_negatives import mine_hard_negatives
from turnwise.training.log import Log, curves_svg, model_card
from turnwise.training.machine import compiles, half_precision, interruptions, seed_all, token_budget
from turnwise.training.model import Model, model_of, start, take_head
from turnwise.training.pace import Pace, Reading
from turnwise.training.recipe import Recipe
from turnwise.training.schedule import learning_rate_factor
from turnwise.training.templates import learnt_compression, slot_marks
from turnwise.training.tokens import tokenise_corpus

#: What a probe is: figures of a model.
Probe = Callable[[Any], dict[str, float]]


@dataclass(slots=True)
class _Part:
    """One objective in a run."""

    name: str
    objective: Objective
    heads: nn.Module
    weight: float


def train(
    recipe: Recipe,
    corpus: Corpus,
    out: Path | str,
    *,
    resume: bool = False,
    probe: Probe | None = None,
    progress: Progress = silent,
    tensorboard: bool = False,
    cache: Path | str | None = None,
    first: Path | str | None = None,
    longest_wait: float = LONGEST_WAIT,
) -> Model:
    """Trains an encoder, or a re-ranker where an objective is one's.

    `out` becomes its folder, with `checkpoints/`, `metrics.jsonl`, `curves.svg` and `recipe.yaml` inside.

    Where the recipe has a first stage, that is trained before, in the same way; its model is in `out/first`.

    Args:
        recipe: what to do.
        corpus: what to learn from.
        out: the folder; must be new unless `resume`.
        resume: go on from the newest checkpoint in `out`, or start if there is none; in the first stage, if that is not over.
        probe: measures the model before, after and every `probe_every` steps; the recipe's own stage, not the first.
        progress: told how many steps are done.
        tensorboard: also write TensorBoard's files, into `tensorboard/`.
        cache: where tokenised texts are kept, for several runs over one corpus to share; None: in `out/tokens`.
        first: the folder of the recipe's first stage, for several runs to share that were to train the same one; None: it is
            trained in `out/first`.
        longest_wait: where several processes train, seconds without a sign of life after which one of them counts as lost.

    Raises:
        TrainingError: if `out` is taken, the recipe is another than the one to be resumed, the loss is not a number, it was
            interrupted (after saving), or a process was lost.
    """
    out, held = Path(out), Path(cache or Path(out) / "tokens")
    with Processes(longest_wait) as processes:
        told = progress if processes.main else silent
        run = _Run(recipe, corpus, out, resume, told, tensorboard, held, Path(first) if first else None, processes)
        run.fit(probe, told)
        return run.finish()


class _Run:
    """Everything that a run holds."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        out: Path,
        resume: bool,
        progress: Progress,
        tensorboard: bool,
        cache: Path,
        first: Path | None = None,
        processes: Processes | None = None,
    ):
        self.recipe = recipe
        self.out = out
        self.corpus = reading(recipe, corpus)
        self.processes = processes or Processes()
        self.device, self.main = self.processes.device, self.processes.main
        self.half = half_precision(recipe.precision)
        with self.processes.together():
            if (
                self.main
            ):  # alone: another process would find what this one has just written, and take it for an earlier run
                claim(out, recipe, resume)
        place: str | Path = recipe.backbone
        if recipe.first is not None:
            place = first or _first(
                recipe.first, corpus, out / FIRST, resume, progress, tensorboard, cache, self.processes
            )
            expect_trained(place, recipe.first, corpus)
        torch.manual_seed(recipe.seed)
        objectives = recipe.make()
        marks = slot_marks(self.corpus, objectives)
        self.encoder, heads = start(recipe, place, objectives, marks)
        self.encoder.to(self.device)
        with self.processes.main_first():
            read = TrainingCorpus.of(self.corpus, cache)
            texts = tokenise_corpus(read, self.encoder.backbone.tokenizer, progress, marks)
            examples = extract_examples(read, texts, objectives, progress)
            for objective in objectives.values():
                if objective.miner is not None:
                    texts.hard_negative_table = mine_hard_negatives(read, texts, objective.miner, progress)
        self.parts = [
            _Part(name, objective, objective.heads(self.encoder.hidden).to(self.device), recipe.weight(name))
            for name, objective in objectives.items()
        ]
        for part in self.parts:
            take_head(part.heads, part.objective, heads)
        self.groups = _groups(objectives.values())
        self.model = model_of(self.encoder, [(part.objective, part.heads) for part in self.parts])
        composer = self.encoder.composer
        self.feeds = [
            Feed(
                name,
                objective,
                examples[name],
                texts,
                composer,
                recipe.batch_of(name),
                recipe.max_length,
                self.encoder.backbone.max_length,
                recipe.seed,
                recipe.shuffle_buffer,
            )
            for name, objective in objectives.items()
        ]
        self.steps = recipe.steps_of(self.feeds[0].steps_per_epoch)
        self.probe_every = self.feeds[0].steps_per_epoch if recipe.probe_every == "epoch" else recipe.probe_every
        self.named = self._named_parameters()
        self.optimizer = self._optimizer()
        self.average = {name: value.detach().clone() for name, value in self.named.items()} if recipe.ema else {}
        self.checkpoints = Checkpoints(out / CHECKPOINTS, recipe.keep)
        #: Whether a loss was no number.
        self.spoilt = torch.zeros((), dtype=torch.bool, device=self.device)
        self.best: float | None = None
        self.interrupted = False
        self.step = 0
        with self.processes.together():
            if resume:
                self.step = self._restore()
            self.log = Log(out, self.step, tensorboard and self.main, self.main)
        self.processes.expect_equal(self._facts())
        self.processes.describe_position = self._whereabouts
        if compiles(recipe.compile, self.device, self.steps):
            self.encoder.backbone.compile()
        budget = recipe.tokens_per_forward or token_budget(self.encoder.backbone, self.device)
        self.batch = BatchStep(self.encoder, budget, self.processes.rank, self.processes.world)
        self.tokens = TokenStep(self.encoder, budget, self.processes.rank, self.processes.world)

    # ---- what is trained

    def _named_parameters(self) -> dict[str, nn.Parameter]:
        """All that is trained, by name: the encoder's parameters without the frozen ones, and the heads'."""
        recipe, backbone = self.recipe, self.encoder.backbone
        if recipe.frozen_embeddings:
            for parameter in backbone.embeddings().parameters():
                parameter.requires_grad_(False)
        frozen = backbone.layers // 2 if recipe.frozen_layers == "half" else recipe.frozen_layers
        if frozen > backbone.layers:
            raise TrainingError(f"frozen_layers={frozen}: the backbone has {backbone.layers} layers")
        for layer in backbone.layer_list()[:frozen]:
            layer.requires_grad_(False)
        named = {f"encoder.{name}": value for name, value in self.encoder.named_parameters() if value.requires_grad}
        for part in self.parts:
            named |= {f"heads.{part.name}.{name}": value for name, value in part.heads.named_parameters()}
        return named

    def _optimizer(self) -> torch.optim.Optimizer:
        recipe = self.recipe
        groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
        for name, parameter in self.named.items():
            objective = name.split(".")[1] if name.startswith("heads.") else ""
            groups.setdefault((objective, parameter.dim() > 1), []).append(parameter)
        settings = [
            {
                "params": parameters,
                "lr": recipe.head_learning_rate_of(objective) if objective else recipe.learning_rate,
                "weight_decay": recipe.weight_decay if is_matrix else 0.0,
            }
            for (objective, is_matrix), parameters in groups.items()
        ]
        for group in settings:
            group["peak"] = group["lr"]
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        return kind(settings, fused=self.device.type == "cuda")

    # ---- what the other processes are told

    def _facts(self) -> dict[str, bytes]:
        """What all processes must have alike; by the name that an error gives it."""
        weights = hashlib.sha256()
        if self.processes.world > 1:  # seconds for a large model, which one process alone need not spend
            for value in self.named.values():
                weights.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        return {
            "a recipe": self.recipe.to_yaml().encode(),
            "a corpus": "\n".join(corpus_identity(self.corpus)).encode(),
            "examples": str([len(feed.examples) for feed in self.feeds]).encode(),
            "a step to begin with": str(self.step).encode(),
            "weights to begin with": weights.digest(),
        }

    def _whereabouts(self) -> str:
        return f"at step {self.step} of {self.steps}; {self._kept()}. Go on with the same command and --resume"

    # ---- the steps

    def fit(self, probe: Probe | None, progress: Progress) -> None:
        recipe = self.recipe
        self.encoder.train()
        if probe and self.step == 0:
            self._probe(probe)
        pace = Pace(self.device)
        with interruptions() as interrupted, self.checkpoints:
            before: Reading | None = None
            for batches in prepared_steps(self.feeds, self.step, self.steps, recipe.workers):
                reading = Reading(self.step + 1, self._step(batches), batches)
                self.step += 1
                # a step is looked at when the next one is on its way: a GPU that is waited for after every step stands still
                if before is not None:
                    self._look(before, pace, progress)
                last = self.step == self.steps
                stop = self.processes.any(interrupted() or self.checkpoints.failed)
                probing = bool(probe and self.probe_every and self.step % self.probe_every == 0 and not last)
                epoch = recipe.checkpoint_epochs and self.step % self.feeds[0].steps_per_epoch == 0
                saving = self.step % recipe.checkpoint_every == 0 or last or stop
                before = reading
                if probing or epoch or saving:  # but what is measured or kept has been looked at
                    self._look(reading, pace, progress)
                    before = None
                if probe and probing:
                    self._probe(probe)
                if epoch:
                    self._keep_epoch(self.step // self.feeds[0].steps_per_epoch)
                if saving:
                    self.checkpoint(at_once=last or stop)
                if stop and not last:
                    raise TrainingInterruptedError(
                        f"interrupted at step {self.step} of {self.steps}; all is saved. Go on with the same command and --resume"
                    )
            self.interrupted = self.processes.any(interrupted())
        if probe:
            self._probe(probe)

    def _look(self, reading: Reading, pace: Pace, progress: Progress) -> None:
        """Looks at what a step came to: the run ends where the loss is no number, and what is due is logged."""
        pace.count(reading.batches)
        figures = reading.figures()
        if not math.isfinite(figures["loss"]):
            self._fail(reading.step, figures["loss"])
        if reading.step % self.recipe.log_every == 0 or reading.step == self.steps:
            figures |= pace.figures(reading.batches)
            self.log.write(reading.step, figures)
            told = f"training: loss {figures['loss']:.3f}, {figures['examples_per_second']:,.0f} examples/s"
            progress(told, reading.step, self.steps)

    def _step(self, batches: list[Prepared]) -> Figures:
        """One optimiser step; gives the figures of its losses, on the device."""
        recipe = self.recipe
        figures: Figures = {}
        total = torch.zeros((), device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        for together in self.groups:

            def seed(chunk: int, number: int = together[0]) -> None:
                seed_all(_mix(recipe.seed, self.step, number, chunk, self.processes.rank), self.device)

            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                found = self._losses(together, batches, seed)
            for number, (value, logs) in zip(together, found, strict=True):
                part = self.parts[number]
                total = total + part.weight * value
                if len(self.parts) > 1:
                    figures[f"loss.{part.name}"] = value
                figures |= {f"{part.name}.{name}": figure for name, figure in logs.items()}
        self.processes.average_gradients(self.named.values())
        factor = learning_rate_factor(recipe.schedule, self.step, self.steps, recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        if recipe.clip is not None:
            figures["gradient_norm"] = nn.utils.clip_grad_norm_(self.named.values(), recipe.clip)
        self._update(total)
        return {"loss": total, "learning_rate": recipe.learning_rate * factor, **figures}

    def _update(self, loss: torch.Tensor) -> None:
        """Changes the weights, unless a loss was no number, now or before: that must not reach them."""
        self.spoilt |= ~torch.isfinite(loss)
        if self.device.type == "cuda":
            # the fused optimiser looks at it on the GPU, as it does for torch's own GradScaler
            self.optimizer.found_inf = self.spoilt.float()  # type: ignore[attr-defined]
        elif self.spoilt:
            return
        self.optimizer.step()
        for name, average in self.average.items():
            average.lerp_(self.named[name].detach(), 1 - self.recipe.ema)

    def _losses(
        self, together: list[int], batches: list[Prepared], seed: Callable[[int], None]
    ) -> list[tuple[torch.Tensor, Figures]]:
        """The losses of objectives that are encoded together, each with figures for the log; their gradients are added up."""
        tokens = [
            TokenPart(part.objective, batches[number], part.heads, part.weight)
            for number in together
            if (part := self.parts[number]).objective.needs == "tokens" or part.objective.needs == "replaced"
        ]
        if tokens:
            return [(value, {}) for value in self.tokens.run(tokens, seed)]
        return [self._whole(self.parts[number], batches[number], seed) for number in together]

    def _whole(self, part: _Part, prepared: Prepared, seed: Callable[[int], None]) -> tuple[torch.Tensor, Figures]:
        """The loss of an objective that sees its whole batch."""
        logs: Figures = {}
        objective = part.objective
        assert objective.needs == "states" or objective.needs == "pooled"
        device = self.device
        facts = {name: to_device(torch.as_tensor(values), device) for name, values in prepared.facts.items()}
        unweighted = torch.zeros((), device=device)

        def loss(rows: torch.Tensor) -> torch.Tensor:
            nonlocal unweighted
            with torch.autocast(device.type, enabled=False):  # which would round the cosines of a loss, too
                rows = rows.float()
                if objective.needs == "states":
                    lengths = torch.from_numpy(prepared.sequences.lengths)
                    value, figures = objective.loss(BatchStates(rows, to_device(lengths, device)), facts, part.heads)
                else:
                    value, figures = objective.loss(rows.unflatten(0, (-1, prepared.rows)), facts, part.heads)
            logs.update(figures)
            unweighted = value.detach()
            return value * part.weight

        if self.batch.run(prepared, "states" if objective.needs == "states" else "vectors", loss, seed):
            logs["cached"] = 1.0
        return unweighted, logs

    def _fail(self, step: int, loss: float) -> None:
        with contextlib.suppress(CheckpointError):  # of the two errors the one at hand
            self.checkpoints.wait()
        raise TrainingError(
            f"the loss is {loss} at step {step}; {self._kept()}. A smaller learning_rate, clip=1, or precision=fp32 often helps"
        )

    def _kept(self) -> str:
        last = latest_checkpoint(self.out / CHECKPOINTS)
        return f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"

    def _probe(self, probe: Probe) -> None:
        """Measures the model, and keeps it if it is the best so far."""
        with self.processes.together():
            if not self.main:
                return
            with self._averaged():
                figures = probe(self.model)
                self.log.write(self.step, {f"probe.{name}": value for name, value in figures.items()})
                wanted = self.recipe.keep_best
                if wanted is not None:
                    if wanted not in figures:
                        raise TrainingError(f"keep_best={wanted!r}: the probe gives {', '.join(figures)}")
                    if self.best is None or figures[wanted] > self.best:
                        self.best = figures[wanted]
                        self._save(self.out / BEST)
            self.encoder.train()

    def _keep_epoch(self, number: int) -> None:
        with self.processes.together():
            if self.main:
                with self._averaged():
                    self._save(self.out / "epochs" / f"{number:03d}")

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """The averaged weights in place of the trained ones, where a moving average is kept."""
        held = {name: self.named[name].detach().clone() for name in self.average}
        with torch.no_grad():
            for name, value in self.average.items():
                self.named[name].copy_(value)
            yield
            for name, value in held.items():
                self.named[name].copy_(value)

    # ---- saving and going on

    def checkpoint(self, *, at_once: bool) -> None:
        """Writes everything that the run needs to go on; `at_once`: it is on disk when this returns."""
        with self.processes.together():
            if self.main:
                self._save_checkpoint()
                if at_once:
                    self.checkpoints.wait()

    def _save_checkpoint(self) -> None:
        names = {id(value): name for name, value in self.named.items()}
        optimizer = {
            f"{names[id(parameter)]}.{key}": value
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
        }
        tensors = {"parameters": {name: value.detach() for name, value in self.named.items()}, "optimizer": optimizer}
        if self.average:
            tensors["average"] = self.average
        # no random states: chance is drawn anew for every step
        state = {"steps": self.steps, "best": self.best, "corpus": corpus_identity(self.corpus)}
        self.checkpoints.save(self.step, tensors, state)

    def _restore(self) -> int:
        """Puts the newest checkpoint back in place; gives the step to go on from."""
        place = latest_checkpoint(self.out / CHECKPOINTS)
        if place is None:
            return 0
        tensors, state = load_checkpoint(place)
        if state.get("corpus") != corpus_identity(self.corpus):
            raise TrainingError(
                f"{place} learnt from another corpus than the one given: a run goes on with the stores and splits it began with"
            )
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(tensors["parameters"][name])
            for name, value in self.average.items():
                value.copy_(tensors["average"][name])
        by_name: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in tensors["optimizer"].items():
            name, _, field = key.rpartition(".")
            by_name.setdefault(name, {})[field] = value
        for name, parameter in self.named.items():
            if name in by_name:
                # the step counter stays where PyTorch keeps it; moments go to the parameter's device
                self.optimizer.state[parameter] = {
                    field: value if field == "step" and self.device.type == "cpu" else value.to(parameter.device)
                    for field, value in by_name[name].items()
                }
        self.best = state["best"]
        return int(state["step"])

    def finish(self) -> Model:
        """Writes the finished model, unless that was done before: what was chosen for it since is to stay."""
        self.log.close()
        with torch.no_grad():
            for name, value in self.average.items():
                self.named[name].copy_(value)
        self.model.eval()
        with self.processes.together():
            if self.main and not (self.out / TRAINED).is_file():
                self._save(self.out, model_card(self.recipe, self.corpus, self.out))
                write_chart(self.out / "curves.svg", lambda: curves_svg(self.out / "metrics.jsonl"))
                write_whole(self.out / TRAINED, "\n".join(corpus_identity(self.corpus)))
        return self.model

    def _save(self, folder: Path, card: str | None = None) -> None:
        """Writes the model as it is, and beside it what its objectives leave it to know of templates."""
        self.model.save(folder, card)
        for part in self.parts:
            if part.objective.slot_names is not None:
                learnt_compression(self.encoder, self.corpus, part.objective, part.heads).save(folder / COMPRESSION)


def _first(
    recipe: Recipe,
    corpus: Corpus,
    place: Path,
    resume: bool,
    progress: Progress,
    tensorboard: bool,
    cache: Path,
    processes: Processes,
) -> Path:
    """The folder of a first stage's model, which is trained unless it is there."""
    if resume and (place / TRAINED).is_file():
        return place

    def told(what: str, done: int, total: int | None = None) -> None:
        progress(f"first stage: {what}", done, total)

    before = processes.describe_position
    run = _Run(recipe, corpus, place, resume, told, tensorboard, cache, processes=processes)
    run.fit(None, told)
    run.finish()
    if run.interrupted:  # at its last step: what is over for the stage is not for the whole
        raise TrainingInterruptedError(
            "interrupted after the first stage; all is saved. Go on with the same command and --resume"
        )
    processes.describe_position = before  # which the stage has made its own, and would be kept in memory by
    del run
    release_memory()
    return place


def release_memory() -> None:
    """Free the memory of a finished or failed run: the next run chooses its chunk size by how much memory is free."""
    gc.collect()
    torch.cuda.empty_cache()


def _groups(objectives: Iterable[Objective]) -> list[list[int]]:
    """The numbers of objectives that are encoded together: all that look at token states; the others each alone."""
    groups: list[list[int]] = []
    together: list[int] = []
    for number, objective in enumerate(objectives):
        if objective.needs != "tokens":
            groups.append([number])
            continue
        if not together:
            groups.append(together)
        together.append(number)
    return groups


def _mix(*numbers: int) -> int:
    """A seed from several numbers, so that neighbours do not share one."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number * 1442695040888963407 + 1) % (1 << 63)
    return mixed
