"""The small inputs of the command line, which a study works on too."""

from ...cli.conftest import work

__all__ = ["work"]
