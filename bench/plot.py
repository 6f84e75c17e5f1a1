"""Two lines over time as an SVG, by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Line", "svg"]

WIDTH, HEIGHT = 820, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 34


@dataclass(frozen=True)
class Line:
    title: str
    colour: str
    values: Sequence[float]


def svg(times_s: Sequence[float], lines: Sequence[Line], *, warm_s: float, about: str) -> str:
    """One panel below the other, with the same time axis; what is before `warm_s` is shaded."""
    panels = [_panel(times_s, line, warm_s, index * HEIGHT + 24) for index, line in enumerate(lines)]
    height = 24 + HEIGHT * len(lines)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' font-family="sans-serif" font-size="12" fill="#333">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="{LEFT}" y="20" font-size="13">{about}</text>',
            *panels,
            "</svg>",
            "",
        ]
    )


def _panel(times_s: Sequence[float], line: Line, warm_s: float, top: int) -> str:
    end, highest = max(times_s[-1], 1.0), max(line.values) * 1.15 or 1.0
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(seconds: float) -> float:
        return round(LEFT + across * seconds / end, 1)

    def y(value: float) -> float:
        return round(top + TOP + down * (1 - value / highest), 1)

    points = " ".join(f"{x(at)},{y(value)}" for at, value in zip(times_s, line.values, strict=True))
    parts = [
        f'<text x="{LEFT}" y="{top + 22}" fill="{line.colour}">{line.title}</text>',
        f'<rect x="{LEFT}" y="{top + TOP}" width="{x(warm_s) - LEFT:.1f}" height="{down}" fill="#f0f0f0"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        value = highest * share / 1.15
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{value:.0f}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = end * share
        parts.append(f'<text x="{x(at)}" y="{top + HEIGHT - 14}" text-anchor="middle">{at:.0f} s</text>')
    parts.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="1.6"/>')
    return "\n".join(parts)
