"""What users see: the forest of each system, groups of them, and what can be asked of one."""
