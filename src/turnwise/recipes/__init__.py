"""The recipes that come with turnwise; `NAME-paper` has every number that a paper prints, `NAME` is what we recommend."""
