"""Faults injected into workers, broker, network and store, and an oracle that says whether anything shows."""
