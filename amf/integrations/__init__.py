"""Forests in the conventions of other libraries, each in a module of its own that needs the extra of that name."""
