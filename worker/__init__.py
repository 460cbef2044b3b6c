"""A Kafka worker that keeps one online forest per model key: exactly-once predictions, bit-exact recovery."""

__version__ = "0.1.0"
