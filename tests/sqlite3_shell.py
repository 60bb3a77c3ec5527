"""A stand-in for the `sqlite3` program, for hosts without it: `sqlite3 [-column] [-header] DATABASE SQL`."""

import sqlite3
import sys
from collections.abc import Iterable, Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the SQL and print its rows; return the exit code."""
    options = {word for word in arguments if word.startswith("-")}
    database, sql = (word for word in arguments if not word.startswith("-"))
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        rows = [["" if value is None else str(value) for value in row] for row in cursor]
    except sqlite3.Error as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    for line in _lines(names, rows, "-column" in options, "-header" in options):
        print(line)
    return 0


def _lines(names: list[str], rows: list[list[str]], column: bool, header: bool) -> Iterable[str]:
    if not rows:
        return
    if not column:
        yield from ("|".join(row) for row in ([names] if header else []) + rows)
        return
    widths = [max(map(len, cells)) for cells in zip(names, *rows, strict=True)]
    top = [names, ["-" * width for width in widths]] if header else []
    for row in top + rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
