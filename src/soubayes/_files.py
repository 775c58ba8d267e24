"""Writing files in one step: a crash leaves either the old content or the new, never half of it.

An error of the disk, such as a full one, names the file that was to be written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it once the block has succeeded.

    >>> import pathlib, tempfile
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_path(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # of any new file: what the umask leaves
        yield temporary
        temporary.chmod(mode)  # a writer may have made a file of its own, for its owner alone
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename in (None, str(temporary)) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        with suppress(OSError):  # there is none, or what has failed is the error to tell
            temporary.unlink()
