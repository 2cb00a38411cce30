"""A Rasa 3 intent classifier that asks a running `turnwise serve --intents FOLDER` over HTTP."""

# Rasa 3 runs on Python 3.8 and reads the types of these methods.
# ruff: noqa: UP006, UP019, UP035, B905

import os
from typing import Any, Dict, List, Text

import requests
from rasa.engine.graph import ExecutionContext, GraphComponent
from rasa.engine.recipes.default_recipe import DefaultV1Recipe
from rasa.engine.storage.resource import Resource
from rasa.engine.storage.storage import ModelStorage
from rasa.nlu.classifiers.classifier import IntentClassifier
from rasa.shared.nlu.training_data.message import Message

#: The intent for which Rasa's rules define what to do if a message is not understood.
FALLBACK = "nlu_fallback"


@DefaultV1Recipe.register(DefaultV1Recipe.ComponentType.INTENT_CLASSIFIER, is_trainable=False)
class TurnwiseClassifier(GraphComponent, IntentClassifier):
    """Sets the intent of a message; `nlu_fallback` if turnwise abstains.

    The examples are those of the service, not those of Rasa's training data.
    """

    @staticmethod
    def get_default_config() -> Dict[Text, Any]:
        """Return the address of the service, and how long to wait for it; the key is in TURNWISE_API_KEY."""
        return {"url": "http://localhost:8000", "seconds": 5.0}

    @classmethod
    def create(
        cls,
        config: Dict[Text, Any],
        model_storage: ModelStorage,
        resource: Resource,
        execution_context: ExecutionContext,
        **_: Any,
    ) -> "TurnwiseClassifier":
        """Return a component with a configuration."""
        return cls(config)

    def __init__(self, config: Dict[Text, Any]) -> None:
        self.url = config["url"].rstrip("/") + "/intents/predict"
        self.seconds = config["seconds"]
        self.session = requests.Session()
        key = os.environ.get("TURNWISE_API_KEY")
        if key:
            self.session.headers["Authorization"] = f"Bearer {key}"

    def process(self, messages: List[Message]) -> List[Message]:
        """Set `intent` and `intent_ranking` of each message that has a text."""
        with_text = [message for message in messages if (message.get("text") or "").strip()]
        if not with_text:
            return messages
        body = {"texts": [message.get("text") for message in with_text], "neighbours": 0}
        response = self.session.post(self.url, json=body, timeout=self.seconds)
        response.raise_for_status()
        for message, decision in zip(with_text, response.json()["predictions"]):
            ranking = [{"name": each["intent"], "confidence": each["probability"]} for each in decision["ranked"]]
            if decision["abstained"]:
                ranking.insert(0, {"name": FALLBACK, "confidence": 1.0})
            message.set("intent", ranking[0], add_to_output=True)
            message.set("intent_ranking", ranking, add_to_output=True)
        return messages
