"""Quix Streams with river's AMFClassifier, exactly-once: a worker as one writes it with these two today.

    python -m tests.benchmarks.peers.scripts.with_quix BOOTSTRAP SOURCE SINK FOLDER

A river model for each key, in a dict. That forgets all models in a crash: Quix Streams would keep them in its state,
which writes the whole model for every event. What is measured is therefore the faster of the two ways, and the one
without a recovery.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

from quixstreams import Application
from river import forest

COMMIT_S = 0.1
"""As often as the worker; the default is 5 s."""

bootstrap, source, sink, folder = sys.argv[1:]
models: defaultdict[str, forest.AMFClassifier] = defaultdict(lambda: forest.AMFClassifier(n_estimators=10, seed=0))


def predict_and_learn(event: dict[str, Any], key: str, timestamp: int, headers: Any) -> dict[str, Any]:
    model, row = models[key], dict(enumerate(event["features"]))
    probabilities = model.predict_proba_one(row)
    model.learn_one(row, event["label"])
    return {
        "model": key,
        "prediction": max(probabilities, key=probabilities.__getitem__, default=None),
        "probabilities": {str(label): probability for label, probability in probabilities.items()},
        "label": event["label"],
    }


app = Application(
    broker_address=bootstrap,
    consumer_group=sink,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    commit_interval=COMMIT_S,
    state_dir=folder,
    loglevel="WARNING",
)
events = app.topic(source, key_deserializer="str", value_deserializer="json")
predictions = app.topic(sink, key_serializer="str", value_serializer="json")
print("{}", flush=True)
app.dataframe(events).apply(predict_and_learn, metadata=True).to_topic(predictions)
app.run()
