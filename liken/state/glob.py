"""The glob dialect of `modules.alias`: fnmatch(3) without flags, as kmod applies it.

`*`, `?`, bracket expressions with ranges and `!` or `^` for negation, and a backslash that takes the next character
literally. Written out because Python's fnmatch knows neither the backslash nor `^`; and without regular expressions,
so that no pattern or modalias, however hostile, makes the match take more than length times length.
"""

from typing import Final

SPECIAL: Final = frozenset("*?[\\")
"""Characters that end the literal prefix of a pattern."""


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches the pattern; case counts."""
    at, place, star, resume = 0, 0, -1, 0
    while place < len(text):
        after = _step(pattern, at, text[place]) if at < len(pattern) and pattern[at] != "*" else None
        if after is not None:
            at, place = after, place + 1
        elif at < len(pattern) and pattern[at] == "*":
            star, at, resume = at, at + 1, place
        elif star >= 0:
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return not pattern[at:].strip("*")


def literal_prefix(pattern: str) -> str:
    """What every text that matches begins with."""
    end = next((index for index, char in enumerate(pattern) if char in SPECIAL), len(pattern))
    return pattern[:end]


def _step(pattern: str, at: int, char: str) -> int | None:
    """Where the pattern goes on when its one element at `at` takes the character; None: it does not."""
    match pattern[at]:
        case "?":
            return at + 1
        case "[" if (end := _bracket_end(pattern, at)) is not None:
            return end + 1 if _in_bracket(pattern[at + 1 : end], char) else None
        case "\\" if at + 1 < len(pattern):
            return at + 2 if pattern[at + 1] == char else None
        case literal:
            return at + 1 if literal == char else None


def _bracket_end(pattern: str, at: int) -> int | None:
    """Index of the closing bracket; a bracket straight after the opening one or the negation is a member."""
    first = at + 2 if pattern[at + 1 : at + 2] in {"!", "^"} else at + 1
    end = pattern.find("]", first + 1)
    return end if end >= 0 else None


def _in_bracket(members: str, char: str) -> bool:
    negated = members[0] in "!^"
    rest = members[1:] if negated else members
    found, index = False, 0
    while index < len(rest):
        if rest[index + 1 : index + 2] == "-" and index + 2 < len(rest):
            found |= rest[index] <= char <= rest[index + 2]
            index += 3
        else:
            found |= rest[index] == char
            index += 1
    return found is not negated
