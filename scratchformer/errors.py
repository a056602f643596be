"""The one exception that is meant for the person at the keyboard, and others in its manner."""


class UserError(ValueError):
    """Bad input or a state only the user can mend. The message is one line that says what is wrong and where.

    The command line prints the message alone and exits with code 2; every other exception is a bug of ours and keeps
    its traceback.
    """


def in_one_line(error: BaseException) -> str:
    """What somebody else's error says: its first line, or its last if that is where it names its cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Original error" in str(error) else lines[0]
