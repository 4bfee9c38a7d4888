"""Plays rounds of the fault campaign: `python -m tests.campaign --rounds 100 --seed 1`.

Law: a round is replayed by its seed alone. The exit code is 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .disk import VARIABLE, Disk, build

LONGEST = 60.0  # seconds of processor time of one round, which takes about 0.15
PROCESSES_EVERY = 50  # seeds, one is of a round with real processes
THREADS_AT = 25  # of those seeds, one is of a round with threads


def main() -> int:
    """Start again with the failing disk preloaded, then play."""
    parser = argparse.ArgumentParser(prog="make test-campaign")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--rounds", type=int, default=None, help="how many; default: by time")
    parser.add_argument("--seconds", type=float, default=None, help="how long; default: 60")
    parser.add_argument("--keep-going", action="store_true", help="go on after a finding")
    parser.add_argument("--processes", action="store_true", help="rounds with processes only")
    parser.add_argument("--threads", action="store_true", help="rounds with threads only")
    parser.add_argument("--keep", help="a folder for the databases of rounds with findings")
    parser.add_argument("--history", action="store_true", help="print what each round does")
    options = parser.parse_args()
    if VARIABLE not in os.environ:
        library = build()
        if library is None:
            print("There is no C compiler: power loss and full disks are NOT part of this run.")
            os.environ[VARIABLE] = ""
        else:
            os.environ[VARIABLE] = os.environ["LD_PRELOAD"] = str(library)
        os.environ["PYTHONHASHSEED"] = "0"  # sets are walked in one order
        os.execv(sys.executable, [sys.executable, "-m", "tests.campaign", *sys.argv[1:]])
    library_path = os.environ.pop("LD_PRELOAD", None)
    if not os.environ[VARIABLE]:
        del os.environ[VARIABLE]
    disk = Disk()
    if library_path is not None:
        Path(library_path).unlink()
    return play(options, disk)


@contextmanager
def patience(seed: int) -> Iterator[None]:
    """A round that computes for too long is a finding, not a hang of the campaign."""

    def end(*_: object) -> None:
        raise TimeoutError(f"the round of seed {seed} computes for more than {LONGEST:g} seconds")

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def play(options: argparse.Namespace, disk: Disk) -> int:
    """Rounds of rising seeds until the number or the time is reached."""
    from .processes import ProcessRound
    from .rounds import Round
    from .threads import ThreadRound

    seconds = options.seconds
    if seconds is None and options.rounds is None:
        seconds = 60.0
    began, told = time.perf_counter(), 0.0
    happened: Counter[str] = Counter()
    rounds, findings = 0, list[int]()
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=base, prefix="viewkeep-campaign-") as folder:
        while options.rounds is None or rounds < options.rounds:
            spent = time.perf_counter() - began
            if seconds is not None and spent > seconds:
                break
            if spent - told > 10:
                told = spent
                print(f"{rounds} rounds in {spent:.0f} s, {len(findings)} findings", flush=True)
            seed = options.seed + rounds
            kind: type[Round | ProcessRound | ThreadRound] = Round
            if options.processes or (seed % PROCESSES_EVERY == 0 and not options.threads):
                kind, what = ProcessRound, "round with processes"
            elif options.threads or seed % PROCESSES_EVERY == THREADS_AT:
                kind, what = ThreadRound, "round with threads"
            else:
                kind, what = Round, "round"
            played = kind(seed, Path(folder), disk)
            happened[what] += 1
            rounds += 1
            try:
                with patience(seed):
                    happened += played.play()
                if options.history:
                    print(*played.history, sep="\n  ")
            except Exception as error:
                findings.append(seed)
                if options.keep:
                    shutil.copytree(folder, Path(options.keep) / str(seed), dirs_exist_ok=True)
                print(f"\nFINDING in the round of seed {seed}: {type(error).__name__}: {error}")
                print(*played.history, sep="\n  ")
                traceback.print_exc(limit=-6, file=sys.stdout)
                flag = " PROCESSES=1" if options.processes else " THREADS=1" * options.threads
                print(f"Replay: make test-campaign SEED={seed} ROUNDS=1{flag}", flush=True)
                if not options.keep_going:
                    break
            finally:
                played.remove()
    spent = time.perf_counter() - began
    print(f"{rounds} rounds in {spent:.0f} s ({rounds / spent:.1f} a second); what happened:")
    for name, count in sorted(happened.items()):
        print(f"  {count:8,}  {name}")
    print(f"{len(findings)} findings{': seeds ' + str(findings[:20]) if findings else ''}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
