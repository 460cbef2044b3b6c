"""The other learners: how they are installed, and asked through a pipe."""
