"""Bytes to lines, without looking at any byte twice.

Pure; `stdio.py` feeds it what a pipe gives.
"""

from __future__ import annotations

__all__ = ["LineSplitter"]


class LineSplitter:
    """Collects chunks and gives back whole lines, without their line ends.

    A line longer than `longest` is given back in pieces of that size if `split` is set; otherwise it raises ValueError.
    """

    def __init__(self, longest: int, *, split: bool = False) -> None:
        self._longest = longest
        self._split = split
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        lines: list[bytes] = []
        for following in rest:
            lines += self._pieces(self.flush())
            self._hold(following)
        if self._pending_bytes > self._longest:
            *whole, remainder = self._pieces(self.flush())
            lines += whole
            self._hold(remainder)
        return [line.removesuffix(b"\r") for line in lines]

    def flush(self) -> bytes:
        """What came after the last line end."""
        line = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        return line

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pending.append(piece)
            self._pending_bytes += len(piece)

    def _pieces(self, line: bytes) -> list[bytes]:
        if len(line) <= self._longest:
            return [line]
        if not self._split:
            raise ValueError(f"a line is longer than {self._longest} bytes")
        return [line[start : start + self._longest] for start in range(0, len(line), self._longest)]
