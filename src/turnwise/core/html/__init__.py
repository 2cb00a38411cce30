"""Self-contained HTML pages: one Jinja2 environment and a base document that loads nothing from the network.

A page is a template anywhere in the package that extends `core/html/base.html` and fills its blocks `title`, `header`
and `main` (or `body`). The base document embeds the styles and scripts of the page and allows nothing else in its
content security policy, so templates must not use `style` attributes or event handlers. `core/html/macros.html` has the
parts that several pages share.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render_page(
    template: str, *, styles: Sequence[str] = ("core/html/page.css",), scripts: Sequence[str] = (), **context: Any
) -> str:
    """Render a template as an HTML page, with paths relative to the package; `context` is escaped unless `Markup`."""
    style, script = (Markup("".join(map(_read_resource, paths))) for paths in (styles, scripts))
    return _environment().get_template(template).render(context, style=style, script=script) + "\n"


def format_value(value: Any) -> str:
    """Return a string unchanged and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_for_script(value: Any) -> Markup:
    """Return a value as compact JSON that can be embedded in a `script` element."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def svg_data_uri(svg: str) -> str:
    """Return an SVG as the `src` of an `img` element, isolated from the page and its content security policy."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("turnwise", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "csp_hash": lambda text: f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}",
        "format_value": format_value,
        "json_for_script": json_for_script,
        "svg_data_uri": svg_data_uri,
    }
    return environment


def _read_resource(path: str) -> str:
    return files("turnwise").joinpath(path).read_text(encoding="utf-8")
