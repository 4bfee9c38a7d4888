"""Makes the peers' environments under .bench/, each with its own packages, and sees to servers.

What cannot be installed is said and left out; the suite then reports that peer as not measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv

from suite.peers import ENVIRONMENTS, PEERS, ROOT, PeerSpec, program


def environment(spec: PeerSpec) -> str | None:
    """Make an environment; what went wrong, if anything did."""
    place = ENVIRONMENTS / spec.environment
    stamp = place / ".installed"
    wanted = "\n".join(spec.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    venv.create(place, with_pip=True, clear=place.exists())
    command = [str(spec.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # A package that names its version has needs of its own; the others are pinned as the project's.
    pinned = any("==" in package for package in spec.packages)
    given = [] if pinned else ["-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*command, *given, *spec.packages], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()[-500:]
    stamp.write_text(wanted)
    return None


def servers(spec: PeerSpec) -> str | None:
    """Install what programs are missing where apt and root are at hand."""
    packages = sorted({spec.programs[name] for name in spec.programs if not program(name)})
    if not packages:
        return None
    if os.getuid() or not shutil.which("apt-get"):
        return f"install {', '.join(packages)} (on Debian, as root: apt-get install)"
    done = subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        capture_output=True,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    return done.stderr.strip()[-500:] if done.returncode else None


def main() -> int:
    failed = False
    for spec in {spec.module: spec for spec in PEERS.values()}.values():
        told = environment(spec) or servers(spec)
        failed = failed or told is not None
        print(f"{spec.title.partition(',')[0]}: {told or 'ready'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
