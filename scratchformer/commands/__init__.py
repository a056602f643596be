"""The subcommands of `scratchformer`, a module for each; `cli.COMMANDS` names them.

`add(commands)` adds the subcommand: its arguments and the function that runs it. That function takes the parsed
arguments and returns an exit code, or None for 0. Its docstring is the help text: a summary, and examples. It imports
what it needs itself, so that `scratchformer --help` and Ctrl-C need not wait for NumPy, Matplotlib and the like.
`options.py` has the arguments that several subcommands share.
"""
