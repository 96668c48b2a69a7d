"""Runs a command to its end and prints what it and its children used, as one line of JSON.

The command's own output goes to stderr. Memory is that of the largest process among them.
"""

import json
import os
import subprocess
import sys
import time

started = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, usage = os.wait4(child.pid, 0)
wall_ms = round((time.perf_counter() - started) * 1000)
# macOS counts bytes, Linux kilobytes.
unit = 1024 * 1024 if sys.platform == "darwin" else 1024
print(
    json.dumps(
        {
            "exit_code": os.waitstatus_to_exitcode(status),
            "wall_ms": wall_ms,
            "cpu_ms": round((usage.ru_utime + usage.ru_stime) * 1000),
            "peak_rss_mb": round(usage.ru_maxrss / unit),
        }
    )
)
