"""Time and peak memory of importing large chat exports, each import in its own process.

    python benchmarks/chat_exports.py FOLDER [--whatsapp 250000 500000 1000000] [--slack 500 1000 2000]

prints a table. Sizes of WhatsApp chats are in messages, those of Slack exports in megabytes of JSON. Exports are
generated in FOLDER one at a time, and removed afterwards, as are the stores. Options behind `--` are those of `turnwise
corpus import`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from turnwise.corpus.synthetic.sample import sample_dialogues

START = datetime(2021, 1, 4, tzinfo=UTC)
NAMES = ("Anna", "Ben", "Carla", "Deniz", "Emil", "Fatima", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Lena")
CHANNELS = 40
HOOK_MINUTES = 7  # a monitor posts that often to one of the channels, day and night
MEMBERS = 300


@cache
def sample_texts() -> list[str]:
    return [turn.text for dialogue in sample_dialogues(500, 0) for turn in dialogue.turns]


class Writer:
    """Texts of messages: turns of the sample corpus, with numbers that make most of them unique."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self._texts = sample_texts()

    def text(self) -> str:
        """Return one to three turns, some with line breaks between them, some with a number."""
        parts = self.random.choices(self._texts, k=1 if self.random.random() < 0.8 else self.random.randint(2, 3))
        if self.random.random() < 0.6:
            parts.append(f"({self.random.randrange(10**9)})")
        return ("\n" if self.random.random() < 0.4 else " ").join(parts)

    def moments(self, day: datetime, count: int) -> list[datetime]:
        """Return times of a day, in order, between 7:00 and 22:00."""
        return [
            day + timedelta(seconds=7 * 3600 + second) for second in sorted(self.random.choices(range(54_000), k=count))
        ]


def write_whatsapp(path: Path, messages: int, per_day: int = 550) -> None:
    """Write a group chat as Android exports it: lines of text, joins, media and deleted messages."""
    writer, day, written = Writer(1), START, 0
    with path.open("w", encoding="utf-8") as file:
        while written < messages:
            count = min(messages - written, writer.random.randint(per_day // 2, per_day * 3 // 2))
            for moment in writer.moments(day, count):
                name, kind = writer.random.choice(NAMES), writer.random.random()
                if kind < 0.01:
                    said = f"{name} added {writer.random.choice(NAMES)}"
                elif kind < 0.04:
                    said = f"{name}: <Media omitted>"
                elif kind < 0.05:
                    said = f"{name}: This message was deleted"
                else:
                    said = f"{name}: {writer.text()}"
                file.write(f"{moment:%d/%m/%Y, %H:%M} - {said}\n")
            written += count
            day += timedelta(days=1)


def write_slack(folder: Path, size: int, per_day: int = 1_800) -> None:
    """Write an export of at least `size` bytes: a file per channel and day, with threads, files, joins and bots."""
    writer = Writer(2)
    folder.mkdir(parents=True)
    users = [{"id": f"U{number:08}", "name": f"user{number}", "profile": _profile(number)} for number in range(MEMBERS)]
    channels = [{"id": f"C{number:08}", "name": f"channel-{number}"} for number in range(CHANNELS)]
    (folder / "users.json").write_text(json.dumps(users, indent=4))
    (folder / "channels.json").write_text(json.dumps(channels, indent=4))
    for channel in channels:
        (folder / channel["name"]).mkdir()
    (folder / "alerts").mkdir()
    activity = list(accumulate(1 / number for number in range(1, CHANNELS + 1)))
    written, day = 0, START
    while written < size:
        posted = writer.random.choices(range(CHANNELS), cum_weights=activity, k=per_day)
        for number in sorted(set(posted)):
            messages = list(_channel_day(writer, day, posted.count(number)))
            written += _write_day(folder / f"channel-{number}", day, messages)
        alarms = (day + timedelta(minutes=minute) for minute in range(0, 24 * 60, HOOK_MINUTES))
        written += _write_day(folder / "alerts", day, [_alarm(writer, moment) for moment in alarms])
        day += timedelta(days=1)


def _write_day(folder: Path, day: datetime, messages: list[dict[str, Any]]) -> int:
    return (folder / f"{day:%Y-%m-%d}.json").write_text(json.dumps(messages, ensure_ascii=False), encoding="utf-8")


def _profile(number: int) -> dict[str, Any]:
    name = f"{NAMES[number % len(NAMES)]} {number}"
    return {
        "avatar_hash": f"{number:012x}",
        "image_72": f"https://avatars.example.com/{number:012x}_72.png",
        "real_name": name,
        "display_name": name.casefold(),
        "team": "T00000001",
        "name": f"user{number}",
        "is_restricted": False,
        "is_ultra_restricted": False,
    }


def _channel_day(writer: Writer, day: datetime, count: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of people, with the replies of threads, of one channel and day."""
    threads: list[str] = []
    for moment in writer.moments(day, count):
        user, kind = writer.random.randrange(MEMBERS), writer.random.random()
        stamp = f"{moment.timestamp():.0f}.{writer.random.randrange(10**6):06}"
        message = {"type": "message", "user": f"U{user:08}", "ts": stamp}
        if kind < 0.02:
            yield message | {"subtype": "channel_join", "text": f"<@U{user:08}> has joined the channel"}
            continue
        text = writer.text() if kind > 0.05 else ""
        if kind > 0.9:
            text = f"<@U{writer.random.randrange(MEMBERS):08}> {text} <https://wiki.example.com/{user}|see here>"
        element = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
        message |= {
            "text": text,
            "client_msg_id": f"{writer.random.getrandbits(128):032x}",
            "team": "T00000001",
            "user_profile": _profile(user),
            "blocks": [
                {"type": "rich_text", "block_id": f"{writer.random.getrandbits(24):06x}", "elements": [element]}
            ],
        }
        if kind < 0.05:
            message |= {"files": [{"id": f"F{user:08}", "name": "picture.png", "mimetype": "image/png", "size": 12345}]}
        elif kind < 0.35 and threads:
            message |= {"thread_ts": writer.random.choice(threads[-5:]), "parent_user_id": f"U{user:08}"}
        elif kind < 0.42:
            threads.append(stamp)
            message |= {"thread_ts": stamp, "reply_count": 4, "reply_users": [f"U{user:08}"]}
        elif kind < 0.6:
            message |= {"reactions": [{"name": "thumbsup", "users": [f"U{user:08}"], "count": 1}]}
        yield message


def _alarm(writer: Writer, moment: datetime) -> dict[str, Any]:
    number = writer.random.randrange(10**6)
    attachment = {"id": 1, "color": "danger", "title": f"Check {number}", "text": f"Check {number} failed on a server."}
    fields = {"username": "monitor", "bot_id": "B1", "attachments": [attachment]}
    stamp = f"{moment.timestamp():.0f}.{number:06}"
    return {"type": "message", "subtype": "bot_message", "text": "", "ts": stamp, **fields}


def import_measured(reader: str, log: Path, out: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    """Import a log in a process of its own; return its times in seconds, its peak memory in bytes and the counts."""
    command = [sys.executable, "-m", "turnwise", "corpus", "import", reader, str(log), "--out", str(out), "--json"]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as report, subprocess.Popen([*command, *options], stdout=report) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        report.seek(0)
        manifest = json.load(report)
    return {
        "seconds": time.perf_counter() - start,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024,  # of the program itself, since this process is smaller
        "dialogues": manifest["dialogues"],
        "utterances": manifest["utterances"],
    }


def measure(
    folder: Path, reader: str, write: Callable[[Path, int], None], size: int, options: Sequence[str]
) -> dict[str, Any]:
    """Generate an export, import it and remove it."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        log = Path(temporary) / ("chat.txt" if reader == "whatsapp" else "export")
        write(log, size)
        files = [file for file in (log, *log.rglob("*")) if file.is_file()]
        megabytes = sum(file.stat().st_size for file in files) / 1e6
        row = import_measured(reader, log, Path(temporary) / "store", options)
        row |= {"log": f"{reader}, {megabytes:,.0f} MB in {len(files):,} files"}
        shutil.rmtree(Path(temporary) / "store")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whatsapp", type=int, nargs="*", default=[250_000, 500_000, 1_000_000], metavar="MESSAGES")
    parser.add_argument("--slack", type=int, nargs="*", default=[500, 1_000, 2_000], metavar="MEGABYTES")
    parser.add_argument("options", nargs="*", help="after --: options of `turnwise corpus import`")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(
        "| log | dialogues | utterances | seconds | of the processor | peak resident |\n|---|--:|--:|--:|--:|--:|\n"
    )
    sizes = [("whatsapp", write_whatsapp, size) for size in arguments.whatsapp]
    sizes += [("slack", write_slack, size * 10**6) for size in arguments.slack]
    for reader, write, size in sizes:
        row = measure(arguments.folder, reader, write, size, arguments.options)
        sys.stdout.write(
            f"| {row['log']} | {row['dialogues']:,} | {row['utterances']:,} | {row['seconds']:,.0f}"
            f" | {row['processor']:,.0f} | {row['peak'] / 1e6:,.0f} MB |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
