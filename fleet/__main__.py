"""`python -m fleet` is the command `fleet`."""

from fleet.cli.main import run

if __name__ == "__main__":
    run()
