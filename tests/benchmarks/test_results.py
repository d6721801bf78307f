# SPDX-License-Identifier: Apache-2.0
"""Results are read back as written, one measurement per line."""

import json

import pytest

from benchmarks import results


def test_what_is_written_is_read_again(tmp_path):
    document = {"benchmark": "codec", "rows": [{"image": f"{index}.png", "n_bytes": index} for index in range(50)]}
    path = tmp_path / "new" / "codec.json"
    results.write(path, document)

    assert results.read(path) == document


def test_a_row_stands_on_one_line():
    rows = [{"image": f"{index}.png", "seconds": 0.123456789} for index in range(10)]
    lines = results.dumps({"rows": rows}).splitlines()

    assert '  {"image": "3.png", "seconds": 0.123457},' in lines
    assert json.loads("\n".join(lines))["rows"][9]["image"] == "9.png"


def test_another_file_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("[]")

    with pytest.raises(ValueError, match=r"other\.json must be the result of a benchmark"):
        results.read(tmp_path / "other.json")


def test_missing_results_are_an_error_that_says_how_to_make_them(tmp_path):
    with pytest.raises(ValueError, match=r"codec\.json does not exist; `python benchmarks/codec\.py"):
        results.read(tmp_path / "codec.json")
