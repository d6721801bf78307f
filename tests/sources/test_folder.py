# SPDX-License-Identifier: Apache-2.0
"""Folders of images, and class folders."""

from __future__ import annotations

import os
import pickle
import tracemalloc

import numpy as np
import pytest
from tests.sources.pictures import decoded, keys, pixels, png, samples, write

from headrace.errors import BadSource
from headrace.sources import ClassFolderSource, FolderSource


def test_images_come_in_the_order_of_their_paths(tmp_path):
    """By bytes, folders and files alike, whatever the order on disk; other files and hidden ones are passed over."""
    names = ["b.png", "a/2.png", "a/10.png", "a.png", "a-b/x.PNG", "Z.jpeg", "é.png", "a/b/c.webp"]
    write(tmp_path, {name: png(0) for name in names})
    write(tmp_path, {"README.md": b"", ".hidden.png": b"", ".git/x.png": b"", "a/notes.txt": b""})

    assert keys(FolderSource(tmp_path)) == sorted(names, key=str.encode)


def test_pixels_come_as_they_are(tmp_path):
    """Undecoded, with their format and their name."""
    write(tmp_path, {f"{seed}.png": png(seed) for seed in range(3)})
    source = FolderSource(tmp_path)
    found = samples(source)

    assert source.fields == {"image": "image"}
    assert source.classes is None
    assert [sample["image"].format for sample in found] == ["png"] * 3
    assert found[1]["image"].name.endswith("1.png")
    assert all(np.array_equal(decoded(sample["image"]), pixels(seed)) for seed, sample in enumerate(found))
    assert [item.n_bytes for item in source.items()] == [len(png(seed)) for seed in range(3)]


def test_class_folders_are_labelled_in_the_order_of_their_names(tmp_path):
    """As torchvision's ImageFolder does; images beside the folders do not count."""
    write(tmp_path, {"dog/1.png": png(1), "cat/x/0.png": png(0), "Zebra/2.png": png(2), "loose.png": png(3)})
    source = ClassFolderSource(tmp_path)

    assert source.classes == ("Zebra", "cat", "dog")
    assert [(item.key, source.load(item)["label"]) for item in source.items()] == [
        ("Zebra/2.png", 0),
        ("cat/x/0.png", 1),
        ("dog/1.png", 2),
    ]


def test_a_class_without_images_is_an_error(tmp_path):
    """It would shift no label, but it is a mistake."""
    write(tmp_path, {"cat/0.png": png(0), "dog/README": b""})
    with pytest.raises(BadSource, match="dog"):
        keys(ClassFolderSource(tmp_path))


def test_a_folder_without_images_is_an_error(tmp_path):
    """And so is one that does not exist."""
    with pytest.raises(BadSource, match="no images"):
        keys(FolderSource(tmp_path))
    with pytest.raises(BadSource, match="cannot be listed"):
        keys(FolderSource(tmp_path / "missing"))


def test_copies_load_what_the_original_listed(tmp_path):
    """A worker gets a pickle of the source and of the item."""
    write(tmp_path, {"cat/0.png": png(0), "dog/1.png": png(1)})
    source = ClassFolderSource(tmp_path)
    pickled = pickle.dumps((source, list(source.items())))
    copy, items = pickle.loads(pickled)

    assert [copy.load(item)["label"] for item in items] == [0, 1]


def test_listing_streams(tmp_path):
    """Twenty thousand entries: the first comes at once, and what is held does not grow with what was listed."""
    for folder in range(20):
        (tmp_path / f"{folder:02d}").mkdir()
        for number in range(1000):
            (tmp_path / f"{folder:02d}" / f"{number:04d}.png").touch()
    tracemalloc.start()
    listed = 0
    for listed, _ in enumerate(FolderSource(tmp_path).items(), 1):  # noqa: B007 - counted, not kept
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert listed == 20_000
    assert peak < 2_000_000


def test_links_inside_are_followed_and_others_refused(tmp_path):
    """A link may name another file of the source, and nothing else."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    write(root, {"a.png": png(0)})
    write(outside, {"secret.png": png(1)})
    (root / "b.png").symlink_to("a.png")

    assert keys(FolderSource(root)) == ["a.png", "b.png"]
    for target in (outside / "secret.png", "../outside/secret.png", "missing.png"):
        link = root / "c.png"
        link.symlink_to(target)
        with pytest.raises(BadSource, match=r"c\.png"):
            samples(FolderSource(root))
        link.unlink()
    for target in (outside, root):
        link = root / "folder"
        link.symlink_to(target)
        with pytest.raises(BadSource, match="link to a folder"):
            samples(FolderSource(root))
        link.unlink()


def test_a_class_folder_that_is_a_link_is_refused(tmp_path):
    """It could lead anywhere."""
    write(tmp_path, {"root/cat/0.png": png(0), "elsewhere/1.png": png(1)})
    (tmp_path / "root" / "dog").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadSource, match="dog"):
        ClassFolderSource(tmp_path / "root")


def test_pipes_and_folders_named_like_images(tmp_path):
    """A pipe is refused and does not hang; a folder is a folder."""
    write(tmp_path, {"x.png/a.png": png(0)})

    assert keys(FolderSource(tmp_path)) == ["x.png/a.png"]
    os.mkfifo(tmp_path / "y.png")
    with pytest.raises(BadSource, match="pipe"):
        samples(FolderSource(tmp_path))


def test_names_that_are_no_text_are_refused(tmp_path):
    """A key is text."""
    try:
        (tmp_path / os.fsdecode(b"\xff.png")).touch()
    except OSError:
        pytest.skip("this file system refuses such names itself")
    with pytest.raises(BadSource, match="UTF-8"):
        samples(FolderSource(tmp_path))


@pytest.mark.parametrize("change", ["gone", "longer", "shorter", "pipe", "folder"])
def test_files_that_change_after_listing_are_named(tmp_path, change):
    """Whatever happened to them."""
    write(tmp_path, {"a.png": png(0)})
    source = FolderSource(tmp_path)
    (item,) = source.items()
    path = tmp_path / "a.png"
    if change == "longer":
        path.write_bytes(png(0) + b"x")
    elif change == "shorter":
        path.write_bytes(png(0)[:-1])
    else:
        path.unlink()
    if change == "pipe":
        os.mkfifo(path)
    if change == "folder":
        path.mkdir()
    with pytest.raises(BadSource, match=r"a\.png"):
        source.load(item)


def test_an_empty_file_is_named(tmp_path):
    """Downloads that failed leave them."""
    write(tmp_path, {"a.png": b""})
    source = FolderSource(tmp_path)
    (item,) = source.items()
    with pytest.raises(BadSource, match=r"a\.png is empty"):
        source.load(item)
