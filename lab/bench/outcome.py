# SPDX-License-Identifier: BSD-3-Clause
"""The end of each bench that measures in laboratories: its result for people or as JSON, its
errors, its exit status.
"""

import json
import sys

from lab.namespaces import Interrupted, LabError, report_interruption


def outcome(name, options, measure, tell):
    """
    Measures and tells. Returns the exit status: 0 if the result's "ok" is true.

    measure: returns the result, a dictionary with "ok" and "error". tell: prints it for people.
    options: with json, one JSON object and nothing else is printed, also of an error. name: of the
    bench, before an error.
    """
    try:
        result = measure()
    except Interrupted as error:
        return report_interruption(error)
    except (LabError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if options.json:
        print(json.dumps(result))
    elif result["error"]:
        print(f"bench {name}: {result['error']}", file=sys.stderr)
    else:
        tell(result)
    return 0 if result["ok"] else 1
