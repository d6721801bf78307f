# SPDX-License-Identifier: Apache-2.0
"""Sums and ratios, on figures that can be checked in the head."""

import pytest
from benchmarks._codec.totals import Ratios, Row, ratios, total

PNG_A = Row("a", "png", n_pixels=1_000_000, n_bytes=1000, decode_seconds=0.10, encode_seconds=1.0)
PNG_B = Row("b", "png", n_pixels=3_000_000, n_bytes=3000, decode_seconds=0.30, encode_seconds=3.0)
FAST_A = Row("a", "fast", n_pixels=1_000_000, n_bytes=500, decode_seconds=0.01, encode_seconds=0.1)
FAST_B = Row("b", "fast", n_pixels=3_000_000, n_bytes=2700, decode_seconds=0.01, encode_seconds=0.1)
REFERENCES = {"a": PNG_A, "b": PNG_B}


def test_ratio_of_bytes_is_a_share_and_ratios_of_speed_are_multiples():
    assert ratios(FAST_A, PNG_A) == Ratios(n_bytes=0.5, decode=pytest.approx(10), encode=pytest.approx(10))


def test_sums_are_taken_before_the_ratio():
    """The large image weighs more: 3200 of 4000 bytes, not the mean of 0.5 and 0.9."""
    whole = total([FAST_A, FAST_B], REFERENCES)

    assert whole.n_bytes == 3200
    assert whole.ratios == Ratios(pytest.approx(0.8), pytest.approx(20), pytest.approx(20))
    assert whole.decode_mps == pytest.approx(200)
    assert whole.encode_mps == pytest.approx(20)


def test_mean_of_the_images_own_ratios_stands_beside_it():
    assert total([FAST_A, FAST_B], REFERENCES).mean_ratios == Ratios(
        pytest.approx(0.7), pytest.approx(20), pytest.approx(20)
    )


def test_the_reference_is_one_times_itself():
    assert total([PNG_A, PNG_B], REFERENCES).ratios == Ratios(1, 1, 1)


def test_a_decoder_without_an_encoder_has_no_encode_figures():
    decoder = Row("a", "pyspng", n_pixels=1_000_000, n_bytes=1000, decode_seconds=0.05, encode_seconds=None)
    whole = total([decoder], REFERENCES)

    assert whole.encode_mps is None
    assert whole.ratios == Ratios(1, pytest.approx(2), None)
    assert whole.mean_ratios.encode is None


def test_no_ratio_where_an_image_has_no_reference():
    whole = total([FAST_A, FAST_B], {"a": PNG_A, "b": None})

    assert whole.ratios == Ratios()
    assert whole.decode_mps == pytest.approx(200)


def test_rows_of_two_codecs_do_not_add_up():
    with pytest.raises(ValueError, match=r"rows must be of one codec; got .*fast.*png"):
        total([FAST_A, PNG_B], REFERENCES)
