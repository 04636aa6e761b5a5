"""Run the ``weft`` command as ``python -m weft``."""

from weft.cli.app import app

if __name__ == "__main__":
    app(prog_name="weft")
