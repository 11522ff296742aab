"""What tests of commands share."""

import sys

import pytest

from experiments.cli import main


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in an empty folder; returns (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capsys.readouterr()
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code
            if isinstance(status, str):  # what `sys.exit` prints
                print(status, file=sys.stderr)
                status = 1
        out, err = capsys.readouterr()
        return status or 0, out, err

    return call
