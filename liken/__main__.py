"""The `liken` command: `python -m liken` and the console script."""

import sys

from liken.cli.app import run


def main() -> None:
    """Run the command line of this process and exit with its code: 0, 1 for a failure, 2 for usage."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
