"""What nodes remember of labels, and what they say: counts of classes, means of numbers, forecasts of leaves."""
