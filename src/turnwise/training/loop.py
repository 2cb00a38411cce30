"""The loop: any objectives, any backbone, one machine or several; exact, resumable, watched.

A step is: prepared batches in (made ahead by threads) → each objective's loss and gradients (in one pass, or chunked with cached
gradients) → the mean over processes → clip → optimiser. Chance is drawn anew for every step from (seed, step), so a run that was
killed and resumed ends with the weights of one that was not.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

from turnwise.corpus.store import Corpus
from turnwise.encoder import COMPRESSION
from turnwise.files import write_whole
from turnwise.objectives.objective import BatchStates, Objective, Prepared
from turnwise.progress import Progress, silent
from turnwise.training.batches import Feed, prepared_steps
from turnwise.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from turnwise.training.encoding import BatchStep, TokenPart, TokenStep
from turnwise.training.errors import TrainingError, TrainingInterruptedError
from turnwise.training.folder import BEST, FIRST, TRAINED, claim, expect_trained, reading
from turnwise.training.log import Log, curves_svg, model_card
from turnwise.training.machine import half_precision, interruptions, peak_memory, release_memory, token_budget
from turnwise.training.model import Model, model_of, start, take_head
from turnwise.training.recipe import Recipe
from turnwise.training.rivals import find_rivals
from turnwise.training.schedule import learning_rate_factor
from turnwise.training.templates import learnt_compression, slot_marks
from turnwise.training.tokens import corpus_source, find_examples, tokenise_corpus

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

    Raises:
        TrainingError: if `out` is taken, the recipe is another than the one to be resumed, the loss is not a number, or it was
            interrupted (after saving).
    """
    out = Path(out)
    run = _Run(recipe, corpus, out, resume, progress, tensorboard, Path(cache or out / "tokens"), Path(first) if first else None)
    run.fit(probe, progress)
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
    ):
        self.recipe = recipe
        self.out = out
        self.corpus = reading(recipe, corpus)
        # half precision is ours to switch on: accelerate would keep the first run's choice for the whole process
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        self.half = half_precision(recipe.precision)
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.main = self.accelerator.is_main_process
        if self.main:  # alone: another process would find what this one has just written, and take it for an earlier run
            claim(out, recipe, resume)
        self.accelerator.wait_for_everyone()
        place: str | Path = recipe.backbone
        if recipe.first is not None:
            place = first or _first(recipe.first, corpus, out / FIRST, resume, progress, tensorboard, cache)
            expect_trained(place, recipe.first, corpus)
        torch.manual_seed(recipe.seed)
        objectives = recipe.make()
        marks = slot_marks(self.corpus, objectives)
        self.encoder, heads = start(recipe, place, objectives, marks)
        self.encoder.to(self.accelerator.device)
        with self.accelerator.main_process_first():
            told = progress if self.main else silent
            texts = tokenise_corpus(self.corpus, self.encoder.backbone.tokenizer, cache, told, marks)
            examples = find_examples(self.corpus, texts, objectives, cache, told)
            for objective in objectives.values():
                if objective.miner is not None:
                    texts.take_rivals(find_rivals(self.corpus, texts, objective.miner, cache, told))
        self.parts = [
            _Part(name, objective, objective.heads(self.encoder.hidden).to(self.accelerator.device), recipe.weight(name))
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
                self.encoder.backbone.longest,
                recipe.seed,
            )
            for name, objective in objectives.items()
        ]
        self.steps = recipe.steps_of(self.feeds[0].steps_per_epoch)
        self.probe_every = self.feeds[0].steps_per_epoch if recipe.probe_every == "epoch" else recipe.probe_every
        self.named = self._named_parameters()
        self.optimizer = self._optimizer()
        self.average = {name: value.detach().clone() for name, value in self.named.items()} if recipe.ema else {}
        self.best: float | None = None
        self.interrupted = False
        self.step = self._restore() if resume else 0
        self.log = Log(out, self.step, tensorboard and self.main, self.main)
        budget = recipe.tokens_per_forward or token_budget(self.encoder.backbone, self.accelerator.device)
        self.batch = BatchStep(self.encoder, budget, self.rank, self.world)
        self.tokens = TokenStep(self.encoder, budget, self.rank, self.world)

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
        return kind(settings, fused=self.accelerator.device.type == "cuda")

    # ---- the steps

    def fit(self, probe: Probe | None, progress: Progress) -> None:
        recipe = self.recipe
        self.encoder.train()
        if probe and self.step == 0:
            self._probe(probe)
        with interruptions() as interrupted:
            start, done, tokens = time.perf_counter(), self.step, 0
            for batches in prepared_steps(self.feeds, self.step, self.steps, recipe.workers):
                figures = self._step(batches)
                self.step += 1
                tokens += sum(len(sequence) for prepared in batches for sequence in prepared.sequences)
                if not math.isfinite(figures["loss"]):
                    self._fail(figures["loss"])
                if self.step % recipe.log_every == 0 or self.step == self.steps:
                    seconds = time.perf_counter() - start
                    rows = sum(prepared.rows for prepared in batches) * (self.step - done)
                    figures |= {
                        "examples_per_second": rows / seconds,
                        "tokens_per_second": tokens / seconds,
                        "padding_avoided": _padding(batches),
                        "memory_gigabytes": peak_memory(self.accelerator.device),
                    }
                    self.log.write(self.step, figures)
                    progress(f"training: loss {figures['loss']:.3f}, {rows / seconds:,.0f} examples/s", self.step, self.steps)
                    start, done, tokens = time.perf_counter(), self.step, 0
                if probe and self.probe_every and self.step % self.probe_every == 0 and self.step < self.steps:
                    self._probe(probe)
                if recipe.checkpoint_epochs and self.step % self.feeds[0].steps_per_epoch == 0 and self.main:
                    with self._averaged():
                        self._save(self.out / "epochs" / f"{self.step // self.feeds[0].steps_per_epoch:03d}")
                last = self.step == self.steps
                if self.step % recipe.checkpoint_every == 0 or last or interrupted():
                    self.checkpoint()
                if interrupted() and not last:
                    raise TrainingInterruptedError(
                        f"interrupted at step {self.step} of {self.steps}; all is saved. Go on with the same command and --resume"
                    )
            self.interrupted = interrupted()
        if probe:
            self._probe(probe)

    def _step(self, batches: list[Prepared]) -> dict[str, float]:
        """One optimiser step; gives the figures of its losses."""
        recipe = self.recipe
        figures: dict[str, float] = {}
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for together in self.groups:

            def seed(chunk: int, number: int = together[0]) -> None:
                torch.manual_seed(_mix(recipe.seed, self.step, number, chunk, self.rank))

            with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.half):
                found = self._losses(together, batches, seed)
            for number, (value, logs) in zip(together, found, strict=True):
                part = self.parts[number]
                total += part.weight * value
                if len(self.parts) > 1:
                    figures[f"loss.{part.name}"] = value
                figures |= {f"{part.name}.{name}": figure for name, figure in logs.items()}
        self._average_gradients()
        factor = learning_rate_factor(recipe.schedule, self.step, self.steps, recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        if recipe.clip is not None:
            figures["gradient_norm"] = float(nn.utils.clip_grad_norm_(self.named.values(), recipe.clip))
        if math.isfinite(total):  # a loss that is no number must not reach the weights
            self.optimizer.step()
            for name, average in self.average.items():
                average.lerp_(self.named[name].detach(), 1 - recipe.ema)
        return {"loss": total, "learning_rate": recipe.learning_rate * factor, **figures}

    def _losses(
        self, together: list[int], batches: list[Prepared], seed: Callable[[int], None]
    ) -> list[tuple[float, dict[str, float]]]:
        """The losses of objectives that are encoded together, each with figures for the log; their gradients are added up."""
        tokens = [
            TokenPart(part.objective, batches[number], part.heads, part.weight)
            for number in together
            if (part := self.parts[number]).objective.needs == "tokens" or part.objective.needs == "replaced"
        ]
        if tokens:
            return [(value, {}) for value in self.tokens.run(tokens, seed)]
        return [self._whole(self.parts[number], batches[number], seed) for number in together]

    def _whole(self, part: _Part, prepared: Prepared, seed: Callable[[int], None]) -> tuple[float, dict[str, float]]:
        """The loss of an objective that sees its whole batch."""
        logs: dict[str, float] = {}
        objective = part.objective
        assert objective.needs == "states" or objective.needs == "pooled"
        device = self.accelerator.device
        facts = {name: torch.as_tensor(values, device=device) for name, values in prepared.facts.items()}
        lengths = torch.tensor([len(sequence) for sequence in prepared.sequences], device=device)
        unweighted = torch.zeros(())

        def loss(rows: torch.Tensor) -> torch.Tensor:
            nonlocal unweighted
            with torch.autocast(device.type, enabled=False):  # which would round the cosines of a loss, too
                rows = rows.float()
                if objective.needs == "states":
                    value, figures = objective.loss(BatchStates(rows, lengths), facts, part.heads)
                else:
                    value, figures = objective.loss(rows.unflatten(0, (-1, prepared.rows)), facts, part.heads)
            logs.update(figures)
            unweighted = value.detach()
            return value * part.weight

        if self.batch.run(prepared, "states" if objective.needs == "states" else "vectors", loss, seed):
            logs["cached"] = 1.0
        return float(unweighted), logs

    def _average_gradients(self) -> None:
        """The mean over the processes, in one flat tensor."""
        if self.world == 1:
            return
        # a process without an example has no gradient where others have one; a head that nobody used has none anywhere
        anywhere = torch.tensor([value.grad is not None for value in self.named.values()], device=self.accelerator.device).int()
        dist.all_reduce(anywhere, dist.ReduceOp.MAX)
        parameters = [value for value, used in zip(self.named.values(), anywhere.tolist(), strict=True) if used]
        flat = torch.cat([(torch.zeros_like(value) if value.grad is None else value.grad).flatten() for value in parameters])
        dist.all_reduce(flat)
        flat /= self.world
        for value, part in zip(parameters, flat.split([value.numel() for value in parameters]), strict=True):
            value.grad = part.view_as(value)

    def _fail(self, loss: float) -> None:
        last = latest_checkpoint(self.out / "checkpoints")
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        raise TrainingError(
            f"the loss is {loss} at step {self.step}; {kept}. A smaller learning_rate, clip=1, or precision=fp32 often helps"
        )

    def _probe(self, probe: Probe) -> None:
        """Measures the model, and keeps it if it is the best so far."""
        if self.main:
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
        self.accelerator.wait_for_everyone()

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

    def checkpoint(self) -> None:
        """Writes everything that the run needs to go on."""
        if self.main:
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
            state = {"steps": self.steps, "best": self.best, "corpus": corpus_source(self.corpus)}
            save_checkpoint(self.out / "checkpoints", self.step, tensors, state, self.recipe.keep)
        self.accelerator.wait_for_everyone()

    def _restore(self) -> int:
        """Puts the newest checkpoint back in place; gives the step to go on from."""
        place = latest_checkpoint(self.out / "checkpoints")
        if place is None:
            return 0
        tensors, state = load_checkpoint(place)
        if state.get("corpus") != corpus_source(self.corpus):
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
                    field: value if field == "step" and self.accelerator.device.type == "cpu" else value.to(parameter.device)
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
        if self.main and not (self.out / TRAINED).is_file():
            self._save(self.out, model_card(self.recipe, self.corpus, self.out))
            (self.out / "curves.svg").write_text(curves_svg(self.out / "metrics.jsonl"), encoding="utf-8")
            write_whole(self.out / TRAINED, "\n".join(corpus_source(self.corpus)))
        self.accelerator.wait_for_everyone()
        return self.model

    def _save(self, folder: Path, card: str | None = None) -> None:
        """Writes the model as it is, and beside it what its objectives leave it to know of templates."""
        self.model.save(folder, card)
        for part in self.parts:
            if part.objective.slot_names is not None:
                learnt_compression(self.encoder, self.corpus, part.objective, part.heads).save(folder / COMPRESSION)


def _first(recipe: Recipe, corpus: Corpus, place: Path, resume: bool, progress: Progress, tensorboard: bool, cache: Path) -> Path:
    """The folder of a first stage's model, which is trained unless it is there."""
    if resume and (place / TRAINED).is_file():
        return place

    def told(what: str, done: int, total: int | None = None) -> None:
        progress(f"first stage: {what}", done, total)

    run = _Run(recipe, corpus, place, resume, told, tensorboard, cache)
    run.fit(None, told)
    run.finish()
    if run.interrupted:  # at its last step: what is over for the stage is not for the whole
        raise TrainingInterruptedError("interrupted after the first stage; all is saved. Go on with the same command and --resume")
    del run
    release_memory()
    return place


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


def _padding(batches: list[Prepared]) -> float:
    """The share of tokens that padding to the longest of the batch would have added."""
    padded = real = 0
    for prepared in batches:
        lengths = [len(sequence) for sequence in prepared.sequences]
        padded += max(lengths) * len(lengths)
        real += sum(lengths)
    return 1 - real / padded
