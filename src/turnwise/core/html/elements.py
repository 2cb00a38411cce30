"""HTML and SVG from nested calls, everything escaped that is not an element itself."""

from collections.abc import Iterable
from html import escape

#: Elements that hold nothing and are not closed.
_EMPTY = frozenset({"img", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | int | None) -> Markup:
    """An element.

    Args:
        name: 'td'.
        children: text, which is escaped, and elements, which are not.
        attributes: an underscore at the end of a name is dropped and others become hyphens ('class_', 'aria_label'); those that are
            None are left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[str], between: str = "") -> Markup:
    """Text and elements one after the other."""
    return Markup(between.join(child if isinstance(child, Markup) else escape(child) for child in children))
