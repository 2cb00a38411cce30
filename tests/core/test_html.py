"""Pages embed all they need, allow nothing else in their content security policy, and escape every value."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256

import pytest
from jinja2 import ChoiceLoader, DictLoader, UndefinedError

from turnwise.core import html

TEMPLATE = """{% extends "core/html/base.html" %}
{% import "core/html/macros.html" as html %}
{% block title %}{{ title }}{% endblock %}
{% block header %}<h1>{{ title }}</h1>{{ html.contents([title, "Second"]) }}{% endblock %}
{% block main %}
{% call html.section(0, title, title) %}
{% call html.table(title, [(title, title), ("b", none)], title) %}<tr><td>{{ title }}</td></tr>{% endcall %}
{% endcall %}
{% call html.section(1, "Second") %}
{{ html.facts({title: title, "list": [title]}) }}
{{ html.figure(svg | default("<svg/>"), title, title) }}
{% endcall %}
{% endblock %}"""

HOSTILE = "\"'></style></script><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"


@pytest.fixture(autouse=True)
def page_template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    environment = html._environment()
    monkeypatch.setattr(environment, "loader", ChoiceLoader([environment.loader, DictLoader({"page.html": TEMPLATE})]))
    yield
    environment.cache.clear()


def csp_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_policy_allows_only_the_embedded_style_and_script() -> None:
    text = html.render_page("page.html", scripts=["core/html/sortable.js"], title="A title")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert dict(part.split(" ", 1) for part in policy.split("; ")) == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": csp_hash(style),
        "script-src": csp_hash(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert "<script" not in html.render_page("page.html", title="A title")
    assert "script-src" not in html.render_page("page.html", title="A title")


def test_values_are_escaped() -> None:
    text = html.render_page("page.html", title=HOSTILE)
    assert text.count("alert(1)") > 8
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "{{ 7 * 7 }}" in text
    (image,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]*)"', text)
    assert b64decode(image) == b"<svg/>"


def test_figures_without_a_plot_say_why() -> None:
    text = html.render_page("page.html", title="t", svg="plots need <matplotlib>")
    assert '<figure><p class="remark">plots need &lt;matplotlib&gt;</p><figcaption>t</figcaption></figure>' in text


def test_json_in_a_script_element_cannot_close_it() -> None:
    assert "</script>" not in html.json_for_script({"text": "</script><script>"})
    assert html.json_for_script({"text": "é</"}) == '{"text":"é\\u003c/"}'


def test_undefined_variables_are_errors() -> None:
    with pytest.raises(UndefinedError, match="title"):
        html.render_page("page.html")
