"""The exception for mistakes of the user, and the messages of other exceptions in one line."""


class UserError(ValueError):
    """Bad input, or a state that only the user can repair. The message is one line that says what is wrong and where.

    The command line prints only the message and exits with code 2; every other exception is a bug and keeps its
    traceback.
    """


def in_one_line(error: BaseException) -> str:
    """The first line of an exception's message, or the last one if that is where it names the original error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "Original error" in str(error) else lines[0]
