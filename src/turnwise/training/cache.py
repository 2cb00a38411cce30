"""What is made once and kept on disk: named by what it was made of, so that a resumed run finds it and a changed one does not."""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise.corpus.store import Corpus


def corpus_source(corpus: Corpus) -> list[str]:
    """What tells a corpus from others: its stores' contents, and which of their dialogues and turns are read, and how."""
    share = () if corpus.share == 1 else (f"share {corpus.share!r}",)
    combined = ("combined turns",) if corpus.combine_turns else ()
    least = () if corpus.least_turns == 1 else (f"least turns {corpus.least_turns}",)
    generations = (store.manifest["generation"] for store in corpus.stores)
    return [*generations, *(corpus.splits or ("all splits",)), *share, *combined, *least]


def once(folder: Path, kind: str, made_of: list[str], write: Callable[[Path], None]) -> Path:
    """The folder for something made of certain things: written under another name and renamed, unless it is there.

    Runs that share a folder wait for the one that writes and take what it has finished; what a killed one left is written over.
    """
    place = folder / f"{kind}-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:12]}"
    unfinished = folder / f".writing-{place.name}"
    while not place.is_dir():
        unfinished.mkdir(parents=True, exist_ok=True)
        with _alone(unfinished) as held:
            if held and not place.is_dir():
                for leftover in unfinished.iterdir():
                    leftover.unlink()
                try:
                    write(unfinished)
                except BaseException:
                    shutil.rmtree(unfinished)
                    raise
                unfinished.rename(place)
    with contextlib.suppress(OSError):  # made by one that came too late; another such may have removed it already
        unfinished.rmdir()
    return place


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Waits until nobody else holds a folder, and holds it; false if it has been renamed or removed meanwhile."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # which the system lets go of even when this process is killed
        except OSError as error:
            raise TurnwiseError(
                f"{folder.parent} cannot be locked ({error}): keep the cache on a local disk"
            ) from error
        yield folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())
    finally:
        os.close(handle)
