"""The models of a partition: one model, all of them, in bounded memory, and as they were while they are written."""
