"""From what the trees say to what the forest says: experts, linear models, quantiles, and losses of late."""
