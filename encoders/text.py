"""Safe text. Names come from the user's files: none of their characters may control a terminal or change the writing direction."""

_UNSEEN = {
    code: "�"
    for first, last in (
        (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5),
        (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
        (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0xFFFE, 0xFFFF), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
        (0xE0000, 0xE00FF), (0xE01F0, 0xE0FFF),
    )
    for code in range(first, last + 1)
}  # fmt: skip
"""Letters that control a terminal, turn the direction of writing, or have no width: with them a name could pass for another.
Those that join or choose shapes of letters, of which scripts and emoji are made, stay: U+200C, U+200D, variation selectors."""
_OF_LINES = {code: letter for code, letter in _UNSEEN.items() if chr(code) not in "\n\t"}


def visible(line: str) -> str:
    """Return one line of text with a visible sign for each invisible character, line breaks included."""
    return line.translate(_UNSEEN)


def visible_lines(text: str) -> str:
    """Return a text with visible signs for invisible characters, except line breaks and tabs."""
    return text.translate(_OF_LINES)
