"""One file is one published system: its walk through the shared arena. Systems never import each other."""
