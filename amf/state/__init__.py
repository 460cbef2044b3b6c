"""The state of a forest in Python: what a system decides, memory before a batch, threads, calls one by one."""
