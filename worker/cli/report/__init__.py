"""What `evaluate` found: figures, and how they are shown, as text and as a page."""
