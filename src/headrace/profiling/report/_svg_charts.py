# SPDX-License-Identifier: Apache-2.0
"""The smaller charts: bars side by side, speed-up by cores, shares of a whole, a map of configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.profiling._measurements import Rate, WhatIfPoint
from headrace.profiling.report._svg import WIDE_LETTER, Drawing, shortened, spread
from headrace.units import bytes_text, cores_text, number_text, percent_text, rate_text, seconds_text


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its length, what is written behind the name, and how it is painted."""

    name: str
    value: float
    note: str = ""
    kind: str = "bar"


def bar_chart(bars: Sequence[Bar], width: float, label: str, *, line: tuple[str, float] | None = None) -> str:
    """Bars below each other, each under its name; `line` is a name and a value that runs across them all."""
    pitch, top = 40.0, 24.0 if line else 4.0
    drawing = Drawing(width, top + pitch * len(bars) + 4, label)
    full = max([bar.value for bar in bars] + ([line[1]] if line else [])) or 1.0
    for number, bar in enumerate(bars):
        y = top + number * pitch
        length = (width - 2) * bar.value / full
        value = number_text(bar.value) + (f"  {bar.note}" if bar.note else "")
        drawing.text(0, y + 13, shortened(bar.name, width - WIDE_LETTER * len(value) - 8), "stage")
        drawing.text(width, y + 13, value, "value", anchor="end")
        drawing.rect(0, y + 19, max(length, 1.5), 13, bar.kind, tip=f"{bar.name}: {rate_text(bar.value)} {bar.note}")
        if line:
            x = (width - 2) * line[1] / full
            drawing.line(x, y + 16, x, y + 35, "tick")  # beside the words, not through them
    if line:
        drawing.line(0, 9, 14, 9, "tick")
        drawing.text(20, 13, f"{line[0]} {number_text(line[1])}", "muted")
    return drawing.render()


def share_chart(parts: Mapping[str, float], texts: Mapping[str, str], width: float, label: str) -> str:
    """One bar cut in parts, and a legend that names each with its text; the parts differ by pattern too."""
    total = sum(parts.values()) or 1.0
    shown = [name for name, value in parts.items() if value > 0]
    drawing = Drawing(width, 40 + 22 * len(shown), label)
    x = 0.0
    for number, name in enumerate(shown):
        length = width * parts[name] / total
        kind = f"part part-{number % 6}"
        drawing.rect(x, 2, max(length - 1.5, 0.8), 26, kind, tip=f"{name}: {texts[name]}")
        y = 40 + 22 * number
        drawing.rect(0, y, 12, 12, kind)
        drawing.text(20, y + 11, shortened(name, width - 150), "stage")
        drawing.text(width, y + 11, f"{texts[name]}, {percent_text(parts[name] / total)}", "value", anchor="end")
        x += length
    return drawing.render()


def scaling_chart(curves: Mapping[str, Sequence[Rate]], width: float) -> str:
    """Speed-up over one core by number of cores; the dashed line is what no loss would give."""
    left, right, top, bottom = 32.0, 146.0, 34.0, 40.0
    height = 300.0 if width > 400 else 280.0
    drawing = Drawing(width, height, "Speed-up of each stage by number of cores")
    most = max(point.cores for curve in curves.values() for point in curve)
    speeds = {name: _speed_ups(curve) for name, curve in curves.items()}
    full = max(most, *(value for points in speeds.values() for _, value in points)) * 1.02

    def place(cores: float, speed: float) -> tuple[float, float]:
        x = left + (width - left - right) * (cores - 1) / max(most - 1, 1)
        return x, height - bottom - (height - top - bottom) * speed / full

    for count in _axis(curves, 26 * most / (width - left - right)):
        drawing.line(left, place(1, count)[1], width - right, place(1, count)[1], "grid")
        drawing.text(left - 7, place(1, count)[1] + 4, f"{count}x", "muted", anchor="end")
        drawing.text(place(count, 0)[0], height - bottom + 18, f"{count}", "muted", anchor="middle")
    drawing.text((left + width - right) / 2, height - 4, "cores", "muted", anchor="middle")
    drawing.path([place(1, 1), place(most, most)], "ideal", tip="no loss")
    drawing.path([(left, 10), (left + 24, 10)], "ideal")
    drawing.text(left + 31, 14, "no loss", "muted")
    ends = [place(*points[-1])[1] for points in speeds.values()]
    labels = spread(ends, 32, top + 8, height - bottom - 16)
    for number, (name, points) in enumerate(speeds.items()):
        kind = f"series series-{number % 6}"
        drawing.path([place(*point) for point in points], f"{kind} stroke")
        rates = {point.cores: point.rate for point in curves[name]}
        for cores, speed in points:
            tip = f"{name}, {cores:g} cores: {rate_text(rates[int(cores)])}, {speed:.2f} times one core"
            drawing.mark(*place(cores, speed), number, f"{kind} point", tip=tip)
        end_cores, end_speed = points[-1]
        x, y = width - right + 34, labels[number]
        drawing.line(place(*points[-1])[0] + 6, ends[number], x - 15, y - 3, "leader")
        drawing.mark(x - 9, y - 3, number, f"{kind} point")
        drawing.text(x, y + 1, shortened(name, right - 34), "stage")
        loss = 1 - (end_speed / points[0][1]) / (end_cores / points[0][0])
        words = f"{percent_text(max(loss, 0.0))} lost" if len(points) > 1 else "one point"
        drawing.text(x, y + 15, f"{end_speed:.1f}x, {words}", "muted")
    return drawing.render()


def _speed_ups(curve: Sequence[Rate]) -> list[tuple[float, float]]:
    """Cores and rate over that of one core; of a curve that starts later, over its first point's share."""
    points = sorted(curve, key=lambda point: point.cores)
    one = points[0].rate / points[0].cores
    return [(float(point.cores), point.rate / one) for point in points]


def _axis(curves: Mapping[str, Sequence[Rate]], gap: float) -> list[int]:
    """Numbers of cores to write at the axes: the ends, and between them what is `gap` apart."""
    cores = sorted({point.cores for curve in curves.values() for point in curve})
    kept: list[int] = []
    for number in reversed(cores):
        if not kept or kept[-1] - number >= gap:
            kept.append(number)
    return [*kept[:-1], cores[0]] if len(kept) > 1 else kept


def map_chart(points: Sequence[WhatIfPoint], best: WhatIfPoint | None, width: float) -> str:
    """Cores across, storage up; a cell has the rate and is the darker the busier the accelerator."""
    cores = sorted({point.cores for point in points})
    storage = sorted({point.storage_rate for point in points}, reverse=True)
    cells = {(point.cores, point.storage_rate): point for point in points}
    left, top, bottom, pitch = 74.0, 4.0, 40.0, 34.0
    drawing = Drawing(width, top + pitch * len(storage) + bottom, "Predicted images a second by cores and storage")
    wide = (width - left) / len(cores)
    for row, speed in enumerate(storage):
        y = top + row * pitch
        drawing.text(left - 8, y + pitch / 2 + 4, f"{bytes_text(speed)}/s", "muted", anchor="end")
        for column, number in enumerate(cores):
            if (number, speed) not in cells:
                continue
            point, x = cells[number, speed], left + column * wide
            heat = min(4, int(point.busy * 5 * 0.9999))
            drawing.rect(x + 1, y + 1, wide - 2, pitch - 2, f"heat heat-{heat}", tip=_cell_tip(point))
            words = _fitting(point.rate, wide - 3)
            drawing.text(x + wide / 2, y + pitch / 2 + 4, words, f"on-heat heat-word-{heat}", anchor="middle")
    if best is not None:
        x, y = left + cores.index(best.cores) * wide, top + storage.index(best.storage_rate) * pitch
        drawing.rect(x + 2, y + 2, wide - 4, pitch - 4, "best", tip=f"cheapest: {_cell_tip(best)}")
    ground = top + pitch * len(storage)
    for column, number in enumerate(cores):
        if wide >= 24 or column % 2 == 0:
            drawing.text(left + (column + 0.5) * wide, ground + 16, f"{number:g}", "muted", anchor="middle")
    drawing.text(left + (width - left) / 2, ground + 34, "cores", "muted", anchor="middle")
    return drawing.render()


def _fitting(rate: float, width: float) -> str:
    """A rate as exact as a cell has room for; nothing where it has room for nothing."""
    choices = [number_text(rate), f"{rate:.1f}", f"{rate:.0f}", f"{rate / 1e3:.1f}k", f"{rate / 1e3:.0f}k"]
    return next((words for words in choices if words != "0" and _bold_width(words) <= width), "")


def _bold_width(words: str) -> float:
    return sum(WIDE_LETTER / 2 if letter in ",." else WIDE_LETTER for letter in words)


def _cell_tip(point: WhatIfPoint) -> str:
    words = f"{cores_text(point.cores)}, {bytes_text(point.storage_rate)}/s, step {seconds_text(point.step)}: "
    words += f"{rate_text(point.rate)}, accelerator busy {percent_text(point.busy)}"
    if point.binds:
        words += f", bound by {' and '.join(point.binds)}"
    if point.shares:
        words += ", " + " + ".join(f"{percent_text(share)} {name}" for name, share in point.shares.items() if share > 0)
    if point.dollars_per_hour is not None:
        words += f", {point.dollars_per_hour:.2f} an hour"
    if point.images_per_dollar is not None:
        words += f", {number_text(point.images_per_dollar)} images for 1"
    return words
