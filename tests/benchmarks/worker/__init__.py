"""How fast workers are, how late and how soon back, on a real broker."""
