"""Limits of one event, the same for every format. They are part of what determines a verdict: `DECODERS` names them."""

MAX_KEY_BYTES = 512
MAX_FEATURE_NAME_CHARS = 256
MAX_CATEGORY_CHARS = 256
MAX_LABEL_CHARS = 128
MAX_ID_CHARS = 1024
MAX_DEPTH = 64
"""Levels of nesting. A limit of our own, since the parser's depends on how deep the Python stack happens to be."""
MAX_DECIMAL_DIGITS = 500
"""Precision of an Avro decimal. A 64-bit float has no use for more than 309 digits before its point."""
MAX_PARTS = 100_000
"""Objects and arrays of a JSON Schema, and what arrays list, each as often as it is referred to."""
PARTS_PER_BYTE, MAX_EMPTY_PARTS = 16, 1_000
"""Parts that an Avro value may have for each of its bytes, and beyond these."""
MAX_CHECKS = 500_000_000
"""Bytes of a value times parts of its JSON Schema: a validator may come to all of these for each item."""
MIN_CLASS, MAX_CLASS = -(2**63), 2**64 - 1
"""Integers that can be a class, or an id."""
MAX_NEW_COLUMNS, YOUNG_SAMPLES = 256, 256
"""Most columns that an event may bring to a model that has fewer, and to any other as many as it has at most; once the
model has learned so many labels."""
MAX_NUMBER = 1e75
"""Largest absolute value of a label that is a number."""
