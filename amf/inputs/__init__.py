"""What a caller gives, as arrays: labels, batches of rows, objects with names and texts."""
