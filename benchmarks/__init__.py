"""Speed and scale: each file is a command that prints a table."""
