"""The one exception that is meant for the person at the keyboard."""


class UserError(ValueError):
    """Bad input or a state only the user can mend. The message is one line that says what is wrong and where.

    The command line prints the message alone and exits with code 2; every other exception is a bug of ours and keeps
    its traceback.
    """
