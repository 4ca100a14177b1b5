"""Laws of files of tensors: what was saved comes back; what asks for more than is stored is refused before it is made."""

import io
import zipfile
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import CheckpointError
from meshwright.models.tensor_file import load_tensors, save_tensors

from ..draws import draws

DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
tensors = st.builds(
    lambda shape, dtype: torch.arange(24).remainder(2)[: torch.Size(shape).numel()].reshape(shape).to(dtype),
    st.sampled_from([(), (0,), (1,), (3, 4), (2, 3, 4), (4, 0, 2)]),
    st.sampled_from(DTYPES),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
data = st.dictionaries(
    st.text(max_size=5),
    st.recursive(tensors | plain, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=6),
    max_size=4,
)


def alike(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return a == b


@draws(10)
@given(content=data)
def test_what_was_saved_comes_back(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("saved") / "a.pt"
    save_tensors(path, content)
    result = load_tensors(path)
    assert result.keys() == content.keys()
    assert all(alike(result[key], value) for key, value in content.items())


def test_views_tied_weights_and_what_optimizers_hold_come_back(tmp_path):
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimizer.step()
    content = {"layer": layer.state_dict(), "optimizer": optimizer.state_dict()}
    content |= {"tied": [layer.weight.detach()] * 2, "view": torch.arange(12.0).reshape(3, 4).T, "ordered": OrderedDict(a=1)}
    save_tensors(tmp_path / "a.pt", content)
    result = load_tensors(tmp_path / "a.pt")
    assert torch.equal(result["view"], content["view"])
    assert torch.equal(result["tied"][1], layer.weight)
    assert torch.equal(result["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def said(stored, size, stride):
    """Changes a pickle of four numbers so that it says these of them."""

    def whole(number):
        return b"\x8a\x08" + number.to_bytes(8, "little")

    def change(pickle):
        pickle = pickle.replace(b"q\x06K\x04tq", b"q\x06" + whole(stored) + b"tq")
        return pickle.replace(b"K\x00K\x04\x85q\x08K\x01", b"K\x00" + whole(size) + b"\x85q\x08" + whole(stride))

    return change


def repacked(change=lambda pickle: pickle, more=b"", compression=zipfile.ZIP_STORED, again=False):
    """The bytes of a file of four numbers with another pickle, more numbers, or compressed or repeated members."""
    saved, packed = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.zeros(4)}, saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(packed, "w", compression) as new:
        for member in old.infolist():
            content = old.read(member)
            content = change(content) if member.filename.endswith("data.pkl") else content
            new.writestr(member.filename, content + (more if member.filename.endswith("data/0") else b""))
        if again:
            with pytest.warns(UserWarning, match="Duplicate name"):
                new.writestr("archive/data.pkl", old.read("archive/data.pkl"))
    return packed.getvalue()


class Calls:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def saved(value):
    buffer = io.BytesIO()
    torch.save({"w": value}, buffer)
    return buffer.getvalue()


def old_form(value):
    buffer = io.BytesIO()
    torch.save({"w": value}, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


KIND, SIZE = "is truncated or not a file of tensors", "holds a tensor of more numbers than are stored"
HUGE, LARGE = 200_000_000_000, 3_000_000
# Those of the first kind are refused before torch makes anything of them.
BOMBS = {
    "compressed": lambda: repacked(said(LARGE, LARGE, 1), bytes(4 * LARGE - 16), zipfile.ZIP_DEFLATED),
    "twice": lambda: repacked(again=True),
    "without data": lambda: saved(torch.empty(HUGE, device="meta")),
    "sparse": lambda: saved(torch.zeros(2, 2).to_sparse()),
    "sparse rows": lambda: saved(torch.zeros(2, 2).to_sparse_csr()),
    "quantised": lambda: saved(torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)),
    "called tensor": lambda: saved(Calls(torch.Tensor, HUGE)),
    "called bytes": lambda: saved(Calls(bytearray, HUGE)),
    "old form": lambda: old_form(torch.zeros(4)),
    "before the archive": lambda: b"text" + saved(torch.zeros(4)),
}
VIEWS = {
    "expanded": lambda: saved(torch.zeros(1).expand(HUGE)),
    "overlapping": lambda: saved(torch.zeros(8).as_strided((4, 4), (1, 1))),
    "stride 0": lambda: repacked(said(4, HUGE, 0)),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz:Warning")
@pytest.mark.parametrize("name", BOMBS)
def test_what_is_not_dense_and_stored_as_it_is_is_refused_before_anything_is_made_of_it(tmp_path, monkeypatch, name):
    (tmp_path / "a.pt").write_bytes(BOMBS[name]())
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("was read"))
    with pytest.raises(CheckpointError, match=KIND):
        load_tensors(tmp_path / "a.pt")


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_more_numbers_than_are_stored_is_refused(tmp_path, name):
    (tmp_path / "a.pt").write_bytes(VIEWS[name]())
    with pytest.raises(CheckpointError, match=SIZE):
        load_tensors(tmp_path / "a.pt")


def test_a_store_that_is_longer_than_its_member_is_refused(tmp_path):
    (tmp_path / "a.pt").write_bytes(repacked(said(HUGE, HUGE, 1)))
    with pytest.raises(CheckpointError, match=KIND):
        load_tensors(tmp_path / "a.pt")


def test_the_bombs_are_files_that_torch_reads(tmp_path):
    """Each file is good but for one mistake, so it is refused for the named reason."""
    (tmp_path / "a.pt").write_bytes(repacked())
    assert torch.equal(load_tensors(tmp_path / "a.pt")["w"], torch.zeros(4))
    expanded = torch.load(io.BytesIO(VIEWS["stride 0"]()), weights_only=True)["w"]
    assert (expanded.shape, expanded.stride()) == ((HUGE,), (0,))
    assert torch.load(io.BytesIO(BOMBS["compressed"]()), weights_only=True)["w"].shape == (LARGE,)
    assert len(BOMBS["compressed"]()) < 100_000


def test_tensors_in_what_holds_itself_are_found(tmp_path):
    inner = [torch.zeros(1).expand(HUGE)]
    inner.append(inner)
    save_tensors(tmp_path / "a.pt", {"a": (inner,)})
    with pytest.raises(CheckpointError, match=SIZE):
        load_tensors(tmp_path / "a.pt")
