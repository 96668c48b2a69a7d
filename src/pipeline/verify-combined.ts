import type {CombinedTotal} from '../clickhouse/combined.ts'
import type {Config} from '../config.ts'
import type {World} from '../types.ts'
import {clickhouseOf} from './publish.ts'
import {readSources} from './sources.ts'

/** What lenders are together, held against what each of them says. */
export interface CombinedVerification {
  server: string
  /** Each column that adds up. */
  totals: CombinedTotal[]
  differing: number
}

/**
 * Compares every column that adds up over all lenders with the sum of what each has published.
 *
 * @throws ConfigError `CONFIG_MISSING`; what the connection throws
 */
export async function verifyCombined(config: Config, {signal}: World): Promise<CombinedVerification> {
  const request = clickhouseOf(config)
  // Only here: every command would take longer to start.
  const {openSession} = await import('../clickhouse/session.ts')
  const {compareTotals} = await import('../clickhouse/combined.ts')
  await using session = openSession(request, signal)
  const totals = await compareTotals(session, readSources(config, []).models)
  return {
    server: session.server,
    totals,
    differing: totals.filter(({together, sum}) => together !== sum).length,
  }
}
