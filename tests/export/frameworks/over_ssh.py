"""A framework's own format, run under stand-ins for its launcher and for the shell that reaches hosts."""

import os
import subprocess

from meshwright.export.options import ExportOptions
from meshwright.export.writer import write

REMOTE = '#!/bin/bash\nON_HOST="$1" exec bash -c "$2"\n'


def launched(front, program, show, plan, folder, **options):
    """The words that a program got on each host, as ``show`` writes them down, by host."""
    write(front.render(plan, ExportOptions(**options)) | {"export.json": "{}"}, folder / "out")
    subprocess.run(["bash", "-n", folder / "out" / "launch.sh"], check=True)
    programs = folder / "bin"
    programs.mkdir()
    for name, body in ((program, f'#!/bin/bash\n{show} >"$SANDBOX/$ON_HOST.words"\n'), ("remote", REMOTE)):
        (programs / name).write_text(body)
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SANDBOX": str(folder), "REMOTE_SHELL": str(programs / "remote")}
    ran = subprocess.run([folder / "out" / "launch.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return {path.stem: path.read_text().split("\0")[:-1] for path in folder.glob("*.words")}
