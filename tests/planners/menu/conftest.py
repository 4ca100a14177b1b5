"""A cluster on which menus are priced, and a folder that keeps the priced menus of a module."""

import pytest

from meshwright.clusters.cluster import load_cluster


@pytest.fixture(scope="module")
def clos():
    return load_cluster("preset:clos-64-4to1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("menus")
