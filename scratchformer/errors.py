"""The exception for mistakes of the user, and messages in one line that a terminal can show."""

from typing import Any


class UserError(ValueError):
    """Bad input, or a state that only the user can repair. The message is one line that says what is wrong and where.

    The command line prints only the message and exits with code 2. Of other exceptions it prints the place, too, and
    with SCRATCHFORMER_TRACEBACK=1 in the environment the traceback of each.
    """


def in_one_line(error: BaseException) -> str:
    """The first line of an exception's message, or the last one if that is where it names the original error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Original error" in str(error) else lines[0]


def printable(text: str) -> str:
    r"""The text with control characters and undecodable bytes as escapes: a message stays one line, whatever it quotes.

    Names of files and answers of servers may contain line breaks, or codes that a terminal obeys.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def require_list(items: Any, of: str = "strings") -> None:
    """Raises ValueError for a string, whose letters would be taken for items, and for None."""
    if items is None or isinstance(items, (str, bytes)):
        raise ValueError(f"a list of {of} belongs here, not {items!r:.60}")
