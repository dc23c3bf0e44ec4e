"""The one error that a user can cause: bad input, said in one line."""


class UserError(ValueError):
    """What was given, what is allowed, and what to do, in one line.

    `launch.py` prints it without a traceback and exits with code 2.
    """
