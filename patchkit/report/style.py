"""Colour and width, where there is a terminal."""

from __future__ import annotations


class Style:
    """ANSI styles, or none of them; ``width`` of the terminal, 0 if it is none."""

    def __init__(self, colour: bool, width: int = 0):
        self.colour = colour
        self.width = width

    def __call__(self, text: str, *codes: str) -> str:
        numbers = [_CODES[code] for code in codes if code]
        if not self.colour or not numbers:
            return text
        return f"\x1b[{';'.join(numbers)}m{text}\x1b[0m"


_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33",
          "cyan": "36"}  # fmt: skip


def wrap(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
