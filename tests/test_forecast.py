"""When builds are done: pace, earlier builds of the kind, memory, the clock."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import ONE

from build_pytorch.base.errors import BuildPytorchError
from build_pytorch.build.build_backend import Step
from build_pytorch.build.forecast import BuildHistory, forecast
from build_pytorch.build.pace import Duration, Earlier, Pace, is_curve, time_left
from build_pytorch.build.schedule import kind_of
from build_pytorch.cli.forecast_report import document, next_moment
from build_pytorch.matrix import matrix_reader
from build_pytorch.matrix.model import Matrix, Package
from build_pytorch.matrix.selection import core_hours
from build_pytorch.results.evidence import subject_of
from build_pytorch.results.ledger import HOST, AnyEvent, Ended, Started

RECORDED = Path(__file__).with_name("fixtures") / "steps-of-whole-pytorch.txt"
TOTAL = 1559  #: steps of these builds


def recorded(began: str) -> list[int]:
    """The steps that were done in each minute of a real build."""
    lines = RECORDED.read_text().splitlines()
    return next([int(n) for n in line.split()[1:]] for line in lines if line.startswith(began))


def seen(steps: Sequence[int]) -> tuple[Pace, float]:
    """The pace after so many minutes, of which the first step came in the first second."""
    pace = Pace()
    pace.see(1000.0, 1)
    pace.see(1030.0, steps[0] - 3)  # the compiler cache
    for minute, (before, done) in enumerate(pairwise([steps[0] - 3, *steps]), 1):
        if done > before:
            pace.see(1000.0 + 60 * minute, done)
    return pace, 1000.0 + 60 * len(steps)


def minutes(left: Duration | None) -> tuple[int, int]:
    assert left
    return round(left.low / 60), round(left.high / 60)


# --- a build that runs ---


def test_objects_from_a_cache_do_not_set_the_pace() -> None:
    """After a restart, 430 of 433 steps came from the cache. The tool said "about 8:22 left"."""
    steps = recorded("08:34")
    pace, now = seen(steps[:6])
    assert pace.from_cache(now) in range(425, 434)
    low, high = minutes(pace.left(now, TOTAL))
    by_steps = (TOTAL - steps[5]) / ((steps[5] - 433) / 5)
    assert low < by_steps < high < 5 * low


def test_nothing_is_said_until_there_is_a_pace() -> None:
    steps = recorded("08:34")
    for count in range(1, 5):
        pace, now = seen(steps[:count])
        assert pace.left(now, TOTAL) is None


def test_a_pace_that_is_of_no_use_is_not_shown() -> None:
    """Within minutes the load of the machine fell from 18 to 4: two hours, or sixteen."""
    pace, now = seen(recorded("06:35")[:18])
    assert pace.left(now, TOTAL) is None


def test_a_machine_that_does_something_else_has_no_pace() -> None:
    """The builders were stopped for half an hour; the tool said "about 578:42:14 left"."""
    steps = recorded("06:35")
    stopped = steps.index(384)
    pace, now = seen(steps[: stopped + 25])
    assert pace.left(now, TOTAL) is None
    assert pace.silent(now) == pytest.approx(24 * 60, abs=90)
    pace, now = seen(steps)  # it goes on as before
    low, high = minutes(pace.left(now, TOTAL))
    assert 100 < low < high < 600


@pytest.mark.parametrize("ahead", [15, 30])
def test_most_ranges_of_real_builds_hold_what_the_next_minutes_bring(ahead: int) -> None:
    """Asked each minute of two builds, in which the load of the machine changed from 18 to 2."""
    held = []
    for began in ("06:35", "08:34"):
        steps = recorded(began)
        for count in range(5, len(steps) - ahead):
            pace, now = seen(steps[:count])
            then = steps[count + ahead - 1]
            if then != steps[count - 1] and (left := pace.left(now, then)):
                held.append(left.low <= ahead * 60 <= left.high)
    assert len(held) > 40
    assert sum(held) > 0.55 * len(held)


@pytest.mark.parametrize(
    ("elapsed", "before", "left"),
    [
        (60, None, None),  # no data
        (1000, 5000, 4000),  # from an earlier build
        (6000, 5000, 0),  # never less than nothing
    ],
)
def test_before_there_is_a_pace_earlier_builds_say_how_long(
    elapsed: float, before: float | None, left: float | None
) -> None:
    known = Duration(before, before, before) if before else None
    found = time_left(Pace(), 0, 0.0, elapsed, Earlier(known))
    assert (found.likely if found else None) == left


def test_the_more_steps_are_done_the_more_their_pace_counts() -> None:
    pace = Pace()
    for second in range(0, 1001, 10):
        pace.see(second, 1 + second // 2)
    assert pace.from_cache(1000.0) == 1
    before = Duration(3000, 3000, 3000)
    found = time_left(pace, 1002, 1000.0, 1000.0, Earlier(before))
    assert found
    assert found.likely == pytest.approx((1002 + 2000) / 2, rel=0.01)


def test_a_build_that_comes_from_the_cache_alone_is_soon_done() -> None:
    """Of `nox -s whole`, all objects in the cache: at its end the tool said "55:00 left"."""
    pace = Pace()
    for second, done in [(36, 176), (51, 624), (62, 1092), (79, 1405), (160, 1555)]:
        pace.see(second, done)
    before = Earlier(Duration(3500, 5800, 17800))
    found = time_left(pace, TOTAL, 160, 160, before)
    assert found
    assert found.high < 60


HEAVY = range(590, 640)  # files of registered operators


def run_steps(*, slower: int = 1, until: int = TOTAL, begin: int = 0) -> tuple[Pace, float]:
    """A build of TOTAL steps: two seconds each, some half a minute; where it is, and its seconds.

    Steps up to `begin` come from a compiler cache.
    """
    pace, now = Pace(), 0.0
    for step in range(1, until + 1):
        now += 0.01 if step <= begin else slower * (30 if step in HEAVY else 2)
        pace.see(now, step)
    return pace, now


@pytest.mark.parametrize("part", [0.1, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("begin", [0, 300])
def test_heavy_steps_of_an_earlier_build_are_expected(part: float, begin: int) -> None:
    """Without its curve half an hour of heavy steps comes as a surprise."""
    curve = run_steps()[0].curve(TOTAL, hits=0)
    _, end = run_steps(slower=3, begin=begin)
    pace, now = run_steps(slower=3, until=begin + round(part * (TOTAL - begin)), begin=begin)
    left = time_left(pace, TOTAL, now, now, Earlier(None, curve))
    assert left
    assert left.likely == pytest.approx(end - now, rel=0.1)
    assert left.low < end - now < left.high


REAL = RECORDED.with_name("seconds-of-whole-pytorch.txt")


def real_build(name: str, jobs: int, until: float = 1.0) -> tuple[Pace, float, float]:
    """A build of real steps: its pace when that part of its time is over, that time, and all."""
    lines = REAL.read_text().splitlines()
    seconds = next(line.split()[1:] for line in lines if line.startswith(f"{name} "))
    busy, ends = [0.0] * jobs, []
    for word in seconds:
        ends.append(busy[0] + float(word))
        heapq.heapreplace(busy, ends[-1])
    pace, now = Pace(), until * max(ends)
    for done, end in enumerate(sorted(ends), 1):
        if end <= now:
            pace.see(end, done)
    return pace, now, max(ends)


@pytest.mark.parametrize(("part", "wrong"), [(0.25, 0.15), (0.5, 0.15), (0.75, 0.3)])
@pytest.mark.parametrize("jobs", [2, 4, 16])
@pytest.mark.parametrize(("before", "after"), [("avx2", "avx512"), ("avx512", "avx2")])
def test_the_second_build_of_a_kind_knows_how_long_it_takes(
    before: str, after: str, jobs: int, part: float, wrong: float
) -> None:
    """By pace alone it is up to 63 % wrong. Other programs ran beside the first half of avx2."""
    pace, seconds, _ = real_build(before, jobs)
    curve = pace.curve(1560, hits=0)
    pace, now, end = real_build(after, jobs, part)
    earlier = Earlier(Duration(seconds / 1.3, seconds, seconds * 1.3), curve)
    left = time_left(pace, 1560, now, now, earlier)
    assert left
    assert left.likely == pytest.approx(end - now, rel=wrong)
    assert left.low < end - now < left.high < 3 * left.low


def test_only_a_whole_build_that_compiled_by_itself_has_a_curve() -> None:
    pace, seconds = run_steps()
    curve = pace.curve(TOTAL, hits=0)
    assert len(curve) == 100
    assert curve[-1] == pytest.approx(seconds, rel=0.01)
    assert curve[39] - curve[38] > 10 * (curve[2] - curve[1])
    assert len(run_steps(until=TOTAL - 4)[0].curve(TOTAL, hits=0)) == 100  # as in a real build
    assert run_steps(until=TOTAL - 100)[0].curve(TOTAL, hits=0) == ()
    assert run_steps(begin=TOTAL // 2)[0].curve(TOTAL, hits=TOTAL // 2) == ()
    assert Pace().curve(0, hits=0) == ()
    late = Pace()
    for step in range(500, 600):  # nothing was seen of the first 499
        late.see(10.0 * step, step)
    assert is_curve(late.curve(599, hits=0))
    slept, now = run_steps(until=1000)
    for step in range(1001, TOTAL + 1):
        slept.see(now + 36000 + 2 * (step - 1000), step)
    assert slept.curve(TOTAL, hits=0)[-1] == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(
    "curve",
    [
        (1.0,),
        (0.0,) * 100,
        (math.nan,) * 100,
        (*range(99), math.inf),
        (*range(99), 1e308),
        (*[0.0] * 99, 5e-324),
        tuple(range(100, 0, -1)),
    ],
)
def test_a_curve_that_is_none_is_not_used(matrix: Matrix, curve: tuple[float, ...]) -> None:
    one = of(matrix, "cpu-avx2")
    good = tuple(float(n) for n in range(1, 101))
    events = [*build(one, 100, curve=good), *build(one, 100, day=2, curve=curve)]
    assert BuildHistory(events, matrix.packages).curve(subject_of(one), shared=False) == good
    assert BuildHistory(events, matrix.packages).curve(subject_of(one), shared=True) == ()


# --- earlier builds ---


def build(
    package: Package,
    seconds: float,
    *,
    cores: int = 2,
    day: int = 1,
    outcome: str = "built",
    host: str = HOST,
    **fields: object,
) -> Iterator[AnyEvent]:
    """The two events of a build."""
    release, name = subject_of(package)
    common: dict[str, Any] = {"release": release, "variant": name, "digest": "d", "host": host}
    at = datetime(2026, 11, day, tzinfo=UTC).isoformat()
    attempt = f"{name}-{day}-{seconds}"
    yield Started(at=at, attempt=attempt, backend="nix", cores=cores, **common)
    ended: dict[str, Any] = {"steps": 1559, "outcome": outcome, **fields}
    yield Ended(at=at, attempt=attempt, seconds=seconds, **common, **ended)


def of(matrix: Matrix, id_: str) -> Package:
    return next(package for package in matrix.packages if package.id == id_)


def expected(
    matrix: Matrix, events: Sequence[AnyEvent], id_: str, cores: int = 2, *, shared: bool = False
) -> tuple[Duration, str] | None:
    history = BuildHistory(events, matrix.packages)
    return history.duration(subject_of(of(matrix, id_)), cores, shared=shared)


def test_a_build_takes_as_long_as_those_of_its_release_and_kind(matrix: Matrix) -> None:
    one = of(matrix, "cpu-avx2")
    events = [event for day, s in enumerate((40, 50, 60), 1) for event in build(one, s, day=day)]
    found = expected(matrix, events, "cpu-avx512")
    assert found
    assert found[0].likely == 50
    assert found[0].low <= 40
    assert found[0].high >= 60
    assert found[1] == "3 builds of its kind"
    assert expected(matrix, events, "sm90-avx2") is None
    assert expected(matrix, events, "cpu-avx2+torchvision") is None
    assert expected(matrix, events, "cpu-avx2", shared=True) is None


@pytest.mark.parametrize(
    "fields",
    [{"steps": 0}, {"outcome": "failed"}, {"outcome": "interrupted"}, {"seconds": 1e99}],
)
def test_what_built_nothing_or_is_a_mistake_does_not_count(
    matrix: Matrix, fields: dict[str, object]
) -> None:
    values = {"seconds": 30.0, **fields}
    events = list(build(of(matrix, "cpu-avx2"), **values))  # type: ignore[arg-type]
    assert expected(matrix, events, "cpu-avx2") is None


def test_other_cores_and_machines_count_where_there_is_nothing_better(matrix: Matrix) -> None:
    one = of(matrix, "cpu-avx2")
    other = list(build(one, 100, cores=16, host="server"))
    found = expected(matrix, other, "cpu-avx2", cores=2)
    assert found
    assert found[0].likely == 800
    assert found[0].high > 1.9 * found[0].likely
    assert found[1].endswith("on another machine or with other --cores")
    found = expected(matrix, [*other, *build(one, 700)], "cpu-avx2", cores=2)
    assert found
    assert (found[0].likely, found[1]) == (700, "1 build of its kind")


def test_objects_of_a_compiler_cache_are_no_work(matrix: Matrix) -> None:
    """A build that went on after an interruption found half of its objects."""
    one = of(matrix, "cpu-avx2")
    half = list(build(one, 500, cache_hits=500, cache_misses=500))
    found = expected(matrix, half, "cpu-avx2")
    assert found
    assert (found[0].low, found[0].likely) == (500, 1000)
    cached = [event for day in (2, 3, 4) for event in build(one, 60, day=day, cache_hits=999)]
    found = expected(matrix, [*half, *cached], "cpu-avx2")
    assert found
    assert (found[0].likely, found[0].high) == (60, 1000)
    assert found[1] == "3 builds of its kind, most of it from a compiler cache"


def a_step(package: Package, *needs: str) -> Step:
    return Step(package=package, action="build", reason="", digest="d", needs=needs)


def test_the_end_is_that_of_the_schedule_with_so_many_builders(matrix: Matrix) -> None:
    ids = ("cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "cpu-avx2+torchvision")
    avx2, avx512, bf16, vision = (of(matrix, id_) for id_ in ids)
    steps = [a_step(avx2), a_step(avx512), a_step(bf16), a_step(vision, avx2.attribute)]
    events = [*build(avx2, 3600), *build(vision, 600)]
    found = forecast(BuildHistory(events, matrix.packages), steps, 2, 2, {})
    # The canary is alone; its companion and a sibling follow, then the other sibling.
    ends = {build.step.id: build.end.likely for build in found.builds}
    assert list(ends) == ["cpu-avx2", "cpu-avx2+torchvision", "cpu-avx512", "cpu-avx512bf16"]
    assert list(ends.values()) == [3600, 4200, 7200, 7800]
    assert found.end.likely == 7800
    assert found.critical_path == ["cpu-avx2", "cpu-avx2+torchvision", "cpu-avx512bf16"]
    assert found.end.low < 7800 < found.end.high
    one = forecast(BuildHistory(events, matrix.packages), steps, 2, 1, {})
    assert one.end.likely == 3 * 3600 + 600


def test_without_a_build_the_estimate_of_the_matrix_counts_and_is_called_so(
    matrix: Matrix,
) -> None:
    variant, vision = of(matrix, "cpu-avx2"), of(matrix, "cpu-avx2+torchvision")
    steps = [a_step(variant), a_step(vision, variant.attribute)]
    found = forecast(BuildHistory([], matrix.packages), steps, 4, 1, {variant.attribute: 5.4})
    first, second = found.builds
    assert first.seconds == Duration(2430, 4860, 9720)
    assert first.reason == "no build recorded; estimate of matrix.toml"
    assert (second.seconds, second.reason) == (None, "no build recorded, counts as no time")


def test_the_end_of_30_replayed_builds_is_right_within_10_percent(matrix: Matrix) -> None:
    """Each is made of ten-minute pieces of a real build, on a machine with a load of 2 to 18."""
    chance = random.Random(1)
    kinds = [("cpu-avx2", 1.0), ("sm90-avx2", 2.1), ("sm110-armv9", 1.8)]
    events: list[AnyEvent] = []
    errors = []
    held = 0
    for number in range(30):
        id_, work = kinds[number % 3]
        actual = 60.0 * replayed(chance, TOTAL * work)
        history = BuildHistory(events, matrix.packages)
        found = forecast(history, [a_step(of(matrix, id_))], 2, 1, {})
        if number >= 9:
            errors.append(abs(found.end.likely - actual) / actual)
            held += found.end.low <= actual <= found.end.high
        events += build(of(matrix, id_), actual, day=1 + number // 3)
    assert len(errors) == 21
    assert statistics.median(errors) <= 0.1
    assert held >= 19


def replayed(chance: random.Random, steps: float) -> int:
    """The minutes that a build with so many steps takes, from minutes of the real ones."""
    builds = [recorded(began) for began in ("06:35", "08:34")]
    counts = [after - before for steps in builds for before, after in pairwise(steps)]
    # Without the half hour for which the build was stopped.
    moving = [n for i, n in enumerate(counts) if any(counts[max(0, i - 5) : i + 5])]
    done, took = 0, 0
    while done < steps:
        begin = chance.randrange(len(moving) - 10)
        done += sum(moving[begin : begin + 10])
        took += 10
    return took


# --- memory ---

GIB = 1 << 30


def test_compile_jobs_follow_from_the_memory_that_builds_needed(matrix: Matrix) -> None:
    one = of(matrix, "cpu-avx2")
    assert one.variant.build.cores(32, cpus=64) == 13
    events = list(build(one, 100, cores=4, peak_memory=4 * GIB))
    limits, note = BuildHistory(events, matrix.packages).limits(of(matrix, "cpu-avx512"), 32)
    assert (limits.job_memory, limits.cores(32, cpus=64), note) == (1.0, 30, "")
    other, _ = BuildHistory(events, matrix.packages).limits(of(matrix, "sm90-avx2"), 32)
    assert other == matrix.variants[0].release.build


def test_a_variant_without_a_gpu_needs_less_where_the_matrix_says_so(matrix: Matrix) -> None:
    gpu, cpu = of(matrix, "sm90-avx2").variant.build, of(matrix, "cpu-avx2").variant.build
    assert (gpu.job_memory, gpu.disk) == (5, 60)
    assert (cpu.job_memory, cpu.disk) == (2.2, 10)
    same = matrix_reader.parse(ONE.replace("cpu_only = { job_memory = 2.2, disk = 10 }", ""))
    assert of(same, "cpu-avx2").variant.build == of(same, "sm90-avx2").variant.build


def test_the_estimate_without_a_gpu_leaves_out_cuda(matrix: Matrix) -> None:
    work, (gpu, cpu) = matrix.work, (of(matrix, f"{g}-avx2").variant for g in ("sm90", "cpu"))
    assert work
    whole = gpu.build.core_hours
    assert core_hours(gpu, work) == pytest.approx(whole)
    assert core_hours(cpu, work) == pytest.approx(
        whole * (work.cpu_only_cxx.share + work.link.share)
    )
    assert core_hours(cpu, None) == whole


def test_a_mean_of_many_jobs_is_not_the_need_of_few(matrix: Matrix) -> None:
    """Twelve jobs needed 2 GiB each on average; one of them may need 5."""
    events = list(build(of(matrix, "sm90-avx2"), 100, cores=12, peak_memory=24 * GIB))
    limits, _ = BuildHistory(events, matrix.packages).limits(of(matrix, "sm90-avx2"), 16)
    assert limits == of(matrix, "sm90-avx2").variant.build


@pytest.mark.parametrize("peak", [0, -5, 2**63 - 1])
def test_an_unknown_peak_leaves_the_formula(matrix: Matrix, peak: int) -> None:
    events = list(build(of(matrix, "cpu-avx2"), 100, cores=4, peak_memory=peak))
    limits, _ = BuildHistory(events, matrix.packages).limits(of(matrix, "cpu-avx2"), 32)
    assert limits == of(matrix, "cpu-avx2").variant.build


def test_a_build_that_ran_out_of_memory_is_remembered_until_one_did_not(matrix: Matrix) -> None:
    one, cause = of(matrix, "sm90-avx2"), "out-of-memory"
    failed = list(build(one, 9, cores=6, outcome="failed", cause=cause, peak_memory=31 * GIB))
    limits, note = BuildHistory(failed, matrix.packages).limits(of(matrix, "sm90-avx512"), 32)
    assert limits.cores(32, cpus=64) == 3
    assert note == "memory: 6 compile jobs needed too much on 2026-11-01: 3 now"
    fewer = [*failed, *build(one, 100, cores=3, day=2)]
    assert BuildHistory(fewer, matrix.packages).limits(one, 32)[0].max_jobs == 3
    as_many = [*fewer, *build(one, 100, cores=6, day=3)]
    assert BuildHistory(as_many, matrix.packages).limits(one, 32)[1] == ""


def test_a_build_that_was_killed_with_memory_to_spare_did_not_need_too_much(
    matrix: Matrix,
) -> None:
    one = of(matrix, "cpu-avx2")
    killed = build(one, 926, outcome="failed", cause="killed", peak_memory=1288966144)
    assert BuildHistory(killed, matrix.packages).limits(one, 23)[1] == ""


# --- the clock ---


def test_until_is_the_next_time_that_the_clock_shows_it() -> None:
    now = datetime(2026, 11, 23, 17, 30, tzinfo=UTC)
    assert next_moment("08:00", now) == now + timedelta(hours=14, minutes=30)
    assert next_moment("17:45", now) == now + timedelta(minutes=15)
    assert next_moment("17:30", now) == now + timedelta(days=1)
    assert next_moment("", now) is None


def test_programs_read_what_has_ended_at_that_time(matrix: Matrix) -> None:
    ids = ("cpu-avx2", "cpu-avx512", "cpu-avx512bf16")
    steps = [a_step(of(matrix, id_)) for id_ in ids]
    events = list(build(of(matrix, "cpu-avx2"), 3600))
    found = forecast(BuildHistory(events, matrix.packages), steps, 2, 1, {})
    now = datetime(2026, 11, 23, 17, 30, tzinfo=UTC)
    until = document(found, now, now + timedelta(hours=2.5)).until
    assert msgspec.to_builtins(until) == {
        "time": "2026-11-23T20:00+00:00",
        "built": ["cpu-avx2", "cpu-avx512"],
        "at_any_rate": ["cpu-avx2"],
        "rest": ["cpu-avx512bf16"],
    }
    assert b"until" not in msgspec.json.encode(document(found, now, None))


@pytest.mark.parametrize(
    "text", ["8", "24:00", "08:60", "8am", "08:00:00", "\u0660\u0668:\u0660\u0660", "-1:00"]
)
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(BuildPytorchError, match="--until"):
        next_moment(text, datetime.now(UTC))


def test_a_kind_is_a_release_a_group_and_a_companion(matrix: Matrix) -> None:
    assert kind_of(of(matrix, "cpu-avx2")) == kind_of(of(matrix, "cpu-avx512"))
    different = ("cpu-avx2", "cpu-avx2+torchvision", "sm90-avx2", "sm110-armv9")
    assert len({kind_of(of(matrix, id_)) for id_ in different}) == 4
