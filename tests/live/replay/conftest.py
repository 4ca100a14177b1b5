"""Shared by the tests of replays."""

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Of the cluster and of priced menus."""
    return tmp_path_factory.mktemp("replays")
