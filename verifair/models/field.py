"""The field of a question that holds its model, and accepts everything that `verifair.models.read` does."""

from __future__ import annotations

from typing import Any

from encoders.model import Model
from verifair.models.read import read


class ModelField:
    """The field `model` of a dataclass, without a default: what it is set to is read."""

    def __get__(self, instance: object, owner: type) -> Model:
        if instance is None:
            raise AttributeError("model")  # dataclasses take a class attribute as the default
        model: Model = instance.__dict__["model"]
        return model

    def __set__(self, instance: object, value: Any) -> None:
        instance.__dict__["model"] = read(value)


MODEL = ModelField()
