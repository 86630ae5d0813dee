# SPDX-License-Identifier: BSD-3-Clause
"""The guard on the fast path's instructions: the cases that it accepts, and its output for the
others.
"""

import contextlib
import io

from tests.net.support import case, expect, expect_equal

from lab.bench import instructions

CALLGRIND = """\
fn=(1) worker_round
10 100
+1 20
cfn=(2) drain
calls=5 0
+2 1000
fn=(2)
4 300
fn=(3) 0x0000000000003960
5 7
"""


def compare(found, budget):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        passed = instructions.compare("case", found, budget)
    return passed, said.getvalue()


@case(10)
def more_instructions_than_the_budget_name_the_function_that_grew():
    costs = instructions.self_costs(CALLGRIND)
    expect_equal(costs, {"worker_round": 120, "drain": 300, "0x0000000000003960": 7},
                 "self costs of a callgrind file")
    budget = {"total": 100.0, "functions": {"drain": 60.0, "worker_round": 40.0}}
    passed, _ = compare({"total": 102.9, "functions": {"drain": 62.9, "worker_round": 40.0}},
                        budget)
    expect(passed, "2.9 % over the budget did not pass")
    passed, said = compare({"total": 103.1, "functions": {"drain": 60.0, "worker_round": 43.1}},
                           budget)
    expect(not passed, "3.1 % over the budget passed")
    expect("worker_round: 40.0 -> 43.1" in said and "drain" not in said,
           f"the function that grew is not named: {said}")
    passed, _ = compare({"total": 50.0, "functions": {}}, budget)
    expect(passed, "less than the budget did not pass")
    passed, _ = compare({"total": 50.0, "functions": {}}, None)
    expect(not passed, "a case without a budget passed")
