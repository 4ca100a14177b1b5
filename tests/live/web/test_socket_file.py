"""The socket file of a service: who may use it, from the moment that it exists."""

import os
import signal
import socket
import stat
import tempfile
from unittest.mock import Mock

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import InputFileError
from meshwright.live.web import server
from meshwright.live.web.server import bound_file


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777, 0o705])
def test_only_the_owner_may_use_it_and_it_is_removed_at_the_end(tmp_path, mode):
    tmp_path.chmod(mode)
    before = os.umask(0)
    try:
        with bound_file(tmp_path / "s"):
            assert rights(tmp_path / "s") == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert not (tmp_path / "s").exists()


def test_the_group_of_a_folder_that_keeps_others_out_may_use_it_too(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(server.os, "chown", lambda path, owner, group: given.append((rights(path), owner, group)))
    tmp_path.chmod(0o750)
    with bound_file(tmp_path / "s"):
        assert rights(tmp_path / "s") == 0o660
    assert given == [(0o600, -1, tmp_path.stat().st_gid)]


def test_a_group_that_the_service_is_not_in_gets_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(server.os, "chown", Mock(side_effect=PermissionError))
    tmp_path.chmod(0o750)
    with bound_file(tmp_path / "s"):
        assert rights(tmp_path / "s") == 0o600


def test_the_file_of_a_service_that_has_ended_is_replaced_and_that_of_one_that_listens_is_not(tmp_path):
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(tmp_path / "s"))
    with bound_file(tmp_path / "s"):
        with pytest.raises(InputFileError, match="s is in use, maybe by another service"), bound_file(tmp_path / "s"):
            pass
        assert (tmp_path / "s").is_socket()
    (tmp_path / "s").write_text("mine")
    for path in (tmp_path / "s", tmp_path / "none" / "s", tmp_path / ("s" * 200)):
        with pytest.raises(InputFileError, match="--listen: cannot be made"), bound_file(path):
            pass
    assert (tmp_path / "s").read_text() == "mine"


def test_only_the_own_file_is_removed_and_a_link_in_its_place_shares_nothing(tmp_path):
    tmp_path.chmod(0o750)
    (tmp_path / "secret").touch(0o600)
    with bound_file(tmp_path / "s"):
        (tmp_path / "s").unlink()
        (tmp_path / "s").symlink_to("secret")
        server._share_with_group(tmp_path / "s")
    assert (tmp_path / "s").is_symlink()
    assert rights(tmp_path / "secret") == 0o600


@pytest.mark.parametrize(("owner", "name"), [(os, "mkdir"), (socket.socket, "bind")])
def test_a_service_that_is_ended_as_soon_as_it_has_made_a_file_leaves_none(tmp_path, monkeypatch, owner, name):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make = getattr(owner, name)

    def make_and_end(*values):
        make(*values)
        if str(tmp_path) in str(values):
            os.kill(os.getpid(), signal.SIGTERM)

    if (child := os.fork()) == 0:
        setattr(owner, name, make_and_end)
        words = ["serve", "--cluster", "preset:dgx-h200-8x8", "--state", f"{tmp_path}/s.db", "--listen", f"unix:{tmp_path}/s"]
        os._exit(run_command_line(words))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert not [*tmp_path.iterdir()]
