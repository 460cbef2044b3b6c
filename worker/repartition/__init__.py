"""Events into a topic that is keyed by model."""
