"""python -m pbcs_jax.report RUNS [--out=BOOK.html]: one page of all finished runs in a folder."""

import argparse
import sys
from pathlib import Path

from pbcs_jax.errors import UserError
from pbcs_jax.npz import reason
from pbcs_jax.report.book import write_book


def main(arguments: list[str] | None = None) -> int:
    """Writes the book; one line and exit code 2 for what a user can get wrong."""
    parser = argparse.ArgumentParser(prog="python -m pbcs_jax.report", description=__doc__)
    parser.add_argument("runs", type=Path, help="folder with workdirs, at any depth")
    parser.add_argument("--out", type=Path, help="the page; by default RUNS/book.html")
    given = parser.parse_args(arguments)
    out = given.out or given.runs / "book.html"
    try:
        runs, unread = write_book(given.runs, out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {reason(error)} at {str(out)!r}: give another --out", file=sys.stderr)
        return 2
    for one in unread:
        print(f"{_printable(one.name)}: {_printable(one.why)}", file=sys.stderr)
    print(f"{len(runs)} runs and sweeps: {_printable(str(out))}")
    return 0


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


if __name__ == "__main__":
    sys.exit(main())
