import {readFileSync} from 'node:fs'
import {parseArgs} from 'node:util'
import {proveChurn} from '../test/proof/churn.ts'
import {proveCombined} from '../test/proof/combined.ts'
import {PAGES_PER_RUN, proveFuzz} from '../test/proof/fuzz.ts'
import {proveJournal} from '../test/proof/journal.ts'
import {proveKill} from '../test/proof/kill.ts'
import {proveMoney} from '../test/proof/money.ts'
import {proveNights} from '../test/proof/nights.ts'
import {proveNthAnswer} from '../test/proof/nth-answer.ts'
import {proveNthFile} from '../test/proof/nth-file.ts'
import type {Proof} from '../test/proof/proof.ts'
import {proveWorld, replayStory} from '../test/proof/world.ts'

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    runs: {type: 'string'},
    seeds: {type: 'string'},
    days: {type: 'string', default: '30'},
    story: {type: 'string'},
    shrink: {type: 'string', default: '180'},
    seed: {type: 'string', default: String(Date.now())},
    first: {type: 'string', default: '0'},
  },
})
/** As many as there are cases. */
const ALL = Number.MAX_SAFE_INTEGER

/** Every proof with its runs in the long form; what a run is, each proof says, and some have no more than their cases. */
const PROOFS: Record<string, {prove: Proof; runs: number}> = {
  kill: {prove: proveKill, runs: 77},
  'nth-answer': {prove: proveNthAnswer, runs: ALL},
  'nth-file': {prove: proveNthFile, runs: ALL},
  churn: {prove: proveChurn, runs: 167},
  fuzz: {prove: proveFuzz, runs: 100_000 / PAGES_PER_RUN},
  money: {prove: proveMoney, runs: 100},
  journal: {prove: proveJournal, runs: 60},
  nights: {prove: proveNights, runs: 100},
  combined: {prove: proveCombined, runs: 120},
  // The seeds of `world` are its runs: a run is a story.
  world: {
    prove: (request) =>
      values.story === undefined
        ? proveWorld({
            ...request,
            days: Number(values.days),
            shrinkMs: Number(values.shrink) * 1000,
          })
        : replayStory(JSON.parse(readFileSync(values.story, 'utf8'))),
    runs: 200,
  },
}

const USAGE = `npm run proof [-- ${Object.keys(PROOFS).join(' | ')} … [--runs N] [--seed S] [--first N]]
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
  {prove, runs}: {prove: Proof; runs: number},
  {seed, first}: {seed: string; first: number},
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
  const rows = [
    ['proof', 'runs', 'seed', 'seconds', 'result'],
    ...outcomes.map(({proof, runs, seed, seconds, result}) => [
      proof,
      String(runs),
      seed,
      String(seconds),
      result,
    ]),
  ]
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')).join('\n')
}

const names = positionals.length === 0 ? Object.keys(PROOFS) : positionals
const unknown = names.find((name) => !Object.hasOwn(PROOFS, name))
const isCount = (text: string) => /^\d+$/.test(text)
const runsAsked = values.seeds ?? values.runs
if (unknown !== undefined || ![values.first, values.days, runsAsked ?? '1'].every(isCount)) {
  process.stderr.write(
    `${unknown === undefined ? 'A count is no number' : `No proof '${unknown}'`}. ${USAGE}\n`,
  )
  process.exit(2)
}

const outcomes: (Outcome & {isProved: boolean})[] = []
for (const name of names) {
  const proof = PROOFS[name]
  if (!proof) continue
  const runs = runsAsked === undefined ? proof.runs : Number(runsAsked)
  outcomes.push(await runProof(name, {...proof, runs}, {seed: values.seed, first: Number(values.first)}))
}
process.stdout.write(`\n${formatTable(outcomes)}\n`)
process.exitCode = outcomes.every(({isProved}) => isProved) ? 0 : 1
