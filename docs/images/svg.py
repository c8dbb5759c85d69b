"""Draws boxes, arrows and text as SVG, in colours that are readable on a dark and on a light page."""

from __future__ import annotations

import math
from html import escape

# White text on these fills, and these fills on black and on white, have a contrast of 3 or more.
BLUE, GREEN, PURPLE, BROWN, GREY = "#2f6db5", "#2e7d4f", "#7a4fb0", "#9a5b13", "#5d6673"
TEXT = "#757d88"  # on the page itself: a contrast of 4 on black and on white
RED = "#d5453d"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_HEAD, _HALF_HEAD = 9.0, 4.0  # an arrow's head: length, half of its width

Point = tuple[float, float]


class Picture:
    """Collects the elements of one picture. It has no background."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._elements: list[str] = []

    def text(
        self,
        at: Point,
        words: str,
        *,
        size: float = 13,
        anchor: str = "middle",
        color: str = TEXT,
        weight: str = "normal",
    ) -> None:
        """Write one line; `at` is its middle (or its start or end) on the base line."""
        self._elements.append(
            f'<text x="{at[0]:g}" y="{at[1]:g}" font-size="{size:g}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{escape(words)}</text>'
        )

    def box(self, corner: Point, size: Point, color: str, words: str, below: str = "") -> None:
        """Draw a filled box with one or two lines of white text."""
        (x, y), (width, height) = corner, size
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{color}"/>'
        )
        middle = (x + width / 2, y + height / 2)
        first = middle[1] + (-3 if below else 4.5)
        self.text((middle[0], first), words, color="#ffffff", weight="600" if below else "normal")
        if below:
            self.text((middle[0], middle[1] + 15), below, size=11, color="#ffffff")

    def frame(self, corner: Point, size: Point, words: str = "", *, color: str = TEXT) -> None:
        """Draw an outline with dashes and a title in its upper left corner."""
        (x, y), (width, height) = corner, size
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="none" '
            f'stroke="{color}" stroke-dasharray="5 4"/>'
        )
        if words:
            self.text((x + 10, y + 19), words, anchor="start", weight="600", color=color)

    def waiting(self, corner: Point, size: Point, words: str) -> None:
        """Draw an outline with its words in the middle: somebody sleeps or waits there."""
        self.frame(corner, size)
        self.text((corner[0] + size[0] / 2, corner[1] + size[1] / 2 + 4), words, size=11)

    def line(self, points: list[Point], *, color: str = TEXT, dotted: bool = False) -> None:
        """Draw a line through the points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dots = ' stroke-dasharray="2 3"' if dotted else ""
        self._elements.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"{dots}/>'
        )

    def arrow(
        self, points: list[Point], *, color: str = TEXT, dotted: bool = False, both: bool = False
    ) -> None:
        """Draw a line through the points with a head at its end, or at both ends."""
        self.line(points, color=color, dotted=dotted)
        self._head(points[-2], points[-1], color)
        if both:
            self._head(points[1], points[0], color)

    def _head(self, before: Point, tip: Point, color: str) -> None:
        angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
        along, across = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
        corners = [tip]
        for side in (_HALF_HEAD, -_HALF_HEAD):
            corners.append(
                (
                    tip[0] - _HEAD * along[0] + side * across[0],
                    tip[1] - _HEAD * along[1] + side * across[1],
                )
            )
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._elements.append(f'<polygon points="{path}" fill="{color}"/>')

    def svg(self) -> str:
        """Return the file's text."""
        width, height = self._size
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="{_FONT}">',
            f"<title>{escape(self._title)}</title>",
            *self._elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
