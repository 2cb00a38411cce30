"""What a chart shows, read from its SVG."""

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
Point = tuple[float, float]


def texts(root: ElementTree.Element) -> list[str]:
    """Return all texts in order."""
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def group(root: ElementTree.Element, name: str) -> ElementTree.Element:
    """Return the group of a given id, such as 'line-0', 'intervals-0', 'cloud-0' or 'level'."""
    return next(element for element in root.iter(f"{SVG}g") if element.get("id") == name)


def groups(root: ElementTree.Element, prefix: str) -> list[ElementTree.Element]:
    """Return the groups whose ids start with a prefix."""
    return [element for element in root.iter(f"{SVG}g") if element.get("id", "").startswith(prefix)]


def marks(group: ElementTree.Element) -> list[Point]:
    """Return the positions of the markers in a group."""
    return [(float(use.attrib["x"]), float(use.attrib["y"])) for use in group.iter(f"{SVG}use")]


def shapes(group: ElementTree.Element) -> list[tuple[str, str]]:
    """Return shape ('circle', 'triangle' or 'ring') and colour of the markers in a group."""
    outlines = {path.get("id"): path.attrib["d"] for path in group.iter(f"{SVG}path")}
    markers = []
    for use in group.iter(f"{SVG}use"):
        fill, stroke = (re.search(rf"{name}: ([^;]+)", use.attrib["style"]) for name in ("fill", "stroke"))
        if fill is None or fill[1] == "none":
            assert stroke is not None
            markers.append(("ring", stroke[1]))
        else:
            markers.append(("circle" if "C" in outlines[use.attrib[HREF][1:]] else "triangle", fill[1]))
    return markers


def paths(group: ElementTree.Element) -> list[list[Point]]:
    """Return the corners of the lines in a group."""
    defined = {id(path) for defs in group.iter(f"{SVG}defs") for path in defs.iter(f"{SVG}path")}
    lines = [path.attrib["d"] for path in group.iter(f"{SVG}path") if id(path) not in defined]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)] for path in lines]


def axis(root: ElementTree.Element, name: str) -> dict[float, float]:
    """Return the positions of the numbers on an axis ('x' or 'y')."""
    return {
        float(texts(tick)[0].replace("−", "-").rstrip("%")): marks(tick)[0][name == "y"]
        for tick in groups(root, f"{name}tick")
        if texts(tick)
    }
