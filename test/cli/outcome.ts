import {expect} from 'vitest'
import {z} from 'zod'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {anyRow} from '../support/data.ts'
import type {Ended} from '../support/lab.ts'

const failureSchema = z.strictObject({
  error: z.strictObject({
    code: z.string(),
    exit_code: z.number(),
    message: z.string(),
    details: z.unknown().optional(),
  }),
})

/** Parses the one JSON object that a process printed. */
export function readJson({stdout, stderr}: Ended): Record<string, unknown> {
  expect(stdout.trim().split('\n'), stderr).toHaveLength(1)
  return z.record(z.string(), z.unknown()).parse(JSON.parse(stdout))
}

/** Parses the failure that a process started with `--json` reports; expects the same words on stderr. */
export function readFailure(ended: Ended) {
  const {error} = failureSchema.parse(readJson(ended))
  expect(ended.code).toBe(error.exit_code)
  expect(ended.stderr).toContain(`loantape: ${error.message} [${error.code}]`)
  return {code: error.code, exitCode: error.exit_code, message: error.message, details: error.details}
}

/**
 * Expects a command line with `--json` to be refused.
 *
 * @param words of its message
 * @param exitCode 2, usage or settings, by default
 */
export async function expectRefused(
  ended: Ended | Promise<Ended>,
  code: string,
  words: string | RegExp | readonly (string | RegExp)[] = [],
  exitCode = 2,
) {
  const failure = readFailure(await ended)
  expect([failure.code, failure.exitCode], failure.message).toEqual([code, exitCode])
  for (const said of [words].flat()) expect(failure.message).toMatch(said)
  return failure
}

/** Reads what readers see of a data folder: the current release and its totals. */
export async function readStanding(folder: DataFolder) {
  const release = requireRelease(folder)
  await using db = await openRelease(release)
  const summary = await db.all(anyRow, 'from mart.portfolio_summary')
  return {releaseId: release.manifest.release_id, summary}
}
