"""Finders of personal data in texts: patterns, checked by what each format offers and by the words around."""

import re
from collections.abc import Mapping

from turnwise.corpus.hygiene.personal_data.addresses import find_cards, find_emails, find_ibans, find_ips, find_macs
from turnwise.corpus.hygiene.personal_data.context import Finder
from turnwise.corpus.hygiene.personal_data.identities import find_birth_dates, find_national_ids
from turnwise.corpus.hygiene.personal_data.passwords import find_passwords
from turnwise.corpus.hygiene.personal_data.postal_addresses import find_postal_addresses
from turnwise.corpus.hygiene.personal_data.urls import find_secret_urls, find_urls

#: The kinds that patterns recognise, in the order of precedence where two overlap.
FINDERS: Mapping[str, Finder] = {
    "secret_url": find_secret_urls,
    "url": find_urls,
    "email": find_emails,
    "password": find_passwords,
    "iban": find_ibans,
    "card": find_cards,
    "mac": find_macs,
    "ip": find_ips,
    "date_of_birth": find_birth_dates,
    "national_id": find_national_ids,
    "address": find_postal_addresses,
}
#: Masker itself adds `phone`, which needs regions, and `name`, which comes last.
KINDS = (*FINDERS, "phone", "name")
#: The kinds of `mask=strict`.
STRICT_KINDS = (*KINDS, "number")

#: What every kind but names and passwords has at least one of: a text without it contains none of them.
TRIGGER = re.compile(r"[\d@]|://|www\.|::|[(\[{] ?at ?[)\]}]| dot |\bmac\b|(?:[a-f]{2}[:-]){5}", re.IGNORECASE)
