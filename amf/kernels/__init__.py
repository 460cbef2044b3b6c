"""A batch's way through a forest: prepare, walk each tree, gather what the trees say; a system's kernels, composed."""
