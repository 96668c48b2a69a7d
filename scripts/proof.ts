import {readFileSync} from 'node:fs'
import {parseArgs} from 'node:util'
import {proveChurn} from '../test/proof/churn.ts'
import {proveCombined} from '../test/proof/combined.ts'
import {PAGES_PER_RUN, proveFuzz} from '../test/proof/fuzz.ts'
import {proveJournal} from '../test/proof/journal.ts'
import {proveKill} from '../test/proof/kill.ts'
import {proveKillWrites} from '../test/proof/kill-writes.ts'
import {proveMoney} from '../test/proof/money.ts'
import {proveNights} from '../test/proof/nights.ts'
import {proveNthAnswer} from '../test/proof/nth-answer.ts'
import {proveNthFile} from '../test/proof/nth-file.ts'
import type {Proof} from '../test/proof/proof.ts'
import {PORTFOLIO_TABLES} from '../test/proof/quick-world.ts'
import {proveStores} from '../test/proof/stores.ts'
import {proveWorld, replayStory} from '../test/proof/world.ts'

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    runs: {type: 'string'},
    length: {type: 'string', default: 'whole'},
    seeds: {type: 'string'},
    days: {type: 'string'},
    story: {type: 'string'},
    shrink: {type: 'string', default: '180'},
    seed: {type: 'string'},
    first: {type: 'string'},
  },
})
/** As many as there are cases. */
const ALL = Number.MAX_SAFE_INTEGER

/**
 * The middle length is the gate's: always the same cases, in which nothing depends on how fast the machine is. Of the seed of
 * `npm test` it leaves out the first runs, which are tested there.
 */
const isMiddle = values.length === 'middle'
const seed = values.seed ?? (isMiddle ? '2026' : String(Date.now()))
const days = values.days ?? (isMiddle ? '8' : '30')

/** Fewer tables of releases, in the middle length. */
const few = isMiddle ? {tables: PORTFOLIO_TABLES} : {}
const shrinkMs = isMiddle ? 0 : Number(values.shrink) * 1000

/**
 * Every proof with its runs in the middle and in the whole length; what a run is, each proof says, and some have no more than
 * their cases. The first `tested` runs are those of `npm test`.
 */
const PROOFS: Record<string, {prove: Proof; tested?: number; middle: number; whole: number}> = {
  kill: {
    prove: (request) => proveKill({...request, ...few, ...(isMiddle && {randomKills: 0})}),
    middle: 2,
    whole: 77,
  },
  'kill-writes': {
    prove: (request) =>
      proveKillWrites({...request, ...(isMiddle && {deeds: ['batch issued', 'gone on', 'tapes pruned']})}),
    middle: 6,
    whole: ALL,
  },
  'nth-answer': {prove: proveNthAnswer, tested: 2, middle: 4, whole: ALL},
  'nth-file': {prove: (request) => proveNthFile({...request, ...few}), tested: 1, middle: 3, whole: ALL},
  churn: {prove: proveChurn, tested: 2, middle: 2, whole: 167},
  fuzz: {prove: proveFuzz, tested: 1, middle: 2, whole: 100_000 / PAGES_PER_RUN},
  money: {prove: proveMoney, tested: 1, middle: 1, whole: 100},
  journal: {prove: proveJournal, tested: 1, middle: 1, whole: 60},
  nights: {prove: proveNights, middle: 1, whole: 100},
  stores: {prove: proveStores, middle: 20, whole: ALL},
  // The gate tries it with the programs of the system.
  combined: {prove: proveCombined, middle: 0, whole: 120},
  // The seeds of `world` are its runs: a run is a story.
  world: {
    prove: (request) =>
      values.story === undefined
        ? proveWorld({...request, days: Number(days), shrinkMs})
        : replayStory(JSON.parse(readFileSync(values.story, 'utf8'))),
    middle: 1,
    whole: 200,
  },
}

const USAGE = `npm run proof [-- ${Object.keys(PROOFS).join(' | ')} … [--length whole | middle] [--runs N] [--seed S] [--first N]]
       npm run proof world [-- --seeds N --days N --shrink SECONDS | --story FILE]`
const REPORT_EVERY_MS = 10_000

interface Outcome {
  proof: string
  runs: number
  seed: string
  seconds: number
  result: string
}

async function runProof(
  proof: string,
  {prove, runs, first}: {prove: Proof; runs: number; first: number},
): Promise<Outcome & {isProved: boolean}> {
  const startedAt = performance.now()
  const seconds = () => Math.round((performance.now() - startedAt) / 1000)
  const most = runs === ALL ? 'all' : runs
  process.stdout.write(`${proof}: ${most} runs from ${first}, seed ${seed}\n`)
  let [done, reportedAt] = [0, startedAt]
  const onRun = () => {
    done += 1
    if (performance.now() - reportedAt < REPORT_EVERY_MS) return
    reportedAt = performance.now()
    process.stdout.write(`${proof}: ${done} of ${most} runs, ${seconds()} s\n`)
  }
  try {
    const {figures} = await prove({runs, seed, first, onRun})
    const result = Object.entries(figures)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ')
    return {proof, runs: done, seed, seconds: seconds(), result, isProved: true}
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
    return {proof, runs: done, seed, seconds: seconds(), result: 'FAILED, see above', isProved: false}
  }
}

function formatTable(outcomes: readonly Outcome[]): string {
  const cells = outcomes.map(({proof, runs, seed, seconds, result}) => [proof, runs, seed, seconds, result])
  const rows = [['proof', 'runs', 'seed', 'seconds', 'result'], ...cells].map((row) => row.map(String))
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')).join('\n')
}

const all = Object.keys(PROOFS).filter((name) => !isMiddle || PROOFS[name]?.middle !== 0)
const names = positionals.length === 0 ? all : positionals
const unknown = names.find((name) => !Object.hasOwn(PROOFS, name))
const isCount = (text: string) => /^\d+$/.test(text)
const runsAsked = values.seeds ?? values.runs
const isLength = isMiddle || values.length === 'whole'
if (unknown !== undefined || !isLength || ![values.first ?? '0', days, runsAsked ?? '1'].every(isCount)) {
  process.stderr.write(
    `${unknown === undefined ? 'A count is no number, or no such length' : `No proof '${unknown}'`}. ${USAGE}\n`,
  )
  process.exit(2)
}

const outcomes: (Outcome & {isProved: boolean})[] = []
for (const name of names) {
  const proof = PROOFS[name]
  if (!proof) continue
  const runs = runsAsked === undefined ? (isMiddle ? proof.middle : proof.whole) : Number(runsAsked)
  const first = Number(values.first ?? (isMiddle ? (proof.tested ?? 0) : 0))
  outcomes.push(await runProof(name, {prove: proof.prove, runs, first}))
}
process.stdout.write(`\n${formatTable(outcomes)}\n`)
process.exitCode = outcomes.every(({isProved}) => isProved) ? 0 : 1
