"""The record of what a run was trained on, which its model keeps."""

from collections.abc import Iterator
from itertools import chain

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.training_data import TrainingData
from turnwise.training.setup import TrainingSetup


def describe_training(setup: TrainingSetup) -> TrainingData | None:
    """Return the data of a run, of the model that it starts from and of its teachers."""
    corpus = setup.corpus.dialogues
    every = range(len(corpus.stores))
    utterances = len(setup.loaders[0].texts.identities)
    if corpus.combine_turns:
        utterances += sum(len(dialogue.turns) for number in every for dialogue in _originals(corpus, number))
    own = TrainingData.of(chain.from_iterable(_read(corpus, number) for number in every), utterances, _labelled(setup))
    return TrainingData.union([own, setup.encoder.training_data, *_teachers(setup)])


def _originals(corpus: Corpus, number: int) -> Iterator[Dialogue]:
    return corpus.read_originals(corpus.stores[number])


def _read(corpus: Corpus, number: int) -> Iterator[Dialogue]:
    """Iterate over the dialogues of a store as a run reads them, and as they are stored if their turns are combined."""
    return chain(corpus.read(corpus.stores[number]), _originals(corpus, number) if corpus.combine_turns else ())


def _labelled(setup: TrainingSetup) -> Iterator[str]:
    """Iterate over the texts whose labels an objective uses."""
    corpus = setup.corpus.dialogues
    selected, every = setup.recipe.selected_stores(corpus.stores), range(len(corpus.stores))
    using_labels = [part.name for part in setup.parts if part.objective.traits.label_sampling is not None]
    for number in sorted({number for name in using_labels for number in selected.get(name, every)}):
        for dialogue in _read(corpus, number):
            yield from (turn.text for turn in dialogue.turns if turn.intent is not None)


def _teachers(setup: TrainingSetup) -> Iterator[TrainingData]:
    """Iterate over what is known of the training data of teachers other than the model that the run starts from."""
    for part in setup.parts:
        name = part.objective.traits.teacher
        if part.teacher is not None and name != "start":
            unknown = TrainingData(statements=(f"nothing is known of the training data of the teacher {name}",))
            yield part.teacher.encoder.training_data or unknown
