"""The countries of phone numbers, guessed from a log."""

import pytest

from turnwise.corpus.hygiene.personal_data.regions import guess_regions

ENGLISH = "Could you please tell me where my parcel is, I have been waiting for a week now"
GERMAN = "Könnten Sie mir bitte sagen, wo mein Paket ist? Ich warte schon seit einer Woche darauf"
FRENCH = "Pourriez-vous me dire où est mon colis, je l'attends depuis une semaine maintenant"


@pytest.mark.parametrize(
    ("texts", "regions"),
    [
        ([GERMAN], ("DE",)),
        ([FRENCH] * 2, ("FR",)),
        ([ENGLISH], ("US", "GB")),
        ([ENGLISH, "it cost £12.99", "I paid £4 for delivery"], ("GB",)),
        ([ENGLISH, "that is $40", "we live in Boulder, CO 80301"], ("US",)),
        ([GERMAN, "+43 664 1234567", "write to lena@gruber.at"], ("AT",)),  # German is spoken there
        ([GERMAN, "+44 20 7946 0018", "me@acme.co.uk"], ("GB", "DE")),
        ([GERMAN, *(f"kunde{number}@post.de" for number in range(40)), "+33 6 12 34 56 78", "x@y.fr"], ("DE",)),
        ([GERMAN, "us@host.io", "them@app.ai"], ("DE",)),  # these domains say nothing
        (["ok", "1234567"], ()),
        ([], ()),
    ],
)
def test_regions_are_guessed_from_evidence_and_languages(texts: list[str], regions: tuple[str, ...]) -> None:
    assert guess_regions(texts).regions == regions


def test_the_reasons_are_named_and_repeated_evidence_counts_once() -> None:
    texts = ["call +41 44 668 18 00", "+41 44 668 18 00 again", "mail me@laden.ch", "it is CHF 20 with express"]
    assert str(guess_regions(texts)) == "CH (1 numbers with +41, 1 addresses in .ch, 1 amounts)"
