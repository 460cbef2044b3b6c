"""One partition: its records through its models, its checkpoints, and where it starts."""
