"""What an adaptive forest learns of features, of trees and of the world: weights, roles, changes."""
