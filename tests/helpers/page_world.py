"""The data of the page's tests: texts, conversations, and a service with all features."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from turnwise.assist.conversations import Conversations
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import MapComparison, MapUtterance, UtteranceMap
from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.encoder import Encoder
from turnwise.models.reranker import Reranker
from turnwise.serve.settings import ServeSettings

#: A text that would run as markup, one that is written from right to left, and one that is very long.
MARKUP_TEXT = "<img src=x onerror=\"document.title='taken'\"> my parcel"
ARABIC = "أين طلبي؟ لم يصل بعد 🙂"
LONG = "parcel" * 60

INTENTS = {
    "track_order": [
        "Where is my parcel?",
        "When does my order arrive?",
        "My parcel has not come yet.",
        "Track my order, please.",
        MARKUP_TEXT,
        LONG,
    ],
    "book_table": [
        "A table for two, please.",
        "Can I book a table tonight?",
        "Reserve a table for four at eight.",
        "Is a table free on Friday?",
    ],
    "opening_hours": [
        "When do you open?",
        "Until when are you open?",
        "What are your opening hours?",
        "Are you open on Sunday?",
    ],
    "refund": ["I want my money back.", "How do I get a refund?", "Please refund what I paid.", ARABIC],
}

ANSWERS = {
    "track_order": "It left the warehouse this morning and arrives tomorrow.",
    "book_table": "A table is free at seven: shall I book it?",
    "opening_hours": "We are open from nine to six, and closed on Sundays.",
    "refund": "You have your money back within three days.",
}

CONVERSATION = "\n".join(
    [
        "user: Where is my parcel?",
        "agent: May I have the number of your order?",
        "user: It is 4711, and my parcel has not come yet.",
        "agent: A table is free at seven: shall I book it?",
        "user: Purple elephants dream of quantum algebra.",
    ]
)

REPORT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A report</title>
<style>h1 { color: rgb(1, 2, 3); }</style></head><body><h1>How well it does</h1></body></html>"""


def dialogues() -> list[Dialogue]:
    """Return three conversations per intent."""
    return [
        Dialogue(
            f"{intent}-{number}",
            (
                Turn("user", texts[number]),
                Turn("system", ANSWERS[intent]),
                Turn("user", "Thank you."),
                Turn("system", "You are welcome."),
            ),
            source="shop",
        )
        for intent, texts in INTENTS.items()
        for number in range(3)
    ]


def _map(encoder: Encoder, folder: Path) -> None:
    """Write a map with intents as clusters, each in a corner; the long text is in none, and table bookings are new."""
    texts = [text for each in INTENTS.values() for text in each]
    topics = np.repeat(np.arange(len(INTENTS)), [len(each) for each in INTENTS.values()])
    labels = np.where([text == LONG for text in texts], -1, topics).astype(np.int32)
    vectors = encoder.encode(texts, normalise=True)
    corners = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])[topics]
    points = (corners + np.random.default_rng(0).normal(size=(len(texts), 2))).astype(np.float32)
    utterances = [MapUtterance(text, f"d{row}", 0, "user", 1 + row % 3) for row, text in enumerate(texts)]
    counts = [each.count for each in utterances]
    clusters = describe_clusters(texts, labels, vectors, counts)
    comparison = MapComparison(10, 20, 0.8, (5, 0, 5, 5))
    UtteranceMap(utterances, vectors, points, labels, clusters, "minilm", new=topics == 1, comparison=comparison).save(
        folder
    )


def _reranker(backbone: Path, folder: Path) -> None:
    loaded = load_backbone(str(backbone))
    loaded.add_tokens((END_OF_TURN, *MARKS.values()))
    torch.manual_seed(1)
    Reranker(loaded, {task: nn.Linear(loaded.hidden, 1) for task in ("selection", "deletion")}).save(folder)


def build(place: Path, tiny_backbone: Path) -> ServeSettings:
    """Create everything that a service can serve in a folder, and return its settings."""
    encoder = Encoder.load("minilm", device="cpu")
    pairs = [(text, intent) for intent, texts in INTENTS.items() for text in texts]
    IntentClassifier("minilm").fit([text for text, _ in pairs], [intent for _, intent in pairs]).save(place / "intents")
    Responder.open(str(place / "answers"), encoder).index(dialogues())
    Conversations.open(str(place / "conversations"), encoder).index(dialogues())
    _map(encoder, place / "map")
    _reranker(tiny_backbone, place / "reranker")
    (place / "report").mkdir()
    (place / "report" / "report.html").write_text(REPORT, encoding="utf-8")
    return ServeSettings(
        model="minilm",
        intents=place / "intents",
        responses=str(place / "answers"),
        conversations=str(place / "conversations"),
        reranker=str(place / "reranker"),
        map=place / "map",
        report=place / "report",
    )
