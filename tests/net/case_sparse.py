# SPDX-License-Identifier: BSD-3-Clause
"""Sparse allreduces by the real programs: exact with every handler that has them, also under loss, and refused by name where there are none."""

from support import KIB, MIB, case, expect, expect_equal, reports_of, run_exact_job, running_lab, start_ranks

HANDLERS = ("sparse-array", "sparse-hash", "sparse")
PATTERNS = ("uniform", "clustered", "same", "disjoint")
LOSS = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5}, "limits": {"max_jobs": 1, "slots": 2080}}


def limits():
    return {key: value for key, value in LOSS.items() if key == "limits"}


@case(120)
def sparse_vectors_are_exact_with_every_handler():
    with running_lab(3, config=limits()) as lab:
        for handler in HANDLERS:
            for number, pattern in enumerate(PATTERNS):
                density = (0.3, 0.05, 0.01, 0.001)[number]
                reports = run_exact_job(lab, f"{handler}, {pattern}", handler=handler, sparse=True, density=density, pattern=pattern,
                                        bytes=MIB, iters=2)
                for report in reports:
                    sparse = report["sparse"]
                    expect(0.7 * density < sparse["density_in"] < 1.3 * density, f"{handler}, {pattern}: {sparse}")
                    expect(sparse["density_in"] <= sparse["density_out"] < 3.5 * density, f"{handler}, {pattern}: {sparse}")
                    expect_equal(sparse["dense_bytes"], 2 * MIB, "what dense blocks would have taken")
                    # Indices of 2 bytes with each value of 4.
                    expect(sparse["bytes_sent"] < 2 * density * sparse["dense_bytes"] + 64 * KIB, f"{handler}, {pattern}: {sparse}")


@case(120)
def sparse_vectors_are_exact_under_loss():
    with running_lab(3, config=LOSS) as lab:
        for handler in HANDLERS:
            reports = run_exact_job(lab, f"{handler} under loss", handler=handler, sparse=True, density=0.2, bytes=MIB, iters=2)
            expect(any(report["retransmits"] for report in reports), f"{handler}: nothing was lost")
            run_exact_job(lab, f"{handler} under loss, dense", handler=handler, bytes=MIB)


@case()
def jobs_without_sparse_blocks_say_so():
    with running_lab(2) as lab:
        job = lab.create_job(None, "--handler", "single")
        for report in reports_of(lab, start_ranks(lab, job, sparse=True)):
            expect_equal(report["error"]["code"], "unsupported", "the error")
            expect("handler single has no allreduce_sparse" in report["error"]["message"], report["error"]["message"])


@case(120)
def dense_vectors_that_may_be_sparse_take_the_shorter_way():
    with running_lab(3, config=LOSS) as lab:
        # 90 % of three ranks' values fill the result.
        for density, taken in ((0.02, 2), (0.9, 0)):
            for report in run_exact_job(lab, f"density {density}", handler="sparse", maybe_sparse=True, density=density, bytes=MIB, iters=2,
                                        in_place=True):
                sparse = report["sparse"]
                expect_equal((sparse["maybe_sparse"], sparse["maybe_sparse_taken"]), (2, taken), f"calls at density {density}")
                expect_equal(sparse["dense_bytes"], taken * MIB, "what dense blocks would have taken")
        # Where nothing sparse can be carried the hint is ignored.
        for report in run_exact_job(lab, "a dense job", maybe_sparse=True, density=0.02, bytes=MIB):
            expect_equal(report["sparse"]["maybe_sparse"], 0, "calls that could be sparse ones")
