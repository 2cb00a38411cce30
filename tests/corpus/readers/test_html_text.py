"""Tests the text of HTML messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.corpus.readers.shared.html_text import html_to_text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("no tags &amp; no lines\nhere", "no tags & no lines here"),
        ("<p>One</p>\n\n<p>two<br>three</p>", "One\ntwo\nthree"),
        ("<div><div>One</div></div><div><br></div><div>two</div>", "One\n\ntwo"),
        ("<ul>\n <li>One</li>\n <li>two</li>\n</ul>", "One\ntwo"),
        ("<table><tr><td>One</td><td>two</td></tr><tr><td>three</td></tr></table>", "One two\nthree"),
        ("<pre>One\n  two</pre>", "One\ntwo"),
        ("<head><title>No</title><style>p {}</style></head><body>Yes<script>no()</script></body>", "Yes"),
        ("One<!-- <b>no</b> --> two<!--[if mso]>no<![endif]-->", "One two"),
        ("One <!-- no end", "One"),
        ("a &lt; b&nbsp;&#8211; c < d", "a < b – c < d"),
        ("<b>One</b> <i>two</i><a href='x'>three</a>", "One twothree"),
        ("<p><img src='x'></p>", ""),
        ('<div><at id="0">Anna</at> see <a href="https://example.com">this</a></div>', "@Anna see this"),
        ('<at id="0">@Anna</at> hi', "@Anna hi"),
        ('Well <emoji id="x" alt="🙂"></emoji> <img itemtype="http://schema.skype.com/Emoji" alt="👍">', "Well 🙂 👍"),
        ('<attachment id="1"></attachment>', ""),
        ('<blockquote itemtype="http://schema.skype.com/Reply"><p>old <b>text</b></p></blockquote><p>new</p>', "new"),
        ("<quote><legacyquote>[1] Ben: </legacyquote>old<legacyquote>\n</legacyquote></quote>new", "new"),
        ("5 < 6 and <unknown>tags</unknown>", "5 < 6 and tags"),
    ],
)
def test_html_to_text(html: str, text: str):
    assert html_to_text(html) == text


@pytest.mark.parametrize("piece", ["<a", "<!--", "</", "<![if ", "&", "<p>", "<a href='"])
def test_long_malformed_html_is_read_in_linear_time(piece: str):
    """A parser that searched for the end at every < would need hours."""
    html_to_text(piece * 200_000)


@given(html=st.text(st.sampled_from("<>!/[]- =\"'&;abqp\n") | st.characters(), max_size=60))
def test_any_html_is_text_or_a_value_error(html: str):
    try:
        text = html_to_text(html)
    except ValueError:
        return
    assert text == "\n".join(line.strip(" \t\r\f") for line in text.split("\n")).strip()
