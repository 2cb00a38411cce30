"""How a text is cut into words where vectors of words are made and where they are used: both have to do it in the same way."""

import re

#: A word is a run of letters, digits and underscores; any other visible character stands for itself.
_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str, *, lower: bool = True) -> list[str]:
    """The words of a text in order: runs of letters, digits and underscores; every punctuation mark is a word of its own.

    Args:
        text: any.
        lower: fold its case first.
    """
    return _WORD.findall(text.casefold() if lower else text)
