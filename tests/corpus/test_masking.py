"""Masking: recall and precision on labelled texts, spellings of every kind, pseudonyms, invalid options."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from turnwise import import_corpus, read_corpus
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.masking import Masker, Masking, Match
from turnwise.corpus.hygiene.personal_data import KINDS
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
    """Count what is found, missed and found in vain, by kind."""
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
        *(
            (1, False, 0.96),
            (2, False, 0.96),
            (3, False, 0.81),
            (4, False, 0.92),
            (5, False, 0.98),
            (6, False, 0.98),
            (7, False, 0.98),
        ),
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


#: Texts by kind; what is masked stands in «».
FOUND = {
    "phone": [
        "mobile:«07700 900123», home:«0161 496 0123»",
        "two lines, call «06 39 98 12 34»/«06 39 98 12 35»",
        "call «+49 171 3920012»/«+49 171 3920013»",
        "«+44(0)7700900123»",
        "«(+44) 7700 900 123»",
        "«+ 44 7700 900123»",
        "«00 44 7700 900123»",
        "«+33\u202f6\u202f39\u202f98\u202f12\u202f34»",
        "Handy «0171–3920012»",
        "携帯は«０９０－１２３４－５６７８»です",
        "mi whats es «+52 1 55 1234 0123»",
        "whatsapp «447911123456»",
        "from the US dial «011 44 7911 123456»",
        "tel:«+44-7700-900123»",
        "«(212) 555-0123 ext. 12»",
        "«1-212-555-0123»",
        "my spouse's phone on the order is «07700 900123»",
        "call customer «07700 900123» back",
        "llámenme al «612 34 01 23»",
        "zadzwońcie na «512 340 123»",
        "позвоните «8 (495) 555-01-23»",
        "☎ «030 23125 012»",
        "I'm on «07911 123456» until five",
    ],
    "email": [
        "«anna@mail.example»/«ben@mail.example»",
        "anna: email=«anna@mail.example»",
        "https://shop.example/u?email=«anna%40mail.example»&lang=en",
        "«anna (at) mail (dot) example»",
        "«anna.roe[at]mail.example»",
        "my email is «anna dot roe at mail dot example»",
        "«1234567@163.example»",
        "e-mail «anna.roe @ mail.example» please",
        "Mail: «anna＠mail.example»",
    ],
    "iban": [
        "IBAN:«DE89370400440532013000»",
        "«DE89-3704-0044-0532-0130-00»",
        "«de 89 3704 0044 0532 0130 00» bitte",
        "«DE89.3704.0044.0532.0130.00»",
        "take no 12 345 «GB82 WEST 1234 5698 7654 32»",
        "«DE89\u20093704\u20090044\u20090532\u20090130\u200900»",
    ],
    "card": [
        "«4111.1111.1111.1111»",
        "«4111 1111 1111 1111» 12/27 123",
        "order paid with «4111–1111–1111–1111»",
        "please don't bill «5555555555554444» again",
        "Amex «3782 822463 10005»",
    ],
    "ip": [
        "firmware page at https://«192.168.50.21»/update",
        "bound to «::ffff:203.0.113.88» for some reason",
        "arp table: «10.0.0.17» on en0",
        "ping «fe80::1ff:fe23:4567:890a%eth0»",
        "http://[«2001:db8::5»]:8080/status",
        "inet6:«fe80::a00:27ff:fe4e:66a1»",
        "range «203.0.113.4»-«203.0.113.9»",
        "name servers «203.0.113.5»/«8.8.8.8»",
        "ssh root@«203.0.113.77»",
        "upstream «172.18.0.4»:9000 timed out",
    ],
    "mac": [
        "MAC:«00:1A:2B:3C:4D:5E»",
        "mac address «001A2B3C4D5E»",
        "MAC-Adresse «001a-2b3c-4d5e»",
        "MAC «00 1A 2B 3C 4D 5E»",
        "switch shows «001a.2b3c.4d5e»",
        "«7C-BB-8A-41-D0-2F» is offline",
    ],
    "date_of_birth": [
        "my birthday is «3 May 1988»",
        "born on the «3rd of May 1988»",
        "born on the «third of May 1988»",
        "born «November the 4th, 1997»",
        "D.O.B «03/05/88»",
        "DOB«03/05/1988»",
        "dob: «3may1988»",
        "DOB «030588»",
        "DOB - «03 05 1988»",
        "nací el «04/nov/1997»",
        "«1988-05-03» is my date of birth",
        "The DOB on the order is «03/05/1988»",
        "ur. «3 maja 1988» r.",
        "data urodzenia «3.V.1988»",
        "szül. «1988. május 3.»",
        "«1988.05.03»-án születtem",
        "doğum tarihim «3 Mayıs 1988»",
        "«03.05.1988» doğumluyum",
        "född den «3 maj 1988»",
        "født «3. mai 1988»",
        "syntynyt «3. toukokuuta 1988»",
        "născută pe «3 mai 1988»",
        "родился «3 мая 1988» года",
        "народилася «3 травня 1988»",
        "γεννήθηκα «3 Μαΐου 1988»",
        "narozena «3. května 1988»",
        "Anna Muster, *«03.05.1988», ledig",
        "né le «1er mai 1988»",
        "nasci a «1º de maio de 1988»",
        "생년월일 «1988년 5월 3일»",
        "生日是«1988-05-03»",
        "my baby was born on «14 June 2023»",
        "DOB shows «04/11/1997», should be «11/04/1997»",
    ],
    "national_id": [
        "ss# «432 23 2446»",
        "my SSN for the account is «432-23-2446»",
        "Social Security # «432-23-2446»",
        "my SS # is «432-23-2446»",
        "the form takes all nine: «432232446» (social)",
        "ni no «AB-12-34-56-C»",
        "NHS number «728 781 5036»",
        "UTR «9272609046»",
        "Steuer-ID «45 803 371 295»",
        "SV-Nummer «12 140587 M 003»",
        "SVNR «1554 140587»",
        "AHV-Nummer «756.4075.8741.62»",
        "numéro de sécu «2 84 07 35 248 786 14»",
        "codice fiscale «RSS NNA 87E54 F205N»",
        "mi DNI es «30585417V»",
        "NIF «233 444 980»",
        "BSN «398.155.987»",
        "rijksregisternummer «87 05 14 343 32»",
        "PPS no. «6334634J»",
        "pesel: «87051431300»",
        "rodné číslo «870514/6703»",
        "TAJ számom «123 456 788»",
        "CNP-ul meu este «1870514460971»",
        "ЕГН «8705141573»",
        "ΑΜΚΑ «14058737470»",
        "OIB «69270815425»",
        "EMŠO «1405987685348»",
        "pnr «198705142985»",
        "cpr-nr. «1405871860»",
        "fødselsnummer «140587 66381»",
        "hetu «140587-621J»",
        "kennitala «140587-0529»",
        "isikukood «38705277061»",
        "asmens kodas «38705027208»",
        "TC kimlik no: «44465129814»",
        "СНИЛС «112-233-445 95»",
        "cpf «211.891.399-01»",
        "CURP «ROMA870514HDFXXXA0»",
        "RUT «15.371.224-7»",
        "mi cédula es «1.020.345.678»",
        "NAS : «516 034 022»",
        "SIN «516-034-022»",
        "my tax file number is «787 799 424»",
        "IRD number «45-151-182»",
        "aadhaar «2794 1186 4736»",
        "PAN is «ABCPD1234E»",
        "身份证号码是«110105198705141233»",
        "주민등록번호 «870514-1272316»",
        "マイナンバー «1630 5475 1636»",
        "NRIC «S1234567D»",
        "Emirates ID «784-1987-1234567-1»",
        "תעודת זהות «620083014»",
        "ID number «8705145785180»",
    ],
    "secret_url": [
        "«rtsp://admin:Passw0rd@192.0.2.9:554/live»",
        "open «notes://login?token=f8Gh2kLm9QwErTy» now",
        "«https://give.example/receipt/XmIyGW4Kt0axWPHDyZm-IN8qITo4gR», thanks",
        "«https://shop.example/reset/8fGh2kLm9Q»",
        "«https://shop.example/invite/a8Fk29xLp0»",
        "«https://shop.example/#/invite/a8Fk29xLp0»",
        "«https://shop.example/?password=sunshine»",
        "«shop.example/verify?code=493021»",
        "«https://shop.example/login/otp?pin=4821»",
        "«postgres://app:geheim@db.example:5432/shop»",
        "«https://hooks.chat.example/services/T00A1/B00B2/Xk39fLq02mZp7Rt5Wc81Nd4s»",
        "«https://mail.example/unsubscribe?u=8f3a2c1d9b7e4f60&id=5»",
        "«https://files.example/c/f.csv?sv=2022-11-02&se=2025-01-01&sp=r&sig=abcD%2B1234efgh5678%3D»",
        "«https://shop.example/cb#access_token=eyJhbGciOi.eyJzdWIiOi.abc123def»",
        "«http://shop.example/page.jsp;jsessionid=0A1B2C3D4E5F»",
        "«https://meet.example/j/88812345678?pwd=Z2hqa1»",
        "«https://cloud.example/s/k3J9x2Lq7Zt4»",
        "«https://x7Kd92LsQpVb41ZmTr08@git.example/app.git»",
    ],
}

#: Texts in which nothing is masked.
NOT_FOUND = [
    # phone numbers
    "EAN 4006381333931 rings up wrong",
    "call me about order 0151 2345678",
    "I called about 40718823 already",
    "your case number is 0711 448 209",
    "the reminder refers to 0044-2024-7781, an invoice we never got",
    "Can you cancel 881-224-9071? That's the web order",
    "winning numbers 04 11 23 35 42 49",
    "Stopwatch shows 00 43 21 7",
    "the call centre is open 0800-1800",
    "sms arrived 20250117 103045",
    "we reached 45 000 000 users",
    "+1 204 556 points gained",
    "phone IMEI 356938035643809",
    "letter RR12 3456 7898 5DE is missing, call me",
    "ring size 52 54 56 58",
    "ISBN 978-3-16-148410-0",
    "Artikelnummer 0151/23948817",
    # e-mail addresses
    "logo@2x.png and hero@1.5x.webp are blurred",
    "git@git.example:acme/app.git cannot be cloned",
    "scp notes user@host.example:/var/www",
    "npm i pkg@1.2.3-beta.4",
    "@anna@social.example wrote",
    "we met at noon dot dot dot",
    # cards and accounts
    "order 4111 1111 1111 1111 is late",
    "invoice number is 5555555555554444",
    "IMEI 490154203237518",
    "the total reads 4 573 023 038 054 079 credits",
    "Use reference DE89370400440532013001",
    # addresses of machines
    "Skype 8.109.0.209 shows no contacts",
    "SQL Server 15.0.20.70 does not start",
    "VPN client version 4.10.5.85",
    "Requirement 8.3.28.1 is unclear",
    "https://files.example/releases/10.4.2.55/agent.msi",
    "subnet mask 255.255.255.0",
    "cafe::db and dead::beef are names",
    "mix it 1::2",
    "WWN 50:06:01:60:3b:a0:11:2f",
    "timecode 10:20:30:40:50:55",
    "product key 1A-2B-3C-4D-5E-6F",
    "Fingerprint begins 3A:5F:09:C4:7E:AA",
    # dates of birth
    "my birthday party is on 12/06/2025",
    "delivered on 12.03.2024 for my birthday",
    "born in Leeds, contract signed 12/03/1999",
    "I am 34 years old, born in 1984",
    "founded on 3 May 1988",
    "DOB is fine, the order of 12/03/2024 is not",
    # national numbers
    "Zoom meeting ID: 812 345 678",
    "customer ID 432-23-2446",
    "employee number 432-23-2446",
    "SSN is not needed, your order number is 432-23-2446",
    "PNR 6GTY7K for flight LH 2034 on 12/03/2024",
    "Fan belt AB123456C is out of stock",
    "fabric ABCPD1234E is grey",
    # addresses without a secret
    "https://shop.example/a?utm_source=x&gclid=Cj0KCQjwhb60BhClARIsABGGtw9abcdEFGH1234567890",
    "https://git.example/acme/app/commit/da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "https://shop.example/assets/main.8f3a2c1d9b7e4f60a1b2.js",
    "https://shop.example/app.css?v=8f3a2c1d9b7e4f60a1b2c3d4",
    "https://video.example/watch?v=dQw4w9WgXcQ&t=95s",
    "https://music.example/track/4cOdK2wGLETKBW3PvgPWqT",
    "https://shop.example/accessories/WH1000XM4B",
    "https://shop.example/checkout?code=SUMMER24",
    "https://shop.example/download/win11x64",
    "https://shop.example/login?redirect=/dp/B08N5WRWNW",
    "https://shop.example/login?next=/orders/2024",
    "https://blog.example/author/janedoe1985",
    "https://maps.example/place/Berlin/@52.50,13.14,10z/data=!3m1!4b1!4m6!3m5!1s0x47a84e373f035901",
    "https://shop.example/search?q=reset+token",
    "https://help.example/articles/360012-how-to-reset-your-password",
]

MASKER = Masker(Masking(kinds=MEASURED))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_spellings_are_masked(kind: str, text: str) -> None:
    assert MASKER.mask(re.sub("[«»]", "", text)) == re.sub("«.*?»", f"[{kind.upper()}]", text)


@pytest.mark.parametrize("text", NOT_FOUND)
def test_other_numbers_are_left(text: str) -> None:
    assert MASKER.mask(text) == text


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


@pytest.mark.parametrize(
    "number",
    ["+49 170 4151952", "0170 4151952", "+44 7911 123456", "07911 123456", "+33 6 12 34 56 78", "0049 170 4151952"],
)
def test_whole_phone_numbers_are_masked_without_a_region(number: str) -> None:
    assert Masker().mask(f"you can call me on {number}, thanks") == "you can call me on [PHONE], thanks"


def test_national_numbers_of_a_region_need_no_word_for_them() -> None:
    text = "it is 0170 4151952"
    assert Masker().mask(text) == text
    assert Masker(Masking(regions=("de",))).mask(text) == "it is [PHONE]"


def test_own_patterns_and_lists() -> None:
    masking = Masking(patterns={"order": r"\b[A-Z]{2}-\d{6}\b"}, lists={"name": ["Anna  Schmidt", "anna", ""]})
    masked = Masker(masking).mask("ANNA SCHMIDT (Anna, not Annabel) ordered AB-123456 with anna@x.example")
    assert masked == "[NAME] ([NAME], not Annabel) ordered [ORDER] with [EMAIL]"


def test_recogniser_fills_the_gaps() -> None:
    def entities(text: str) -> list[tuple[int, int, str]]:
        start = text.index("Zürich")
        return [(start, start + 6, "place"), (0, 11, "person")]

    masker = Masker(Masking(recogniser=entities))
    assert masker.mask("a@b.example lives in Zürich") == "[EMAIL] lives in [PLACE]"


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
