"""Chat logs of dialogues."""

import json
from collections.abc import Sequence
from pathlib import Path

from turnwise.core.dialogue import Dialogue


def write_chats(path: Path, dialogues: Sequence[Dialogue]) -> Path:
    """Write chat messages, as a service would log them."""
    roles = {"user": "user", "system": "assistant"}
    records = [
        {"id": each.id, "messages": [{"role": roles[turn.speaker], "content": turn.text} for turn in each.turns]}
        for each in dialogues
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
