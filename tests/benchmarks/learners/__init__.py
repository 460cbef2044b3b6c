"""How fast, how large and how good forests are, beside other learners in the same run."""
