"""Memory stays flat: importing and reading back millions of utterances does not grow the process."""

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from benchmarks import chat_exports as generator

from turnwise.corpus.readers.shared import chat_exports
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.rejections import Rejection

#: What a process may take, whatever the size of the corpus.
LIMIT_MEGABYTES = 600

# The child measures itself. Not by getrusage: its peak is inherited from whoever forked the child, which here has torch
# loaded.
PEAK = """
import sys

def peak():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmHWM"].split()[0]) // 1024
"""
IMPORT = """
from turnwise import import_corpus
store = import_corpus(sys.argv[1], sys.argv[2], sys.argv[3])
print(store.manifest["utterances"], peak())
"""
READ = """
from turnwise import read_corpus
print(sum(len(dialogue.turns) for dialogue in read_corpus(sys.argv[1])), peak())
"""
STATS = """
from turnwise import read_corpus
from turnwise.corpus.stats import compute_corpus_stats
print(compute_corpus_stats(read_corpus(sys.argv[1])).utterances, peak())
"""


def measure(code: str, *arguments: object) -> tuple[int, int]:
    """(utterances, peak megabytes) of a child process."""
    result = subprocess.run([sys.executable, "-c", PEAK + code, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    utterances, peak = result.stdout.split()
    return int(utterances), int(peak)


def write_jsonl(path: Path, utterances: int) -> None:
    """Every text is its own, as in the worst log: nothing can be shared."""
    with path.open("w") as file:
        for number in range(utterances // 10):
            turns = [
                {
                    "speaker": ("user", "system")[turn % 2],
                    "text": f"what was said in {number} at turn {turn}, with some more words",
                }
                for turn in range(10)
            ]
            file.write(json.dumps({"id": f"dialogue-{number}", "turns": turns}) + "\n")


def write_table(path: Path, utterances: int) -> None:
    """Interleaved: the ten messages of a conversation lie as far from each other as can be."""
    conversations = utterances // 10
    with path.open("w") as file:
        file.write("conversation,speaker,text,time\n")
        for turn in range(10):
            for number in range(conversations):
                speaker = ("user", "agent")[turn % 2]
                file.write(
                    f"c{number},{speaker},what was said in {number} at turn {turn} with some more words,{turn}\n"
                )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here: peak memory is read from it")
@pytest.mark.parametrize("utterances", [200_000, 5_000_000], ids=["200 thousand", "5 million"])
@pytest.mark.parametrize("form", ["jsonl", "table"])
@pytest.mark.full
def test_memory_of_importing_and_reading_is_constant(tmp_path: Path, form: str, utterances: int) -> None:
    log = tmp_path / ("log.jsonl" if form == "jsonl" else "log.csv")
    (write_jsonl if form == "jsonl" else write_table)(log, utterances)
    for code, arguments in (
        (IMPORT, (form, log, tmp_path / "store")),
        (READ, (tmp_path / "store",)),
        (STATS, (tmp_path / "store",)),
    ):
        count, peak = measure(code, *arguments)
        assert count == utterances
        assert peak < LIMIT_MEGABYTES


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here: peak memory is read from it")
@pytest.mark.parametrize("reader", ["whatsapp", "slack"])
@pytest.mark.full
def test_memory_of_importing_chats_is_constant(tmp_path: Path, reader: str) -> None:
    peaks = []
    for size in (1, 4):
        log = tmp_path / f"{size}.txt"
        write_chat(reader, log, size * 150_000)
        count, peak = measure(IMPORT, reader, log, tmp_path / f"store-{size}")
        assert count > size * 100_000
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 40
    assert peaks[1] < LIMIT_MEGABYTES


def write_chat(reader: str, path: Path, messages: int, **options: int) -> None:
    if reader == "whatsapp":
        generator.write_whatsapp(path, messages, **options)
    else:
        generator.write_slack(path, 700 * messages, **options)


def raise_rejection(rejection: Rejection) -> None:
    raise AssertionError(rejection)


@pytest.mark.parametrize("reader", ["whatsapp", "slack"])
def test_objects_in_memory_do_not_grow_with_a_chat(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first dialogue to the last, when all messages have been read."""
    monkeypatch.setattr(generator, "CHANNELS", 1)
    monkeypatch.setattr(generator, "HOOK_MINUTES", 30)
    monkeypatch.setattr(chat_exports, "_MAX_MESSAGES", 200)
    peaks = []
    for messages in (200, 2_000, 7_000):  # the first one loads modules
        log = tmp_path / f"{len(peaks)}.txt"
        write_chat(reader, log, messages, per_day=100)
        gc.collect()
        tracemalloc.start()
        dialogues = get_reader(reader).read(CorpusSource(log, reader, raise_rejection))
        next(dialogues)
        tracemalloc.reset_peak()
        assert sum(len(dialogue.turns) for dialogue in dialogues) > 0.5 * messages
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[2] - peaks[1]) / 5_000 < 40
