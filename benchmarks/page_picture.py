"""Draw the pictures of the page in the documentation, from the sample corpus and turnwise-small.

    python benchmarks/page_picture.py FOLDER --out docs/images

FOLDER receives the sample corpus and its map, unless it has them. Some groups are named, as a person would. It takes
minutes, needs Chromium, playwright and Pillow, and writes page.png with few colours, so that it is small.
"""

import argparse
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

from turnwise.assist.labelling.labelling import Labelling
from turnwise.core.text import normalise_text

SIZE = ViewportSize(width=1400, height=900)
COLOURS = 256

#: The names of some groups, by a text of each.
NAMES = {
    "thanks, bye": "small talk",
    "yeah, all correct, please cancel my order": "cancel order",
    "yes, please cancel my table": "cancel table",
    "correct, go ahead and search for my missing parcel": "missing parcel",
    "that's all, I just wanted to report a suspicious payment": "suspicious payment",
    "that's it, please file a claim now": "file claim",
    "that's it, I just wanted to change my mobile plan": "change plan",
    "yes, I'd like to adjust my monthly payment": "adjust payment",
    "thank you, so that's my appointment sorted": "appointment",
    "yeah, all correct, please choose my seat": "choose seat",
    "nice, so that's my energy contract sorted": "energy contract",
    "that would be 1063172": "number",
    "I'd say Wednesday the 16th": "date",
    "Seville": "city",
    "that would be 54 Garden Road": "address",
    "that would be Dr Demir": "doctor",
    "it's £29.58": "amount",
    "The Blue Fig": "restaurant",
    "there'll be six guests": "party size",
    "that would be 11:45": "time",
    "sure": "confirm",
    "thank you for helping me check what my insurance covers": "insurance cover",
}


def run(*arguments: object) -> None:
    """Run a turnwise command."""
    subprocess.run([sys.executable, "-m", "turnwise", *map(str, arguments)], check=True)


def name_groups(folder: Path) -> None:
    """Name the groups of NAMES."""
    with Labelling.open(folder) as labelling:
        row_of = {normalise_text(text): row for row, text in enumerate(labelling.map.texts)}
        for text, name in NAMES.items():
            group = int(labelling.row_groups[row_of[normalise_text(text)]])
            if group >= 0:
                labelling.name(group, name)


def draw(address: str, path: Path) -> None:
    """Write a picture of the map view."""
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        context.add_init_script("localStorage.setItem('turnwise-introduced', 'yes')")
        page = context.new_page()
        page.goto(f"{address}/#map")
        page.locator(".groups tbody tr").first.wait_for()
        page.wait_for_timeout(1_000)  # the drawing of the map
        page.screenshot(path=path)
        browser.close()
    Image.open(path).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def main() -> None:
    """Make the corpus, the map and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    store, unlabelled, served = (options.folder / name for name in ("sample", "map", "map-served"))
    if not store.exists():
        run("corpus", "sample", "--out", store, "--dialogues", 1000, "--seed", 1)
    if not (unlabelled / "map.json").exists():
        run("map", store, "--speaker", "user", "--out", unlabelled)
    shutil.rmtree(served, ignore_errors=True)
    shutil.copytree(unlabelled, served)
    name_groups(served)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    service = subprocess.Popen([sys.executable, "-m", "turnwise", "serve", "--map", str(served), "--port", str(port)])
    try:
        while service.poll() is None:
            try:
                if httpx.get(f"{address}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.5)
        options.out.mkdir(parents=True, exist_ok=True)
        draw(address, options.out / "page.png")
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    main()
