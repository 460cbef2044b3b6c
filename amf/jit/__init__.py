"""What all kernels are made with: how they are compiled and kept on disk, vectors, exact log and exp, randomness."""
