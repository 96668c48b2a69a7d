/** What a process has used so far. */
export interface Cost {
  wall_ms: number
  /** User and system, all threads. */
  cpu_ms: number
  peak_rss_mb: number
}

/** What this process has used since it started. */
export function measureCost(): Cost {
  const {userCPUTime, systemCPUTime, maxRSS} = process.resourceUsage()
  return {
    wall_ms: Math.round(performance.now()),
    cpu_ms: Math.round((userCPUTime + systemCPUTime) / 1000),
    peak_rss_mb: Math.round(maxRSS / 1024),
  }
}

/** Prints the cost as the one line the bench reads. */
export function reportCost(more: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify({...measureCost(), ...more})}\n`)
}
