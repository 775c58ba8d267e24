"""What the benchmarks share: a process of its own for every measurement, and rows that stay.

A measurement is a function of a benchmark file that does its set-up, calls `watch` around the work
that counts, and returns numbers. `fresh` runs it in a new process with one BLAS thread (or as many
as asked for), so peak memory is its own and a method that takes too long can be stopped.
"""

import importlib
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def fresh(job: str, budget: float = 600.0, threads: int = 1, **arguments: Any) -> dict[str, Any]:
    """``job`` is "file:function"; the result has ``status`` "ok", or says what went wrong.

    ``budget`` is in CPU seconds of a thread, so a busy machine does not decide.
    """
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    environment["CPU_BUDGET"] = str(int(budget * threads))
    command = [sys.executable, str(HERE / "measure.py"), job, json.dumps(arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20 * budget, env=environment, cwd=HERE
        )
    except subprocess.TimeoutExpired:
        return {"status": f"over {20 * budget:.0f} s of wall time"}
    if done.returncode == -signal.SIGXCPU:
        return {"status": f"over {budget:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"status": lines[-1][:200]}
    return {"status": "ok"} | json.loads(done.stdout.splitlines()[-1])


@contextmanager
def watch(found: dict[str, Any]) -> Iterator[None]:
    """CPU and wall seconds of the block, and how far memory rose above where it began, in MB.

    Linux only for memory: the kernel's high-water mark is reset at the start.
    """
    begin = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    found["cpu"], found["wall"] = time.process_time() - cpu, time.perf_counter() - wall
    found["peak_mb"] = _memory("VmHWM") - begin
    found["process_mb"] = _memory("VmHWM")


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """CPU seconds of the best of up to three runs (one if it takes a second), and the result."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        result = work()
        best = min(best, time.process_time() - begin)
        if best > 1.0:
            break
    return best, result


def alternating(methods: dict[str, Callable[[], Any]], runs: int = 5) -> dict[str, float]:
    """CPU seconds of every method, the median of ``runs`` runs in turn, after one that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for run in range(runs + 1):
        for name, work in methods.items():
            begin = time.process_time()
            work()
            if run:
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


class Saved:
    """Rows of a JSON-lines file, written as they finish; what is there is not computed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def find(self, **key: Any) -> dict[str, Any] | None:
        """The row with these entries."""
        return next((row for row in self.rows if key.items() <= row.items()), None)

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write a row now."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row


def machine() -> dict[str, str]:
    """Processor, cores, system, Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def versions(*names: str) -> dict[str, str]:
    """Of installed packages; "not installed" for the others."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    limit = int(os.environ.get("CPU_BUDGET", 3600))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
    file, function = sys.argv[1].split(":")
    print(json.dumps(getattr(importlib.import_module(file), function)(**json.loads(sys.argv[2]))))
