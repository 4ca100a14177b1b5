"""A file of tokens, line by line, and where its errors are reported."""

import hashlib

import pytest

from meshwright.errors import ConfigError, InputFileError
from meshwright.live.web.access import SCOPES, Access, Token, new_token, read_tokens


def test_each_line_is_a_token_of_its_scope_hash_and_owner(tmp_path):
    path, owners = tmp_path / "tokens", ("ann", "", "ben of b")
    made = [new_token(scope, owner) for scope, owner in zip(SCOPES, owners, strict=True)]
    path.write_text("# tokens\n\n" + "".join(f"{line}\n" for _, line in made))
    path.chmod(0o600)
    hashes = [hashlib.sha256(token.encode()).hexdigest() for token, _ in made]
    assert read_tokens(path) == tuple(Token(*one) for one in zip(SCOPES, hashes, owners, strict=True))


def test_a_token_is_known_by_all_digits_of_its_hash():
    token, line = new_token("read")
    digest = line.split()[1]
    assert Access([Token("read", digest)], None).scope_of_token(token) == "read"
    for place, digit in enumerate(digest):
        near = digest[:place] + ("0" if digit != "0" else "1") + digest[place + 1 :]
        assert Access([Token("read", near)], None).scope_of_token(token) is None


@pytest.mark.parametrize(("text", "line"), [("", None), ("# none\n", None), ("#\nread\n", 2), ("read " + "0" * 63, 1)])
def test_what_is_no_token_is_told_by_its_line(tmp_path, text, line):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        read_tokens(path)
    assert (error.value.file, error.value.line) == (str(path), line)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(tmp_path, mode):
    path = tmp_path / "tokens"
    path.write_text(new_token(SCOPES[0])[1] + "\n")
    path.chmod(mode)
    with pytest.raises(InputFileError, match="others may write this file of tokens"):
        read_tokens(path)
