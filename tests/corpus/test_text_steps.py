"""Tests of the cleaning steps for markup and e-mails: what goes, what must survive, and where slots move."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise import Dialogue, Slot, Turn
from turnwise.corpus.hygiene.steps import make_step

LEFT_AS_IS = "turns left as they were, since nothing would remain"


def clean(step: str, text: str) -> str:
    (cleaned,) = make_step(step)([Dialogue("d", (Turn("user", text),))])
    return cleaned.turns[0].text


# ---- html

HTML = [
    ("<b>Hi</b> there", "Hi there"),
    ("one<span style='color: red'>two</span>", "onetwo"),
    ("Hello<br>world<br/>and<BR />goodbye", "Hello\nworld\nand\ngoodbye"),
    ("one <br>\n two", "one\ntwo"),
    ("<p>First</p><p>Second</p>", "First\nSecond"),
    ("<div><div>\n<p> a </p></div> <div>b</div></div>", "a\nb"),
    ("<p>no end tag<p>here", "no end tag<p>here"),
    ("no end tag <p>here", "no end tag\nhere"),
    ("<ul><li>one</li><li>two</li></ul>", "one\ntwo"),
    ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
    ('see <a class="x" href="https://shop.example/?a=1&b=2">our page</a>.', "see our page."),
    ("<a href=https://shop.example/?a=1>here</a>", "here"),
    ("<img src='smile.png' alt='a &quot;smile&quot;'> hi", 'a "smile" hi'),
    ("<img src=smile.png alt=smile> hi", "smile hi"),
    ("<img src='pixel.png'> hi", "hi"),
    ("<style>p { color: red }</style>hi<script>alert('<b>')</script>", "hi"),
    ("<HEAD><title>Mail</title></HEAD><body>hi</body>", "hi"),
    ("<!-- a <b>comment</b> -->text", "text"),
    ("<!DOCTYPE html><html>text</html>", "text"),
    ("text<o:p></o:p>", "text"),
    ("<input type='checkbox'checked> agreed", "agreed"),
    ('<at id="0">Anna</at> <emoji id="wave" alt="👋"></emoji>', "Anna 👋"),
    ("fish &amp; chips &#8211; &#x35;&euro;&nbsp;only", "fish & chips – 5€ only"),
    ("&lt;b&gt; is a tag", "<b> is a tag"),
    ("escaped &amp;lt;twice", "escaped &lt;twice"),
    ("İ <B>x</b>", "İ x"),
]
NOT_HTML = [
    "a < b and c > d",
    "a<b>c",
    "<3",
    "i <3 u > me",
    "if k<p and q>r",
    "List<String> or Map<K, V>",
    "Set<B>, Set<P>, Foo<A>, Optional<Object>",
    "please enter <name>, <title> and <time>",
    "<b or not>",
    "<anna@mail.example>",
    "<https://shop.example|shop>",
    "<-- look",
    "--> <--",
    "<!-- never closed",
    "<script is missing",
    "AT&T and R&D; &unknown; &",
    "https://shop.example/?a=1&copy=2&lang=de",
]


@pytest.mark.parametrize(("text", "expected"), HTML)
def test_html(text: str, expected: str) -> None:
    assert clean("html", text) == expected


@pytest.mark.parametrize("text", NOT_HTML)
def test_html_leaves_other_text(text: str) -> None:
    assert clean("html", text) == text


@pytest.mark.parametrize("text", [expected for text, expected in HTML if "&" not in text])
def test_html_is_idempotent_unless_entities_spell_markup(text: str) -> None:
    assert clean("html", text) == text


# ---- markdown

MARKDOWN = [
    ("**bold**, *italic*, _italic_ and __Strong__", "bold, italic, italic and Strong"),
    ("***both***, **_nested_** and _**nested**_", "both, nested and nested"),
    ("**a *b* c** and *a **b** c*", "a b c and a b c"),
    ("~~old~~ ~older~ new", "old older new"),
    ("(*yes*), “*no*”!", "(yes), “no”!"),
    ("*snake_case in italics*, _snake_case again_", "snake_case in italics, snake_case again"),
    ("# Title\n### Part\ntext", "Title\nPart\ntext"),
    ("> quoted\n>\n>> twice\nanswer", "quoted\n\ntwice\nanswer"),
    ("- one\n* two\n  • three\n- [x] four", "one\ntwo\nthree\nfour"),
    ("> # - all of them", "all of them"),
    ("><@U123ABC> said", "@user said"),
    ("one\n---\ntwo\n* * *\nthree", "one\ntwo\nthree"),
    ("Title\n=====\ntext", "Title\ntext"),
    ("[our page](https://shop.example/a_(b)) is *new*", "our page is new"),
    ('[help](/help "Help pages"), [faq](#faq)', "help, faq"),
    ("[**bold** link](https://shop.example)", "bold link"),
    ("![a cat](cat.png) [![logo](logo.png)](https://shop.example)", "a cat logo"),
    ("[a](https://a.example),[*b*](https://b.example)", "a,b"),
    ("type `ls *_old_*` now", "type ls *_old_* now"),
    ("```python\nx = a*b*c\n```\nthen **run** it", "x = a*b*c\nthen run it"),
    ("```x``` and **`y`**", "x and y"),
    ("**https://shop.example/a_b**", "https://shop.example/a_b"),
    ("<https://shop.example/a_b_c|our shop> or <https://shop.example>", "our shop or https://shop.example"),
    ("<mailto:anna@mail.example|Anna> <tel:123>", "Anna 123"),
    ("<@U123ABC>, <@U123ABC|anna>: see <#C123ABC|general> and <#C123ABC>", "@user, @anna: see #general and #channel"),
    ("<!here> <!subteam^S123|@team> <!date^1714^{date}|6 May>", "@here @team 6 May"),
    ("<@!123456789> <:wave:123456789>", "@user :wave:"),
]
NOT_MARKDOWN = [
    "snake_case and more_snake_case",
    "__init__, __init__.py and __all__",
    "2*3*4 = 24, 2 * 3 * 4, 2**3**4, x ** 2 ** 3",
    "*.txt and *.csv or *.py,*.md",
    "src/*/test/* or src/**/*.py",
    "f(*args, **kwargs), f(*a,*b), int *p, *q",
    "a 5* hotel, a 4* hostel; * conditions apply",
    "~5 to ~10, ~/notes and ~/mail",
    "#1 on the list, #general, # of items",
    "# of items",
    "-5 degrees",
    "-> here",
    "1. one\n2. two",
    "3. Mai passt",
    "> 5 GB",
    ">< no",
    ">:( >.< *_* (*^_^*) -_- o_O",
    "¯\\_(ツ)_/¯ ¯_(ツ)_/¯",
    "it`s fine, don`t worry",
    "handlers[i](event), a[0](b.c), [1] (see page 3)",
    "https://shop.example/_a_/b_c_d*e*",
    "\\*literally\\*",
    "a | b",
    "<3 <b> <@nobody>",
]


@pytest.mark.parametrize(("text", "expected"), MARKDOWN)
def test_markdown(text: str, expected: str) -> None:
    assert clean("markdown", text) == expected


@pytest.mark.parametrize("text", NOT_MARKDOWN)
def test_markdown_leaves_other_text(text: str) -> None:
    assert clean("markdown", text) == text


@pytest.mark.parametrize("text", [expected for text, expected in MARKDOWN if "`" not in text])
def test_markdown_is_idempotent_unless_code_contains_markup(text: str) -> None:
    assert clean("markdown", text) == text


# ---- urls


def test_urls() -> None:
    assert clean("urls", "see https://shop.example/a?b=1. Or www.shop.example!") == "see [URL]. Or [URL]!"
    assert clean("urls", "mail anna@mail.example, file.name") == "mail anna@mail.example, file.name"


# ---- email-quotes

EMAILS = [
    ("Thanks!\n\nOn Mon, 6 May 2024 at 10:00, Anna <anna@mail.example> wrote:\n> hi\n>\n> there", "Thanks!"),
    ("Thanks!\n\nOn Mon, 6 May 2024 at 10:00, Anna Example\n<anna@mail.example> wrote:\n\nhi\nthere", "Thanks!"),
    ("Danke\n\nAm Mo., 6. Mai 2024 um 10:00 Uhr schrieb Anna Beispiel:\n> hallo", "Danke"),
    ("Danke\n\nAnna Beispiel <anna@mail.example> schrieb am 6.5.2024:\nhallo", "Danke"),
    ("Merci\n\nLe lun. 6 mai 2024 à 10:00, Anna Exemple a écrit\xa0:\nsalut", "Merci"),
    ("Gracias\n\nEl lun, 6 may 2024 a las 10:00, Anna Ejemplo escribió:\nhola", "Gracias"),
    ("Grazie\n\nIl giorno lun 6 mag 2024 alle ore 10:00 Anna Esempio ha scritto:\nciao", "Grazie"),
    ("Obrigada\n\nEm seg., 6 de mai. de 2024 às 10:00, Anna Exemplo escreveu:\nolá", "Obrigada"),
    ("Bedankt\n\nOp ma 6 mei 2024 om 10:00 schreef Anna Voorbeeld:\nhallo", "Bedankt"),
    ("On Mon, 6 May 2024, Anna wrote:\n\n> When?\nTomorrow.\n> Where?\nIn Oslo.", "Tomorrow.\nIn Oslo."),
    ("> On Mon, 6 May 2024 at 10:00, Anna wrote:\nTomorrow.", "Tomorrow."),
    ("> From: Ben\n> Sent: Monday\n> Subject: order\nTomorrow.", "Tomorrow."),
    ("Please see below.\n-----Original Message-----\nFrom: Ben\nhello", "Please see below."),
    ("Siehe unten\n-------- Weitergeleitete Nachricht --------\nhallo", "Siehe unten"),
    ("Look:\n\nBegin forwarded message:\n\nhello", "Look:"),
    (
        "Yes.\n\n________________\nFrom: Ben <ben@mail.example>\nSent: Monday\nTo: Anna\nSubject: Re: order\n\nhi",
        "Yes.",
    ),
    ("Ja.\n\n*Von:* Ben\n*Gesendet:* Montag\n*An:* Anna\n*Betreff:* Bestellung\n\nhallo", "Ja."),
    ("Oui.\n\nDe : Ben\nEnvoyé : lundi\nÀ : Anna\nObjet : commande\n\nsalut", "Oui."),
    ("See you.\n-- \nAnna Example\nExample Ltd", "See you."),
    ("See you.\n\n--\nAnna Example", "See you."),
    ("Yes\n\nSent from my iPhone", "Yes"),
    ("Yes\n\nGet Outlook for iOS", "Yes"),
    ("Ja\n\nVon meinem iPhone gesendet", "Ja"),
    ("Oui\n\nEnvoyé de mon iPhone", "Oui"),
    ("Sí\n\nEnviado desde mi móvil", "Sí"),
    ("Sì\n\nInviato da iPhone", "Sì"),
    ("Ja\n\nVerzonden vanaf mijn iPhone", "Ja"),
    (
        "Hello\n\nThis e-mail is confidential and intended solely\nfor the addressee.\n\nAnna",
        "Hello\n\n\nAnna",
    ),
    ("Hallo\n\nDiese E-Mail ist vertraulich und nur für den Empfänger bestimmt.", "Hallo"),
    ("a\r\n> b\r\nc", "a\r\nc"),
]
NOT_EMAILS = [
    "On 6 May 2024 your colleague wrote: it is done",
    "My colleague wrote:\nplease call back",
    "Hello,\non 6 May 2024 your colleague wrote:\nit is done\nBut it is not!",
    "From: Oslo\nTo: Rome\nDate: 6 May",
    "one line > another",
    "yes\n>:(\nno",
    "The code was\nsent from my phone to yours, did you get it?",
    "Hi\nThis message is confidential, please keep it.",
    "first\n--\nsecond\n--\nthird",
    "first\n--\n" + "more\n" * 20 + "end",
    "# of items\n- one\n-- two",
]


@pytest.mark.parametrize(("text", "expected"), EMAILS)
def test_email_quotes(text: str, expected: str) -> None:
    assert clean("email-quotes", text) == expected


@pytest.mark.parametrize("text", NOT_EMAILS)
def test_email_quotes_leave_other_text(text: str) -> None:
    assert clean("email-quotes", text) == text


@pytest.mark.parametrize("text", ["> all of it\n> is quoted", "-----Original Message-----\nFrom: Ben\nhello"])
def test_message_that_is_only_a_quote_stays_and_is_counted(text: str) -> None:
    step = make_step("email-quotes")
    (cleaned,) = step([Dialogue("d", (Turn("user", text),))])
    assert cleaned.turns[0].text == text
    assert step.changes == {LEFT_AS_IS: 1}


LINES = [line for text, _ in EMAILS for line in text.splitlines()]


@given(st.lists(st.sampled_from(LINES) | st.text("ab>-: \t", max_size=8), min_size=1, max_size=12))
def test_email_quotes_are_idempotent(lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    if text:
        once = clean("email-quotes", text)
        assert clean("email-quotes", once) == once


# ---- all of them

PIECES = [piece for text, _ in (*HTML, *MARKDOWN) for piece in (text, text[: len(text) // 2], text[len(text) // 2 :])]
MARKS = st.text("<>/!-*_~`#[]()|&;:.@ \n\t'\"ab1\u00a0\u0130\ufffc", max_size=30)


@settings(deadline=None)
@given(
    st.sampled_from(["html", "markdown", "urls", "email-quotes"]),
    st.lists(st.sampled_from(PIECES) | MARKS, min_size=1, max_size=4).map("".join),
    st.data(),
)
def test_no_text_raises_becomes_empty_or_gets_invalid_slots(step: str, text: str, data: st.DataObject) -> None:
    text = text.strip()
    if not text:
        return
    start = data.draw(st.integers(0, len(text) - 1))
    slot = Slot.from_text(text, "slot", start, data.draw(st.integers(start + 1, len(text))))
    cleaning = make_step(step)
    (cleaned,) = cleaning([Dialogue("d", (Turn("user", text, slots=(slot,)),))])
    (turn,) = cleaned.turns
    assert turn.text == turn.text.strip() != ""
    assert len(turn.slots) + cleaning.changes["slots lost"] == 1
    assert (turn.text != text) <= cleaning.changes["turns changed"]


@pytest.mark.parametrize(
    ("step", "text", "value", "moved"),
    [
        ("html", "<p>fly to <b>Rome</b> &amp; back</p>", "Rome", ("Rome", 7)),
        ("html", "<p>fly to <b>Rome</b> &amp; back</p>", "<b>Rome</b> &amp; back", ("Rome & back", 7)),
        ("markdown", "- fly to **Rome**", "Rome", ("Rome", 7)),
        ("markdown", "see [the map](https://maps.example/rome) of Rome", "of Rome", ("of Rome", 12)),
        ("urls", "see https://maps.example/rome for Rome", "Rome", ("Rome", 14)),
        ("email-quotes", "> where to?\nfly to Rome", "Rome", ("Rome", 7)),
    ],
)
def test_slots_move_with_their_text(step: str, text: str, value: str, moved: tuple[str, int]) -> None:
    start = text.index(value)
    turn = Turn("user", text, slots=(Slot("city", value, start, start + len(value)),))
    (cleaned,) = make_step(step)([Dialogue("d", (turn,))])
    assert [(slot.value, slot.start) for slot in cleaned.turns[0].slots] == [moved]


def test_slot_in_a_quoted_line_is_lost_and_counted() -> None:
    turn = Turn("user", "> to Oslo?\nyes", slots=(Slot("city", "Oslo", 5, 9),))
    step = make_step("email-quotes")
    (cleaned,) = step([Dialogue("d", (turn,))])
    assert cleaned.turns[0] == Turn("user", "yes")
    assert step.changes == {"slots lost": 1, "turns changed": 1}
