"""Laws of the options of exports: a format's keys are those that it reads, and no other key is lost in silence."""

import pytest

from meshwright.errors import ExportError
from meshwright.export import ExportOptions, export, targets
from meshwright.export.options import keys_of, refuse_unread

READ: set[str] = set()


class Watched(ExportOptions):
    """Options that keep which of them were read."""

    def __getattribute__(self, name):
        if name in ExportOptions.model_fields:
            READ.add(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("target", targets)
def test_a_formats_keys_are_those_that_it_reads(plan_for, layout_example, target):
    forms = ("jobset", "trainjob", "volcano", "kueue") if target == "kubernetes" else ("jobset",)
    request = [Watched(kubernetes=form, **more) for form in forms for more in ({}, {"probe": True}, {"command": "a"})]
    READ.clear()
    for options in request:
        export(layout_example if target == "kubernetes" else plan_for(target), target, options)
    assert set(keys_of(target)) == READ


@pytest.mark.parametrize(
    ("target", "key", "message"),
    [
        ("slurm", "image", "--set: image: slurm does not read it, kubernetes reads it; slurm's own key is container"),
        (
            "kubernetes",
            "container",
            "--set: container: kubernetes does not read it, slurm reads it; kubernetes's own key is image",
        ),
        (
            "tensorflow",
            "script",
            "--set: script: tensorflow does not read it, formats that start ranks read it; tensorflow reads name",
        ),
        (
            "torchrun",
            "decision",
            "--set: decision: torchrun does not read it, slurm, kubernetes and ray read it; "
            "torchrun reads name, command, script, env, master_port and probe",
        ),
        ("kubernetes", "mounts", "--set: mounts: kubernetes does not read it, slurm reads it; kubernetes's own key is volumes"),
        ("slurm", "priority", "--set: priority: slurm does not read it, kubernetes reads it; slurm's own key is qos"),
        ("kubernetes", "queue", "--set: queue: is read with kubernetes=volcano or kueue or all, and not with jobset"),
    ],
)
def test_a_key_of_another_format_is_refused_with_the_formats_that_read_it(target, key, message):
    with pytest.raises(ExportError) as refused:
        refuse_unread([target], {key: object()})
    assert str(refused.value) == message


def test_a_key_that_one_of_several_formats_reads_is_taken():
    refuse_unread(["slurm", "kubernetes"], dict.fromkeys(("image", "partition", "queue")))
    with pytest.raises(ExportError, match="slurm and kubernetes do not read it"):
        refuse_unread(["slurm", "kubernetes"], {"modules": "gpt2"})
