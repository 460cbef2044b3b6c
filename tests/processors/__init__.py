"""Forests on another kind of processor: what the test, the preparation and the emulated program share."""
