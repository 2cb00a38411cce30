"""Near-duplicates: texts that share at least four fifths of their words, found exactly by prefix filtering.

Two sets of words whose Jaccard similarity is at least 4/5 share one of their first n - ⌈4n/5⌉ + 1 words, if both are
sorted in the same order (Chaudhuri et al., 2006; Bayardo et al., 2007). Rare words come first, so that few candidates
are compared. Unlike MinHash this neither misses a pair nor finds one below the threshold.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product

from turnwise.corpus.comparison_key import key_words

#: Texts that are indexed at a time: about 200 MB.
TEXTS_PER_INDEX = 200_000

Words = frozenset[str]


class NearDuplicateIndex:
    """An index of texts, given as `comparison_key`s, by their rare words."""

    def __init__(self, keys: Iterable[str]):
        self.keys: Sequence[str] = list(dict.fromkeys(keys))
        self._words = [_words(key) for key in self.keys]
        self._frequencies = Counter(chain.from_iterable(self._words))
        # by word and number of words: similar texts have similar numbers
        self._places: dict[tuple[str, int], list[int]] = defaultdict(list)
        for place, words in enumerate(self._words):
            for word in self._prefix(words):
                self._places[word, len(words)].append(place)

    def find(self, key: str) -> Iterator[int]:
        """Yield the places in `keys` of those other texts whose words have a Jaccard similarity of at least 4/5."""
        words = _words(key)
        lengths = range(-(-4 * len(words) // 5), 5 * len(words) // 4 + 1)
        postings = product(self._prefix(words), lengths)
        candidates = {place for posting in postings for place in self._places.get(posting, ())}
        for place in sorted(candidates):
            shared = len(words & self._words[place])
            if 5 * shared >= 4 * (len(words) + len(self._words[place]) - shared) and self.keys[place] != key:
                yield place

    def _prefix(self, words: Words) -> list[str]:
        """Return the words of which a near-duplicate has at least one, in its own prefix."""
        length = len(words) - -(-4 * len(words) // 5) + 1
        return sorted(words, key=lambda word: (self._frequencies[word], word))[:length] if words else []


def _words(key: str) -> Words:
    return frozenset(key_words(key))
