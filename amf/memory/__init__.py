"""Where a forest lies: rows of nodes in blocks that grow, and the words by which kernels find it."""
