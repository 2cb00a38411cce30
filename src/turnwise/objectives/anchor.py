"""The anchor: on the turns of the corpus an encoder keeps what its starting point knew, or follows another teacher."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import Positive
from turnwise.objectives.losses import relation_distillation
from turnwise.objectives.objective import Example, Metrics, PooledObjective, Tensors, Traits


@dataclass(frozen=True, slots=True)
class Anchor(PooledObjective):
    """Distillation on single turns."""

    #: 'start', the model that training starts from, or an encoder with the same tokens, which it may number
    #: differently (as MPNet and BERT do): a packaged one, a folder, or a Hugging Face id.
    teacher: str = "start"
    #: What is compared: 'vectors', by (1 − cos)/τ, or 'relations', how similar a batch's other texts are to each text
    #: (`losses.relation_distillation`). Relations allow a model to move further, and a teacher of another size.
    form: Literal["vectors", "relations"] = "vectors"
    temperature: Positive = 0.05  # τ

    @property
    def traits(self) -> Traits:
        """Each distinct text is used once."""
        return Traits(columns=1, unique=True, teacher=self.teacher)

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Iterate over the turns."""
        return (Example(((number, number + 1),)) for number in range(len(dialogue.turns)))

    def loss(self, vectors: Tensor, inputs: Tensors, heads: nn.Module) -> tuple[Tensor, Metrics]:
        """Compute how far the model is from its teacher; the metric is the mean cosine of their vectors."""
        model, teacher = vectors[0], inputs["teacher"][0]
        if self.form == "relations":
            return relation_distillation(model, teacher, self.temperature), {}
        if model.shape != teacher.shape:
            raise TurnwiseError(
                f"the anchor's teacher has vectors of {teacher.shape[1]} dimensions and the model of {model.shape[1]}:"
                " set form=relations, which compares similarities"
            )
        cosine = cosine_similarity(model, teacher).mean()
        return (1 - cosine) / self.temperature, {"cosine": cosine.detach()}
