"""Checkpoints of one partition: names, manifests, segments. Models are opaque bytes here.

    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.manifest
    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.segment

A segment is the bytes of some models, one after the other. A manifest is the state at an offset: for every model key
the range of a segment, this checkpoint's own or an older one's, that holds the model. Offsets have 20 digits; the hash
is of the file's own bytes. Files are created, never changed: segments first, the manifest last, so a manifest that can
be read is a whole checkpoint. State is a function of the input alone, so it is true whoever wrote it, however late.
Where the input itself has lost records, gaps.py says where the history goes on.
"""

from worker.checkpoint.checkpoints import Checkpoints, Listing, describe, history
from worker.checkpoint.collection import KEPT_MS
from worker.checkpoint.manifest import FORMAT, Manifest, ModelEntry, differing, state_hash
from worker.checkpoint.names import Location
from worker.checkpoint.policy import Policy
from worker.checkpoint.segments import Model, Source

__all__ = [
    "FORMAT",
    "KEPT_MS",
    "Checkpoints",
    "Listing",
    "Location",
    "Manifest",
    "Model",
    "ModelEntry",
    "Policy",
    "Source",
    "describe",
    "differing",
    "history",
    "state_hash",
]
