"""Messages of Gitter rooms, as its API returned them until 2023, and as archives keep them."""

from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.chat_exports import DELETED, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import (
    first_name,
    optional,
    optional_id,
    require,
    require_id,
    require_object,
    require_time,
)
from turnwise.corpus.readers.shared.files import JSON_FILES, json_records
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read messages `{id, text, sent, fromUser: {username}, parentId}` in arrays or JSON Lines, one file per room.

    A message with replies (`parentId`, `threadMessageCount`) is a dialogue with them. The other messages of a room are
    split into dialogues at pauses. Deleted messages, whose text is empty, are left out, and a dialogue is split there.
    `speakers` maps user names.
    """
    return _GitterRooms(source, speakers, pause).read()


class _GitterRooms(ChatExport):
    patterns = JSON_FILES

    def read_file(self, path: Path) -> None:
        for line, value in json_records(self.source, path):
            with self.source.guard(path, line):
                self.at(path, line)._add_message(require_object(value, "the message"))

    def _add_message(self, record: dict[str, Any]) -> None:
        identity, time, text = require_id(record, "id"), require_time(record, "sent"), require(record, "text", str)
        thread = optional_id(record, "parentId") or (identity if record.get("threadMessageCount") else "")
        conversation = self.add_thread(f"{self.chat}/{thread}") if thread else self.chat
        users = [optional(record, key, dict) for key in ("virtualUser", "fromUser")]
        names = [optional(user, key, str) for user in users for key in ("username", "displayName")]
        self.add_text(conversation, time, first_name(names, "the sender's name"), text, DELETED, key=identity)
