"""What strategy auto alone needs."""
