"""What the packages beside this one share. Nothing here is for users."""
