"""Where the time of training steps goes: kernels on a GPU, operators on a CPU."""

from collections.abc import Callable
from pathlib import Path

from turnwise.core.files import write_atomic
from turnwise.core.progress import Progress

#: Steps that are looked at, the last ones: what is loaded, compiled and made ready at first is over then.
STEPS = 5

#: Steps of a run that is looked at, at the least: a step is told of when the next one is on its way.
LEAST = STEPS + 2

#: Lines of the table.
_LINES = 40


def write_profile(run: Callable[[Progress], object], steps: int, out: Path) -> None:
    """Writes a table of what a run of training did in its last steps, the costliest first; times are of all these steps.

    On a GPU there are two: its own work, and the host's, which has to keep ahead of it.

    Args:
        run: trains for so many steps, and says at every one that it is done.
        steps: how many, at least `LEAST`.
        out: the file.
    """
    # imported here: it takes seconds
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = torch.cuda.is_available()
    profiler = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])])
    watching = False

    def told(what: str, done: int, total: int | None = None) -> None:
        nonlocal watching
        if what.startswith("training") and done == steps - STEPS - 1:
            watching = True
            profiler.start()
        elif watching and done == steps:  # before anything is saved
            watching = False
            profiler.stop()

    try:
        run(told)
    finally:
        if watching:
            profiler.stop()
    orders = ("self_cuda_time_total", "self_cpu_time_total") if on_gpu else ("self_cpu_time_total",)
    averages = profiler.key_averages()
    tables = [averages.table(sort_by=order, row_limit=_LINES, max_name_column_width=100) for order in orders]
    write_atomic(out, "\n".join([f"{STEPS} steps", *tables]) + "\n")
