"""What the modules of `roundelay.torch` are made of. Nothing here is for users, and paths may change."""
