"""What everything else builds on: values, errors, protocols, waiting, fail points, metrics."""
