"""Reads, sums up and draws the timelines that jobs write (docs/timeline.md)."""
