"""Bytes of a forest, and whether it could have learned what they say."""
