"""What strategies of several kinds share."""
