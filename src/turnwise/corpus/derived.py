"""Stores that are made of another store: what their manifests say of it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from turnwise.corpus.intake import InputFile
from turnwise.corpus.store import Store
from turnwise.version import __version__


def derived_manifest(
    store: Store, maker: str, options: Mapping[str, Any], read: Mapping[str, int], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of a store that was made of another, whose licence it has and whose files it names by hash.

    Args:
        store: what it was made of.
        maker: the command that made it.
        options: with which settings.
        read: dialogues and utterances that were read.
        facts: what came of it.
    """
    made_of = store.manifest
    return {
        "turnwise": __version__,
        "reader": maker,
        "options": dict(options),
        "licence": made_of.get("licence", ""),
        "home": made_of.get("home", ""),
        "read": dict(read),
        "left_out": {},
        "reasons": {},
        "facts": dict(facts)
        | {"made_of": f"{store.folder.name} ({made_of.get('reader', 'unknown')}, generation {made_of['generation']})"},
        "steps": [],
        "inputs": [
            asdict(InputFile(file["name"], (store.folder / file["name"]).stat().st_size, file["sha256"]))
            for file in made_of["files"]
        ],
    }
