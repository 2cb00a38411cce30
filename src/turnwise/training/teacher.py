"""The teacher of an objective: a frozen encoder, which may number the same tokens differently."""

import copy
from dataclasses import dataclass, replace

import numpy as np

from turnwise.core.errors import TrainingError
from turnwise.models.backbone.inputs import AnyTokenizer, tokenise
from turnwise.models.backbone.ragged import RaggedTokens, Tokens
from turnwise.models.identity import PROBE_TEXT
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.objective import PreparedBatch


@dataclass(frozen=True, slots=True)
class Teacher:
    """A frozen encoder for the batches of a model that is trained."""

    encoder: TrainableEncoder
    ids: Tokens | None = None  # of the model's tokens in the teacher; None: the same

    @classmethod
    def load(cls, objective: str, name: str, model: TrainableEncoder) -> "Teacher":
        """Return a copy of a model before training ('start'), or another encoder whose tokens are the same."""
        if name == "start":
            return cls(copy.deepcopy(model).eval().requires_grad_(False))
        encoder = TrainableEncoder.load(name, device=str(model.backbone.device)).eval().requires_grad_(False)
        if encoder.tokenizer.get_vocab() == model.tokenizer.get_vocab():
            return cls(encoder)
        try:
            return cls(encoder, _match_tokens(model.tokenizer, encoder.tokenizer))
        except ValueError as error:
            raise TrainingError(f"objectives.{objective}.teacher={name}: {error}; choose another teacher") from None

    def translate(self, batch: PreparedBatch) -> PreparedBatch:
        """Return a batch with the token ids of the teacher."""
        if self.ids is None:
            return batch
        sequences = RaggedTokens(self.ids[batch.sequences.tokens], batch.sequences.lengths)
        return replace(batch, sequences=sequences)


def _match_tokens(model: AnyTokenizer, teacher: AnyTokenizer) -> Tokens:
    """Return the id of each token of a model in a teacher; special tokens such as [CLS] and <s> match by their role."""
    roles = {token: teacher.special_tokens_map.get(role) for role, token in model.special_tokens_map.items()}
    known = teacher.get_vocab()
    names = {token: roles.get(token) or token for token in model.get_vocab()}
    missing = [token for token, name in names.items() if name not in known]
    if missing:
        raise ValueError(f"it lacks {len(missing):,} tokens of the model to train, such as {missing[0]!r}")
    ids = np.zeros(max(model.get_vocab().values()) + 1, np.int32)
    for token, number in model.get_vocab().items():
        ids[number] = known[names[token]]
    texts = (PROBE_TEXT, PROBE_TEXT.upper(), "Où est l'hôtel? 酒店 🏨 co-operate 3.5%")
    if not np.array_equal(ids[tokenise(model, texts).tokens], tokenise(teacher, texts).tokens):
        raise ValueError("it splits texts into other tokens than the model to train")
    return ids
