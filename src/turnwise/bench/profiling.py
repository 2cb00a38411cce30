"""Where the time of training steps goes: kernels on a GPU, operators on a CPU."""

from collections.abc import Callable
from pathlib import Path

from turnwise.files import write_whole
from turnwise.progress import Progress

#: Steps that are looked at, the last ones: what is loaded, compiled and made ready at first is over then.
STEPS = 5

#: Lines of the table.
_LINES = 40


def write_profile(run: Callable[[Progress], object], steps: int, out: Path) -> None:
    """Writes a table of what a run of training did in its last steps, the costliest first; times are of all these steps.

    Args:
        run: trains for so many steps, and says at every one that it is done.
        steps: how many, more than `STEPS`.
        out: the file.
    """
    # imported here: it takes seconds
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = torch.cuda.is_available()
    profiler = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])])
    begun = False

    def told(what: str, done: int, total: int | None = None) -> None:
        nonlocal begun
        if what.startswith("training") and done == steps - STEPS and not begun:
            begun = True
            profiler.start()

    try:
        run(told)
    finally:
        if begun:
            profiler.stop()
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=order, row_limit=_LINES, max_name_column_width=100)
    write_whole(out, f"{STEPS} steps\n{table}\n")
