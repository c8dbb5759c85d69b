"""Predicts steps of training on clusters that one does not have: `roundelay plan`."""
