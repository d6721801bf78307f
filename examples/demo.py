# SPDX-License-Identifier: Apache-2.0
"""Build a dataset of PNGs and load it beside PyTorch's DataLoader with Pillow: `make demo`, or with `IMAGES=folder`.

Without a folder it makes PNGs from the photographs in scikit-image. benchmarks/loaders.py is the careful measurement,
with more loaders.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich import box
from rich.console import Console
from rich.table import Table

import headrace
from headrace.transforms import Normalize, RandomResizedCrop

try:
    import torch
    from torch.utils.data import DataLoader
except ImportError:
    torch = None

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "ihc", "motorcycle_left", "rocket")
SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}
MADE = 96
PIXELS = 150_000_000  # loaded per epoch, at most
SIZE, BATCH, EPOCHS = 224, 32, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

console = Console()


@dataclass
class Cost:
    """Cost of all epochs."""

    images: int
    seconds: float
    cpu_seconds: float


def make_images(folder: Path) -> None:
    """Write PNGs of 1024x768, each made of four crops of scikit-image photographs. Takes some seconds."""
    package = importlib.util.find_spec("skimage")
    if package is None or package.origin is None:
        sys.exit("scikit-image is not installed: `pip install scikit-image`, or `make demo IMAGES=folder`")
    inside = Path(package.origin).parent / "data"
    photos = [read(file) for name in PHOTOGRAPHS for file in inside.glob(f"{name}.*")]
    rng = random.Random(0)  # noqa: S311 - no secret depends on it
    sheets = []
    for _ in range(MADE):
        sheet = Image.new("RGB", (1024, 768))
        for corner, photo in zip([(0, 0), (512, 0), (0, 384), (512, 384)], rng.sample(photos, 4), strict=True):
            left, top = rng.randint(0, max(0, photo.width - 512)), rng.randint(0, max(0, photo.height - 384))
            part = photo.crop((left, top, min(left + 512, photo.width), min(top + 384, photo.height)))
            sheet.paste(part.resize((512, 384), Image.Resampling.LANCZOS), corner)
        sheets.append(sheet)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda numbered: numbered[1].save(folder / f"{numbered[0]:03d}.png"), enumerate(sheets)))


def take_images(source: Path, folder: Path) -> None:
    """Copy images from the user's folder, up to PIXELS, so that the demo takes about a minute."""
    if not source.is_dir():
        sys.exit(f"{source} is not a folder: pass a folder of images, or none to use the photographs in scikit-image")
    files = sorted(file for file in source.rglob("*") if file.suffix.lower() in SUFFIXES)
    pixels = 0
    for number, file in enumerate(files):
        try:
            width, height = read(file).size
        except (OSError, ValueError) as error:
            console.print(f"skipped {file.name}: {error}", style="yellow", markup=False, highlight=False)
            continue
        shutil.copyfile(file, folder / f"{number:06d}-{file.name}")
        pixels += width * height
        if pixels > PIXELS:
            console.print(f"the first {number + 1} of {len(files)} images are enough for a demo", style="yellow")
            break
    if not pixels:
        sys.exit(f"{source} must contain images ({', '.join(sorted(SUFFIXES))}); found none: pass another folder")


class PillowFolder:
    """A typical dataset for DataLoader: open, crop, resize, normalize."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        image = read(self.files[index])
        part = image.crop(self.random_box(image.width, image.height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(part)).permute(2, 0, 1).to(torch.float32).div_(255)
        return pixels.sub_(torch.tensor(MEAN)[:, None, None]).div_(torch.tensor(STD)[:, None, None])

    @staticmethod
    def random_box(width: int, height: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            area, ratio = width * height * random.uniform(0.08, 1), math.exp(random.uniform(-1, 1) * math.log(4 / 3))  # noqa: S311
            wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if wide <= width and high <= height:
                left, top = random.randint(0, width - wide), random.randint(0, height - high)  # noqa: S311
                return left, top, left + wide, top + high
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2


def cpu_seconds() -> float:
    """CPU time of this process and of the workers that have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def measure(epochs: Callable[[], Iterable[Any]]) -> Cost:
    """Iterate over all batches. Creating and closing the loader is included."""
    cpu, start, images = cpu_seconds(), time.perf_counter(), 0
    for batch in epochs():
        images += len(batch)
    return Cost(images, time.perf_counter() - start, cpu_seconds() - cpu)


def with_dataloader(files: list[Path], workers: int) -> Iterable[Any]:
    loader = DataLoader(PillowFolder(files), BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    for _ in range(EPOCHS):
        yield from loader


def with_headrace(dataset: Path, workers: int) -> Iterable[Any]:
    transform = [RandomResizedCrop(SIZE), Normalize(MEAN, STD)]
    output = "numpy" if torch is None else "torch"
    with headrace.Loader(
        dataset, batch_size=BATCH, shuffle=True, transform=transform, num_workers=workers, output=output
    ) as loader:
        for _ in range(EPOCHS):
            yield from (batch["image"] for batch in loader)


def main() -> None:
    """Prepare images, build a dataset, load it with both loaders, compare."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as scratch:
        folder, dataset = Path(scratch, "images"), Path(scratch, "images.hr")
        folder.mkdir()
        if len(sys.argv) > 1:
            take_images(Path(sys.argv[1]), folder)
        else:
            say("making PNGs from the photographs in scikit-image")
            make_images(folder)
        build(folder, dataset)
        costs = {}
        files = sorted(folder.iterdir())
        # The DataLoader runs first, because it forks, and a fork is safe only before threads start.
        if torch is None:
            say("PyTorch is not installed, so DataLoader is not measured; `make demo` installs it")
        else:
            say("loading with DataLoader and Pillow")
            costs["DataLoader + Pillow"] = measure(lambda: with_dataloader(files, workers))
        say("loading with headrace.Loader")
        costs["headrace.Loader"] = measure(lambda: with_headrace(dataset, workers))
    title = f"{EPOCHS} epochs of {len(files)} images, RandomResizedCrop({SIZE}), {workers} workers each"
    console.print(table(costs, title))


def say(text: str) -> None:
    """Print a line. A live display would run in a thread, and its CPU time would be measured too."""
    console.print(text, style="dim", highlight=False)


def build(folder: Path, dataset: Path) -> None:
    """Build the dataset, and compare the pixels of some images with Pillow's."""
    files = sorted(folder.iterdir())
    jpegs = sum(file.suffix.lower() in {".jpg", ".jpeg"} for file in files)
    form = "keep" if 2 * jpegs > len(files) else "hri:fast"
    say(f"headrace build images images.hr --format {form}")
    report = headrace.build(folder, dataset, format=form)
    before = sum(file.stat().st_size for file in files)
    console.print(f"{report.samples} images: {before / 1e6:.1f} MB before, {report.n_bytes / 1e6:.1f} MB as {form}")
    opened = headrace.open(dataset)
    some = range(0, len(files), max(1, len(files) // 8))
    same = [np.array_equal(opened[number]["image"], np.asarray(read(files[number]))) for number in some]
    console.print(f"compared {len(same)} images with Pillow: {sum(same)} have the same pixels", highlight=False)


def read(file: Path) -> Image.Image:
    """Read an image as RGB with Pillow."""
    with Image.open(file) as image:
        return image.convert("RGB")


def table(costs: dict[str, Cost], title: str) -> Table:
    """Return a table of images per second and CPU time."""
    shown = Table(title=title, title_style="bold", title_justify="left", box=box.SIMPLE_HEAD)
    first = next(iter(costs.values()))
    for column in ("", "images/s", "faster", "CPU ms per image", "less CPU"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, cost in costs.items():
        rate, cpu = cost.images / cost.seconds, 1000 * cost.cpu_seconds / cost.images
        faster, less = rate * first.seconds / first.images, first.cpu_seconds / first.images * 1000 / cpu
        shown.add_row(name, f"{rate:.0f}", f"{faster:.1f}x", f"{cpu:.1f}", f"{less:.1f}x")
    return shown


if __name__ == "__main__":
    main()
