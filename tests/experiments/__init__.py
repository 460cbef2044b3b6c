"""The experiments of the papers, each one command, with a table and a picture."""
