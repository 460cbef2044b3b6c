"""Outputs and offsets together, as often as it takes: for the worker's loop and for that of the forwarder."""
