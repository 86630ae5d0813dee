# SPDX-License-Identifier: BSD-3-Clause
"""The end of each bench that measures in laboratories: prints its result as text or as JSON, prints
its errors, and sets the exit status.
"""

import json
import sys

from lab.namespaces import Interrupted, LabError, report_interruption


def outcome(name, options, measure, tell):
    """
    Measures, and prints the result. Returns the exit status: 0 if the result's "ok" is true.

    measure: returns the result, a dictionary with "ok" and "error". tell: prints it as text.
    options: with json, only one JSON object is printed, even for an error. name: of the bench,
    printed before an error.
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
