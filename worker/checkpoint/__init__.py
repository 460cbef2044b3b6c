"""Checkpoints of one partition: names, manifests, segments. Models are opaque bytes here.

    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.manifest
    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.segment

A segment is the bytes of some models, one after the other. A manifest is the state at an offset: for every model key
the range of a segment, this checkpoint's own or an older one's, that holds the model; all of that, or what has changed
since another manifest. Offsets have 20 digits. The hash is of the bytes of a manifest, which has those of all models;
of a segment it is the hash of the hashes of its models, or the hash of that where a damaged file has the name. Files
are created, never changed: segments first, the manifest last, so a manifest that can be read, with the one that it
builds on, is a whole checkpoint. State is a function of the input alone, so it is true whoever wrote it, however late.
Where the input itself has lost records, gaps.py says where the history goes on.
"""

from worker.checkpoint.catalogue import Catalogue, ModelEntry, state_hash
from worker.checkpoint.checkpoints import Checkpoints
from worker.checkpoint.listing import Listing, describe, history, look_again
from worker.checkpoint.manifest import About, Manifest, Reader
from worker.checkpoint.names import History, Location
from worker.checkpoint.pointer import Pointer
from worker.checkpoint.policy import MOST_WRITES, Policy
from worker.checkpoint.retention import KEPT_MS
from worker.checkpoint.segments import SavedModel, Source

__all__ = [
    "KEPT_MS",
    "MOST_WRITES",
    "About",
    "Catalogue",
    "Checkpoints",
    "History",
    "Listing",
    "Location",
    "Manifest",
    "ModelEntry",
    "Pointer",
    "Policy",
    "Reader",
    "SavedModel",
    "Source",
    "describe",
    "history",
    "look_again",
    "state_hash",
]
