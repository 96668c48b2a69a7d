/** What a process has used so far. */
export type Cost = ReturnType<typeof measureCost>

/** Measures what this process has used since it started; CPU is user plus system time of all threads. */
export function measureCost() {
  const {userCPUTime, systemCPUTime, maxRSS} = process.resourceUsage()
  return {
    wall_ms: Math.round(performance.now()),
    cpu_ms: Math.round((userCPUTime + systemCPUTime) / 1000),
    peak_rss_mb: Math.round(maxRSS / 1024),
  }
}

/** Prints the cost, with `more`, as the one JSON line that the bench reads. */
export function reportCost(more: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify({...measureCost(), ...more})}\n`)
}
