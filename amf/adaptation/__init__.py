"""What an adaptive forest learns of features, of trees and of the world: weights, roles, changes.

Its features have weights by what they tell of labels (feature_weights.py, univariate.py). Some of its trees stand by,
and take the place of others that are out of date (tree_roles.py).

The cuts near the root are made of the first samples, when it is not known what matters, and no later cut mends them. So
the first samples are kept, and all trees learn them once more under the weights of later (rehearsal.py). Where a forest
finds itself out of date, it begins anew, with the samples since then for its first ones, unless what it knew proves to
be of use after all (change_detection.py).

All of it happens in reviews, which follow every so many labelled samples (`review_every`), and sums over trees are
always added in their order: so it is a function of the samples, whatever the batches and the threads are.
"""
