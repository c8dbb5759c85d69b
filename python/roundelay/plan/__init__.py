"""Predicts steps of training on clusters that a user does not have: `roundelay plan`."""
