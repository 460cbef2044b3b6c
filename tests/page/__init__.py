"""The page that a worker shows of itself, in a browser and on real traffic."""
