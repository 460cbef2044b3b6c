"""How trees divide space: features as trees see them, boxes, cells and oblique cuts, and the way down."""
