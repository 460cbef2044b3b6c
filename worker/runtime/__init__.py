"""The loop of a worker: consume, process, commit, checkpoint."""
