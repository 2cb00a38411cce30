"""The record of what a run was trained on, which its model keeps."""

from collections.abc import Iterator

from turnwise.corpus.training_data import TrainingData
from turnwise.training.setup import TrainingSetup


def describe_run(setup: TrainingSetup) -> TrainingData:
    """Return the filters of the corpus of a run, and of the texts whose labels its objectives use."""
    utterances = len(setup.loaders[0].texts.identities)
    return TrainingData.of(setup.corpus.dialogues, utterances, _labelled_texts(setup))


def _labelled_texts(setup: TrainingSetup) -> Iterator[str]:
    corpus = setup.corpus.dialogues
    selected, every = setup.recipe.selected_stores(corpus.stores), range(len(corpus.stores))
    using_labels = [part.name for part in setup.parts if part.objective.traits.label_sampling is not None]
    for number in sorted({number for name in using_labels for number in selected.get(name, every)}):
        for dialogue in corpus.read(corpus.stores[number]):
            yield from (turn.text for turn in dialogue.turns if turn.intent is not None)
