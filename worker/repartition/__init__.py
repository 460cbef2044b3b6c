"""The topic that is keyed by model, and Kafka's own placing of keys."""
