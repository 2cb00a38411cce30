"""Parameters by scikit-learn's conventions, without scikit-learn."""

import inspect
from typing import Any, Self

from turnwise.core.errors import IntentError


class Parameters:
    """The base of a classifier whose parameters are the arguments of `__init__`, kept as attributes."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **values: Any) -> Self:
        """Set parameters by name."""
        names = list(self.get_params())
        for name, value in values.items():
            if name not in names:
                raise IntentError(f"{type(self).__name__} has no parameter {name!r}: choose from {', '.join(names)}")
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return one with the same parameters that is not fitted, and shares the encoder."""
        return type(self)(**self.get_params())

    __sklearn_clone__ = clone

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(estimator_type="classifier", target_tags=TargetTags(True), classifier_tags=ClassifierTags())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"
